"""How long a training step takes, with and without the fast path and beside TRL's GRPOTrainer, and whether both learn
the same.

The three sides live in processes of their own, load the same model, prompts, rewards and settings, and take turns in
short blocks, so that whatever else the machine does hits all alike. Completions have a fixed length, because the
tokenizer's end token lies outside the model's vocabulary: all sides write exactly the same number of tokens, and that
is checked. Ours runs with its log and every detector on, as `stabilizer train` does; what that costs is shared out
evenly over the steps of a block before medians are taken, for the detectors look at some steps at a time. The interval
is a bootstrap over blocks. One optimizer step per batch, float32, AdamW, no KL, no group left out. With a dense reward,
which is random, every group has a gradient; with the task's own, groups with equal rewards have none, and this trainer
does not compute them. Learning is compared on the built-in sorting task from its warm start, seed by seed.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.train.sides import TRL_CACHE, Row, Side, all_sides, environment, trl_python

SIZES = {
    "110k": {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 2},
    "1.6M": {"hidden_size": 192, "intermediate_size": 448, "num_hidden_layers": 4, "num_attention_heads": 6},
    "30M": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 7, "num_attention_heads": 8},
    "100M": {"hidden_size": 768, "intermediate_size": 3456, "num_hidden_layers": 8, "num_attention_heads": 12},
}
VOCABULARY = {"30M": 16_384, "100M": 16_384}
"""Tokens of the models that need a vocabulary of a usual size; the others have those of the task."""
PARTS = ("rollout_s", "scoring_s", "update_s", "step_s")
SHAPE = {"prompts": 8, "group_size": 8, "max_completion": 16}
LEARNING = {"prompts": 16, "group_size": 8, "max_completion": 8, "lr": 8e-4, "model": "builtin"}
FIRST = 0x4E00
"""The first of 20,992 characters that fill a larger vocabulary."""
LENGTHS = (16, 32, 64, 128)
"""Completion lengths of the table of cost against tokens."""


class Race(NamedTuple):
    """One model on all sides."""

    size: str
    blocks: int
    steps: int
    """Steps per block."""
    watched: int
    """Steps over which logging and detectors are timed, with nothing in between."""
    shape: dict[str, int] = SHAPE
    reward: str = "task"
    warm_up: int = 3


LONG = {"prompts": 8, "group_size": 8, "max_completion": 64}
LARGE = {"prompts": 4, "group_size": 4, "max_completion": 64}
RACES = {
    "110k": Race("110k", 10, 10, 200),
    "110k, dense": Race("110k", 10, 10, 200, reward="random"),
    "1.6M": Race("1.6M", 10, 5, 100),
    "1.6M, dense": Race("1.6M", 10, 5, 100, reward="random"),
    "30M, dense": Race("30M", 4, 1, 1, LONG, "random", 1),
    "30M, dense, long prompts": Race("30M", 3, 1, 1, LONG | {"before": 240}, "random", 1),
    "100M, dense": Race("100M", 4, 1, 1, LARGE, "random", 1),
}
SHORT = {"110k": Race("110k", 4, 5, 50), "1.6M": Race("1.6M", 4, 3, 20)}
"""For `--quick`: the large models take minutes."""


class Amount(NamedTuple):
    """How much else is measured."""

    learning_seeds: int
    learning_steps: int
    repeats: int


FULL, QUICK = Amount(3, 100, 3), Amount(2, 25, 1)


def measure(
    *,
    seed: int = 0,
    quick: bool = False,
    threads: int = 2,
    env: Path | None = None,
    only: str | None = None,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Everything, or one race only, as JSON's own types. `tell` hears what is going on."""
    amount, races = (QUICK, SHORT) if quick else (FULL, RACES)
    if only is not None:
        if only not in RACES:
            raise ValueError(f"--only {only}: must be one of {', '.join(RACES)}")
        races = {only: RACES[only]}
    ours, plain, trl = all_sides(trl_python(env or TRL_CACHE, tell), threads)
    try:
        with tempfile.TemporaryDirectory() as folder:
            sizes = {race.size for race in races.values()}
            models = {size: str(_make_model(Path(folder) / size, size, seed)) for size in sizes}
            base = {"task": "sorting", "threads": threads, "seed": seed, "lr": 1e-4, **SHAPE}
            speed = []
            for name, race in races.items():
                tell(f"{name}: {race.blocks} x {race.steps} steps on every side, taking turns")
                job = {**base, **race.shape, "model": models[race.size], "reward": race.reward}
                speed.append(_race((ours, plain, trl), name, job, race))
            if only is not None:
                return {"machine": _machine(threads), "speed": speed}
            tell("cost against tokens")
            cost = _cost(ours, {**base, "model": models["110k"]}, 3 if quick else 10)
        tell(f"learning: {amount.learning_seeds} seeds x {amount.learning_steps} steps on either side")
        learning = _learning(ours, trl, {**base, **LEARNING}, amount)
    finally:
        for side in (ours, plain, trl):
            side.close()
    from bench.train import memory  # run as a program of its own, so not imported with the package

    tell("log-probabilities, entropies and gradients at a vocabulary of 32k")
    head = memory.measure(threads=threads, repeats=amount.repeats, environment=environment(threads))
    return {
        "machine": _machine(threads), "shape": SHAPE, "speed": speed, "cost": cost, "learning": learning, "head": head,
    }  # fmt: skip


def _machine(threads: int) -> dict[str, Any]:
    load = os.getloadavg()[0]
    return {"cores": os.cpu_count(), "processor": platform.machine(), "threads": threads, "load": load}


def _make_model(folder: Path, size: str, seed: int) -> Path:
    """A Qwen2 with random weights, and a tokenizer whose end token the model can't write."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from transformers.utils.logging import disable_progress_bar

    from stabilizer.training.model import build_tokenizer

    torch.manual_seed(seed)
    shape, own = SIZES[size], len(build_tokenizer())
    tokenizer = build_tokenizer([chr(FIRST + i) for i in range(VOCABULARY.get(size, own) - own)])
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer), num_key_value_heads=shape["num_attention_heads"], max_position_embeddings=512,
            tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=None, **shape,
        )
    )  # fmt: skip
    tokenizer.add_special_tokens({"eos_token": "<end>"})
    assert tokenizer.eos_token_id >= model.config.vocab_size
    disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


# --- step time ------------------------------------------------------------------------------------------------------


def _race(sides: Sequence[Side], name: str, job: dict[str, Any], race: Race) -> dict[str, Any]:
    """Blocks of steps in turns; medians of all steps, and how many times as long as ours the others take."""
    job = {**job, "steps": race.warm_up + race.blocks * race.steps}
    about = {side.name: side.start(job) for side in sides}
    blocks: dict[str, list[list[Row]]] = {side.name: [] for side in sides}
    for side in sides:
        side.steps(race.warm_up)
    for block in range(race.blocks):
        for side in sides if block % 2 == 0 else reversed(sides):
            blocks[side.name].append(side.steps(race.steps))
    for side in sides:
        side.stop()
    ours = sides[0]
    ours.start({**job, "steps": race.watched})
    alone = ours.steps(race.watched)
    ours.stop()
    tokens = {row["tokens"] for rows in blocks.values() for block in rows for row in block}
    wanted = job["prompts"] * job["group_size"] * job["max_completion"]
    if tokens != {wanted}:
        raise ValueError(
            f"{name}: steps of {sorted(tokens)} tokens, {wanted} expected: the comparison would not be fair"
        )
    parameters = {answer["parameters"] for answer in about.values()}
    assert len(parameters) == 1
    ratio, low, high = _times_ours(blocks, "trl")
    plain, plain_low, plain_high = _times_ours(blocks, "plain")
    processor = _times_ours(blocks, "trl", "cpu_s")[0]
    return {
        "model": name,
        "shape": "{prompts} x {group_size} x {max_completion}".format(**job)
        + (f", {job['before']} tokens before the prompt" if job.get("before") else ""),
        "reward": job.get("reward", "task"),
        "processor ratio": processor,
        "peak gb": {side: float(_part(rows, "peak_gb").max()) for side, rows in blocks.items()},
        "parameters": parameters.pop(),
        "tokens per step": wanted,
        "steps": race.blocks * race.steps,
        "versions": {side: answer["versions"] for side, answer in about.items()},
        "ms": {
            side: {part: 1e3 * float(np.median(_part(rows, part))) for part in (*PARTS, "cpu_s")}
            for side, rows in blocks.items()
        },
        "monitor ms": 1e3 * float(_part([alone], "monitor_s").mean()),
        "monitor steps": race.watched,
        "idle": float(_part(blocks["ours"], "idle").mean()),
        "ratio": ratio,
        "interval": [low, high],
        "plain ratio": plain,
        "plain interval": [plain_low, plain_high],
        "step ms": {side: (1e3 * _part(rows, "step_s")).tolist() for side, rows in blocks.items()},
    }


def _times_ours(blocks: Mapping[str, list[list[Row]]], side: str, part: str = "step_s") -> tuple[float, float, float]:
    return ratio_of_medians(_part(blocks[side], part), _part(blocks["ours"], part))


def _part(blocks: list[list[Row]], part: str) -> np.ndarray:
    """(blocks, steps) of one measurement."""
    return np.array([[row[part] for row in block] for block in blocks])


def ratio_of_medians(slow: np.ndarray, fast: np.ndarray, draws: int = 2000) -> tuple[float, float, float]:
    """median(slow) / median(fast) of (blocks, steps), and a 95 % bootstrap interval that draws blocks in pairs."""
    rng = np.random.default_rng(0)
    picked = rng.integers(len(slow), size=(draws, len(slow)))
    ratios = [np.median(slow[blocks]) / np.median(fast[blocks]) for blocks in picked]
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(np.median(slow) / np.median(fast)), float(low), float(high)


def _cost(ours: Side, job: dict[str, Any], steps: int) -> list[dict[str, float]]:
    """Median step time against completion tokens."""
    rows = []
    for length in LENGTHS:
        ours.start({**job, "max_completion": length, "steps": steps + 2})
        ours.steps(2)
        measured = ours.steps(steps)
        ours.stop()
        tokens, ms = measured[0]["tokens"], 1e3 * float(np.median([row["step_s"] for row in measured]))
        rows.append({"completion length": length, "tokens": tokens, "step ms": ms, "us per token": 1e3 * ms / tokens})
    return rows


# --- learning -------------------------------------------------------------------------------------------------------


def _learning(ours: Side, trl: Side, job: dict[str, Any], amount: Amount) -> dict[str, Any]:
    """Reward curves of either side, one per seed, and how far apart their last thirds are."""
    from stabilizer.training.model import WARM_STARTS

    job = {**job, "model": str(WARM_STARTS / job["task"]), "steps": amount.learning_steps}
    curves: dict[str, list[list[float]]] = {"ours": [], "trl": []}
    for seed in range(job["seed"], job["seed"] + amount.learning_seeds):
        for side in (ours, trl):
            side.start({**job, "seed": seed})
            curves[side.name].append([row["reward"] for row in side.steps(amount.learning_steps)])
            side.stop()
    return {"settings": {**LEARNING, "task": job["task"]}, "curves": curves, **compare(curves["ours"], curves["trl"])}


def compare(ours: Sequence[Sequence[float]], trl: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Mean reward of the last third, seed by seed: the mean difference with a 95 % t interval, paired by seed."""
    last = {name: np.array(curves)[:, -(len(curves[0]) // 3) :].mean(1) for name, curves in (("a", ours), ("b", trl))}
    first = {name: np.array(curves)[:, : len(curves[0]) // 10 + 1].mean() for name, curves in (("a", ours), ("b", trl))}
    difference = last["a"] - last["b"]
    half = STUDENT[len(difference) - 1] * difference.std(ddof=1) / len(difference) ** 0.5
    return {
        "start": {"ours": float(first["a"]), "trl": float(first["b"])},
        "end": {"ours": float(last["a"].mean()), "trl": float(last["b"].mean())},
        "seed spread": {"ours": float(last["a"].std(ddof=1)), "trl": float(last["b"].std(ddof=1))},
        "difference": float(difference.mean()),
        "difference interval": [float(difference.mean() - half), float(difference.mean() + half)],
    }


STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""97.5 % points of Student's t by degrees of freedom."""


# --- in words -------------------------------------------------------------------------------------------------------


def tables(result: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """(title, rows) of everything measured."""
    speed = [
        {"model": race["model"], "side": side, **{f"{part[:-2]} ms": race["ms"][side][part] for part in PARTS},
         "processor ms": race["ms"][side]["cpu_s"], "peak GB": race["peak gb"][side], "idle": race["idle"],
         "shape": race["shape"], "steps": race["steps"]}
        for race in result["speed"]
        for side in ("ours", "plain", "trl")
    ]  # fmt: skip
    versions = [{"side": side, **numbers} for side, numbers in result["speed"][0]["versions"].items()]
    names = dict.fromkeys(key for row in versions for key in row)
    found = [
        ("Versions", [{name: row.get(name, "") for name in names} for row in versions]),
        ("A step, medians", speed),
    ]
    if "learning" not in result:
        return found
    return [
        *found,
        ("Cost against tokens (110k)", result["cost"]),
        ("Log-probabilities, entropies and gradients together", result["head"]),
    ]


def statements(result: dict[str, Any]) -> list[str]:
    """What the numbers say."""
    machine = result["machine"]
    said = [f"{machine['threads']} threads on {machine['cores']} cores, load {machine['load']:.1f}"]
    for race in result["speed"]:
        low, high = race["interval"]
        plain, (plain_low, plain_high) = race["plain ratio"], race["plain interval"]
        said.append(
            f"{race['model']} ({race['parameters']:,} parameters): TRL takes {race['ratio']:.2f} times as long a step "
            f"(95 % interval {low:.2f} to {high:.2f}), this trainer without its fast path {plain:.2f} times "
            f"({plain_low:.2f} to {plain_high:.2f}); in processor time TRL takes "
            f"{race['processor ratio']:.2f} times as long. Peak memory {race['peak gb']['ours']:.2f} GB here, "
            f"{race['peak gb']['trl']:.2f} GB with TRL. All "
            f"wrote {race['tokens per step']:,} tokens in every step. "
            "Logging, detectors and the metrics' own "
            f"arithmetic, timed inside and included: {race['monitor ms']:.2f} ms a step, the mean over the first "
            f"{race['monitor steps']} steps of a run of its own, waits for the disk too; target 1: "
            f"{'met' if race['monitor ms'] <= 1 else 'missed'}. In {race['idle']:.0%} of the groups here all answers "
            "were paid alike: TRL computes their update, which moves nothing, this trainer not"
        )
    if "learning" not in result:
        return said
    learning = result["learning"]
    (low, high), start, end = learning["difference interval"], learning["start"], learning["end"]
    verdict = "no difference beyond seed noise" if low <= 0 <= high else "a difference beyond seed noise"
    said.append(
        f"Learning, {len(learning['curves']['ours'])} seeds: reward {start['ours']:.3f} -> {end['ours']:.3f} here, "
        f"{start['trl']:.3f} -> {end['trl']:.3f} with TRL; difference {learning['difference']:+.3f} "
        f"(95 % interval {low:+.3f} to {high:+.3f}): {verdict}"
    )
    short, long = result["cost"][0], result["cost"][-1]
    said.append(
        f"{long['tokens'] / short['tokens']:.0f} times the tokens take {long['step ms'] / short['step ms']:.1f} times "
        "as long"
    )
    fused = next(row for row in result["head"] if row["way"] == "fused")
    said.append(
        f"At a vocabulary of {fused['vocabulary']:,} the fused head needs {fused['share of naive memory']:.0%} of the "
        f"naive peak and {fused['share of naive time']:.0%} of the time"
    )
    return said
