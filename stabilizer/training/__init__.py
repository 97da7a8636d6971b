"""A small GRPO and PPO trainer that reports everything it does and can be corrected while it runs.

    settings.py     every setting with its unit and reason, and the values it allows
    config.py       reads a configuration: task defaults, YAML file, overrides
    key_help.py     the reference of all keys, taken from the docstrings in settings.py
    presets.py      defaults of the built-in tasks
    loop.py         one step from start to end

    tasks.py        the built-in tasks: problems and their scores
    data/           problems from a data set
    rewards/        reward functions, built-in and the user's own
    build_task.py   the task of a configuration
    inputs.py       the files a configuration names, and whether they changed
    environments/   the search tool a policy may call within an episode

    model.py        the built-in model of 110k parameters, its tokenizer, and any other causal language model
    warm_start.py   makes the shipped starting weights
    head.py         log-probabilities from hidden states, in chunks
    reference.py    the policy that KL is measured from
    critic.py       the value function
    rollout/        generation, episodes of several turns, log-probabilities of completions
    fast/           a faster way to score completions (`fast: auto`)

    credit.py       from scores to advantages; advantages.py, values.py
    losses.py       the objective; kl.py, corrections.py, adaptive.py
    learner.py      the updates of a step
    knobs.py        the settings that may change during a run
    metrics.py      metrics of completions and scores

    checkpoint.py   states on disk; state.py: their contents; saved.py: the policy in one

The trainer knows neither detectors nor dashboards: it returns numbers and reads its knobs at every step. Importing this
package does not import torch; importing `stabilizer.training.loop` does.
"""
