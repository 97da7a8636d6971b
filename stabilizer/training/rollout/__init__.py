"""Generation: `Engine.generate(prompts, sampling) -> Rollouts`, and the learner's own log-probabilities of the
result."""
