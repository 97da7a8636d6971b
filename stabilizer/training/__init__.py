"""A trainer small enough to read aloud, instrumented so that everything it does can be watched and corrected.

    settings.py     what can be set, each with its unit and the reason it exists; checks.py: what can't be
    config.py       how a configuration is read; nearest.py: what was meant by a key nobody knows
    key_help.py     every key explained, from the words below it
    algorithms.py   published recipes as settings; presets.py: what suits the built-in tasks
    loop.py         one step, told from start to end

    tasks.py        problems to train on, and what an answer is worth
    data/           problems from a data set
    rewards/        what an answer is worth: built-in functions and anybody's own
    build_task.py   which of these a configuration means; inputs.py: the files it reads, and whether they changed
    environments/   what answers a policy in the middle of an episode: a search tool

    model.py        the built-in 110k-parameter model, its tokenizer, and any other causal language model
    warm_start.py   how the shipped starting weights were made
    decoder.py      the forward pass of Llama-like models in plain operations; head.py: the last layer, in pieces
    reference.py    the policy that KL is measured from
    critic.py       what a policy's prospects are worth
    rollout/        prompts in, scored episodes with their log-probabilities out

    credit.py       from scores to advantages: advantages.py, values.py
    losses.py       what is minimised; kl.py, corrections.py, adaptive.py beside it
    learner.py      the updates of a step
    knobs.py        the controls as they stand when a step begins
    metrics.py      what is measured besides the loss

    checkpoint.py   states on disk that can be trusted; state.py: what is in them; saved.py: the policy in one

It knows neither detectors nor dashboards: it returns numbers and reads its knobs anew at every step. Importing this
package does not import torch; `stabilizer.training.loop` does.
"""
