"""Generation: `Sampler.generate(prompts) -> Rollouts`, and the log-probabilities both sampler and learner agree on."""
