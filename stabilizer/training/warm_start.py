"""Makes the starting weights of a task: `python -m stabilizer.training.warm_start TASK [--out DIR] [--steps N]`.

Reinforcement learning needs answers that are sometimes right. So the tiny model first imitates demonstrations, and
stops early, while it is still wrong most of the time. Seeded and deterministic; it sees no held-out problem.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from stabilizer.training.environments.search import SearchConfig
from stabilizer.training.model import WARM_STARTS, Policy, build_model, build_tokenizer
from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.rollout.sampler import Sampler
from stabilizer.training.rollout.turns import play
from stabilizer.training.tasks import TASKS, Task, random_bits

BATCH = 128
CHECK_EVERY = 2
LEARNING_RATE = {"addition": 3e-3, "sorting": 1e-3, "length": 3e-3, "search": 3e-3}
WANTED = {"addition": 0.20, "sorting": 0.20, "length": 1.1, "search": 0.20}
"""Held-out greedy accuracy at which imitation stops; above 1 means that all steps are made."""
STEPS = {"addition": 600, "sorting": 600, "length": 300, "search": 2000}
"""Maximum number of imitation steps."""
IGNORED = -100
"""Marks a token that is not imitated."""


def warm_start(task: Task, steps: int, seed: int = 0) -> tuple[Policy, float]:
    """A model that imitates `task` until it is right often enough, and its held-out greedy accuracy."""
    torch.manual_seed(seed)
    tokenizer = build_tokenizer(task.symbols)
    policy = Policy(build_model(tokenizer), tokenizer)
    lr = LEARNING_RATE[task.name]
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    accuracy = 0.0
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, step / 50)
        loss = imitation_loss(policy, task, seed, step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        if step % CHECK_EVERY == 0:
            accuracy = held_out_accuracy(policy, task)
            if step % 50 == 0:
                print(f"step {step}: loss {loss.item():.3f}, held-out accuracy {accuracy:.3f}")
            if accuracy >= WANTED[task.name]:
                print(f"stopped at step {step}")
                break
    return policy, accuracy


def imitation_loss(policy: Policy, task: Task, seed: int, step: int) -> torch.Tensor:
    """Cross-entropy of a batch of demonstrations, over the tokens that the policy itself must write."""
    problems = task.training(BATCH, seed=seed, salt=-1, cursor=step * BATCH)
    eos = policy.tokenizer.eos_token_id
    prompts = task.encode(problems, policy.tokenizer)
    rows: list[tuple[list[int], list[int]]] = []
    for i, (problem, prompt) in enumerate(zip(problems, prompts, strict=True)):
        text = task.demonstration(problem, random_bits("demonstration", seed, step, i))
        ids, target = list(prompt), [IGNORED] * len(prompt)
        for part, own in task.own_parts(text):
            tokens = policy.tokenizer(part, add_special_tokens=False)["input_ids"]
            ids += tokens
            target += tokens if own else [IGNORED] * len(tokens)
        rows.append(([*ids, eos], [*target, eos]))
    width = max(len(ids) for ids, _ in rows)
    ids_BT = torch.full((BATCH, width), policy.tokenizer.pad_token_id)
    target_BT = torch.full((BATCH, width), IGNORED)
    for row, (ids, target) in enumerate(rows):
        ids_BT[row, : len(ids)] = torch.tensor(ids)
        target_BT[row, : len(ids)] = torch.tensor(target)
    logits_BTV = policy.model(input_ids=ids_BT[:, :-1]).logits
    return cross_entropy(logits_BTV.flatten(0, 1), target_BT[:, 1:].flatten(), ignore_index=IGNORED)


def held_out_accuracy(policy: Policy, task: Task) -> float:
    """Share of held-out problems that the greedy completion solves."""
    problems = task.held_out(256)
    prompts = task.encode(problems, policy.tokenizer)
    greedy = Sampling(group_size=1, temperature=0.0, max_completion=40)
    config = SearchConfig()
    engine, environment = Sampler(policy), task.environment(config)
    if environment is None:
        rollouts = engine.generate(prompts, greedy)
    else:
        played = play(engine, prompts, environment, greedy, policy.tokenizer, max_turns=config.max_turns)
        assert played is not None, "there are held-out problems"
        rollouts = played[0]
    solved = [score.solved for score in task.score_all(problems, rollouts.texts)]
    return sum(solved) / len(solved)


def main() -> None:
    """Train and save one warm start."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--out", type=Path, help="folder to write to; default: the shipped one")
    parser.add_argument("--steps", type=int, help="maximum number of imitation steps")
    args = parser.parse_args()
    torch.set_num_threads(1)  # sums in another order would give other weights
    policy, accuracy = warm_start(TASKS[args.task], args.steps or STEPS[args.task])
    out = args.out or WARM_STARTS / args.task
    policy.model.save_pretrained(out)
    policy.tokenizer.save_pretrained(out)
    print(f"{args.task}: held-out greedy accuracy {accuracy:.3f}, written to {out}")


if __name__ == "__main__":
    main()
