"""Small made-up logs in each trainer's own form, built from its names. All numbers are invented and all different."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stabilizer.trainers.areal import log as areal
from stabilizer.trainers.nemo_rl import log as nemo_rl
from stabilizer.trainers.openrlhf import log as openrlhf
from stabilizer.trainers.prime_rl import console
from stabilizer.trainers.prime_rl import log as prime_rl
from stabilizer.trainers.roll import log as roll
from stabilizer.trainers.skyrl import log as skyrl
from stabilizer.trainers.slime import log as slime
from stabilizer.trainers.trl import jsonl
from stabilizer.trainers.verl import names as verl_names
from tests.trainers.trl_logs import record

Numbers = Mapping[str, float]
RAY = "\x1b[36m(TaskRunner pid=12345)\x1b[0m "
AGENT = "train/agg/{}/solver/{}"


def values(keys: Iterable[str]) -> dict[str, float]:
    """A number of its own for every key, with three decimals that matter."""
    return {key: 0.125 + place for place, key in enumerate(keys)}


def verl(step: int, numbers: Numbers, style: Callable[[float], str] = repr, prefix: str = RAY) -> str:
    """A line of veRL's console; `style` is how its version prints a number."""
    return f"{prefix}step:{step} - " + " - ".join(f"{key}:{style(value)}" for key, value in numbers.items()) + "\n"


def three(value: float) -> str:
    """As veRL up to 0.4.1 and Search-R1 print it."""
    return f"{value:.3f}"


def np_float(value: float) -> str:
    """As numpy 2 prints its own."""
    return f"np.float64({value!r})"


def nested(step: int, numbers: Numbers) -> dict[str, Any]:
    """EasyR1's tree of a step."""
    tree: dict[str, Any] = {"step": step}
    for key, value in numbers.items():
        node = tree
        *above, last = key.split("/")
        for part in above:
            node = node.setdefault(part, {})
        node[last] = value
    return tree


def easyr1_file(step: int, numbers: Numbers) -> str:
    """A line of EasyR1's file."""
    return json.dumps(nested(step, numbers)) + "\n"


def easyr1_console(step: int, numbers: Numbers, prefix: str = "\x1b[36m(Runner pid=7)\x1b[0m ") -> str:
    """A step of EasyR1's console."""

    def tree(node: Mapping[str, Any], indent: str) -> Iterable[str]:
        for key, value in node.items():
            if isinstance(value, dict):
                yield f"{indent}{key}:"
                yield from tree(value, indent + "  ")
            elif indent:
                yield f"{indent}{key}: {value!r}"

    return "".join(f"{prefix}{line}\n" for line in [f"Step {step}", *tree(nested(step, numbers), "")])


def verl_file(step: int, numbers: Numbers) -> str:
    """A line of veRL's file logger."""
    return json.dumps({"step": step, "data": dict(numbers)}) + "\n"


def openrlhf_line(step: int, numbers: Numbers) -> str:
    """A step of OpenRLHF's console."""
    return f"(PPOTrainer pid=9) INFO 08-13 10:00:00 ppo_trainer.py:547] ✨ Global step {step}: {dict(numbers)!r}\n"


def slime_lines(step: int, numbers: Numbers) -> str:
    """slime's lines of a rollout and of its one update."""
    update = {key: value for key, value in numbers.items() if key.startswith("train/")}
    rest = {key: value for key, value in numbers.items() if key not in update}
    counts = {"rollout/zero_std/count_0.0": 4 * rest.pop("rollout/zero_std/frac")} if WITH_GROUPS & set(rest) else {}
    stamp = "(RolloutManager pid=7) [2026-08-21 10:00:00] rollout_metrics.py:268 - "
    return f"{stamp}rollout {step}: {rest | counts}\n{stamp}step {step}: {update | {'train/step': step}}\n"


WITH_GROUPS = {"rollout/zero_std/frac"}


def areal_table(step: int, numbers: Numbers) -> str:
    """AReaL's table of a step, four pairs a line; `seq_len - prompt_len` is worked out by the reader."""
    stats = {key: value for key, value in numbers.items() if " - " not in key}
    for key in set(numbers) - set(stats):
        stats |= {"ppo_actor/seq_len/avg": numbers[key] + 100, "ppo_actor/prompt_len/avg": 100.0}
    cells = [f" {key} │ {value!r} " for key, value in stats.items()]
    rows = "\n".join("│" + "│".join(cells[place : place + 4]) + "│" for place in range(0, len(cells), 4))
    stamp = "(AReaL) 20260821-10:00:00.000 StatsLogger INFO: "
    return f"{stamp}Epoch 1/1 Step {step}/9 Train step {step}/9 done.\n{stamp}\n╒═══╤═══╕\n{rows}\n╘═══╧═══╛\n"


def roll_line(step: int, numbers: Numbers) -> str:
    """A line of ROLL's stdout tracker."""
    said = json.dumps({"step": step, "metrics": dict(numbers)})
    return f"[2026-08-21 10:00:00] [tracking.py (143)] [INFO] [DRIVER 0 / 1][PID 7] metrics_tag: {said}\n"


def roll_bare(step: int, numbers: Numbers) -> str:
    """A step's JSON as ROLL prints it beside its tracker, with the tags by which it reduces."""
    said = {(f"{key}@sum" if key.startswith("actor/") else key): value for key, value in numbers.items()}
    return f"[2026-08-21 10:00:00] [INFO] {json.dumps({**said, 'system/global_step': step})}\n"


def skyrl_lines(step: int, numbers: Numbers) -> str:
    """A step of SkyRL's console, its numbers as text with four decimals."""
    body = ",\n ".join(f"{key!r}: '{value:.4f}'" for key, value in numbers.items())
    return f"2026-08-21 10:00:00.000 | INFO     | skyrl.train.utils.tracking:log:88 - Step {step}: \n{{{body}}}\n"


def nemo_block(step: int, numbers: Numbers) -> str:
    """A step of NeMo-RL's console."""
    named = {label: numbers[key] for label, key in nemo_rl.LABELS.items() if key in numbers}
    training = [f"  • {label}: {named[label]:.4f}" for label in list(nemo_rl.LABELS)[:4] if label in named]
    lines = [f"\n{'=' * 25} Step {step}/100 {'=' * 25}", "▶ Training policy...", "", "📊 Training Results:", *training]
    if "Accuracy" in named:
        lines += ["📈 Validation Results:", f"    • Accuracy: {named['Accuracy']:.4f}"]
    lines += ["⏱️  Timing:", f"  • Total step time: {named['Total step time']:.2f}s"]
    lines += [f"  • generation: {named['generation']:.2f}s (40.1%)", "🔍 Performance Metrics:", "  • MFU: 0.31"]
    return "\n".join(lines) + "\n"


def prime(step: int, numbers: Numbers) -> str:
    """Two records of one step, as prime-rl appends them."""
    keys = list(numbers)
    half = len(keys) // 2
    records = ({key: numbers[key] for key in part} for part in (keys[:half], keys[half:]))
    return "".join(json.dumps({"step": step, "time": 1.79e9, **part}) + "\n" for part in records)


def prime_line(step: int, numbers: Numbers, colon: str = "") -> str:
    """A step of prime-rl's console; shares in percent, and with colons as until spring 2026."""
    spent = f"Time: {numbers['Time']!r}s" if colon else f"   {numbers['Time']!r}s"
    cells = [
        f"{key}{colon} {value * 100!r}%" if key == "Truncation" else f"{key}{colon} {value!r}"
        for key, value in numbers.items()
        if key != "Time"
    ]
    line = " | ".join([f"Step {step}", spent, *cells])
    return f"\x1b[2m10:00:00\x1b[0m\x1b[32m\x1b[1m SUCCESS\x1b[0m \x1b[32m\x1b[1m\x1b[22m{line}\x1b[0m\n"


def trl_v5(row: Mapping[str, Any]) -> str:
    """As transformers 5 prints a record: numbers as text with four digits."""
    return repr({key: f"{value:.4g}" for key, value in _printed(row).items()})


def trl_v4(row: Mapping[str, Any]) -> str:
    """As transformers 4 prints a record."""
    return repr(_printed(row))


def _printed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without the step, the epoch at the end."""
    return {**{key: row[key] for key in row if key not in ("step", "epoch")}, "epoch": row.get("epoch", 1.0)}


def bar(step: int, total: int) -> str:
    """A progress bar before the record, on the same line."""
    return f"\r {100 * step // total}%|█▎        | {step}/{total} [07:58<3:37:31, 45.01s/it]\r          \r"


def trl_console(rows: Iterable[Mapping[str, Any]], style: Callable[..., str] = trl_v5, total: int = 500) -> str:
    """A console of TRL with its progress bar."""
    return "".join(f"{bar(row['step'], total)}{style(row)}\n" for row in rows)


def swift(step: int, row: Mapping[str, Any]) -> str:
    """A line of ms-swift's logging.jsonl."""
    extra = {"global_step/max_steps": f"{step}/438", "percentage": "0.2%", "elapsed_time": "6s"}
    return json.dumps({**{key: value for key, value in row.items() if key != "step"}, **extra}) + "\n"


def llama_factory(step: int, row: Mapping[str, Any]) -> str:
    """A line of LLaMA-Factory's trainer_log.jsonl."""
    kept = {{"learning_rate": "lr"}.get(key, key): value for key, value in row.items() if key != "step"}
    return json.dumps({"current_steps": step, "total_steps": 100, **kept, "percentage": 1.0}) + "\n"


ORCHESTRATOR = {AGENT.format(*key.split("/", 1)): ours for key, ours in prime_rl.AGENT_NAMES.items()}
VERL = {**verl_names.NAMES, "val-core/math/acc/mean@4": "accuracy/val"}
VERL_OLD = {
    **{key: ours for key, ours in verl_names.NAMES.items() if ours not in verl_names.INSTEAD.values()},
    **{
        key: verl_names.INSTEAD[key]
        for key in ("actor/entropy_loss", "critic/kl", "critic/kl_coeff", "critic/values/mean")
    },
}
VERL_REWARD_KL = {
    **{key: ours for key, ours in verl_names.NAMES.items() if ours not in verl_names.INSTEAD.values()},
    **{
        key: verl_names.INSTEAD[key]
        for key in (
            "actor/entropy_loss", "actor/reward_kl_penalty", "actor/reward_kl_penalty_coeff", "critic/values/mean",
            "mismatch/mismatch_k3_kl", "mismatch/mismatch_kl",
        )
    },
}  # fmt: skip
SEARCH_R1 = {**VERL_OLD, **verl_names.SEARCH_R1_NAMES, "val/test_score/nq": "accuracy/val"}
EASYR1 = {
    **{
        key: ours
        for key, ours in verl_names.NAMES.items()
        if ours not in ("policy/clip_frac", "policy/kl_ref", "reward/mean", "policy/entropy", "policy/dual_clip_frac")
    },
    **verl_names.EASYR1_NAMES,
    "actor/entropy_loss": "policy/entropy",
    "reward/format": "reward/format/mean",
}

_ORCHESTRATED = ("Reward", "Truncation", "Turns", "Time")
PRIME_TRAINER = {key: ours for key, ours in console.NAMES.items() if key == "Time" or key not in _ORCHESTRATED}
PRIME_ORCHESTRATOR = {key: console.NAMES[key] for key in _ORCHESTRATED}

LOGS: dict[str, tuple[str, str, Mapping[str, str], Callable[[int, Numbers], str]]] = {
    "verl 0.9": ("verl_console", "verl", VERL, lambda step, n: verl(step, n, np_float)),
    "verl 0.5": ("verl_console", "verl", VERL, verl),
    "verl 0.4": ("verl_console", "verl", VERL, lambda step, n: verl(step, n, three)),
    "verl 0.3": ("verl_console", "verl", VERL_OLD, lambda step, n: verl(step, n, three, "(main_task pid=2) ")),
    "verl 0.6, KL in the reward": ("verl_console", "verl", VERL_REWARD_KL, verl),
    "verl file": ("verl_file", "verl", VERL, verl_file),
    "search-r1": ("verl_console", "search_r1", SEARCH_R1, lambda step, n: verl(step, n, three, "")),
    "easyr1 file": ("easyr1", "easyr1", EASYR1, easyr1_file),
    "easyr1 console": ("easyr1", "easyr1", EASYR1, easyr1_console),
    "openrlhf": ("openrlhf_console", "openrlhf", {**openrlhf.NAMES, "eval_math_pass1": "accuracy/val"}, openrlhf_line),
    "openrlhf, rollout names": (
        "openrlhf_console", "openrlhf",
        {**{k: v for k, v in openrlhf.NAMES.items() if v not in openrlhf.INSTEAD.values()}, **openrlhf.INSTEAD},
        openrlhf_line,
    ),
    "skyrl": ("skyrl_console", "skyrl", skyrl.NAMES, skyrl_lines),
    "skyrl, KL in the reward": (
        "skyrl_console", "skyrl",
        {**{k: v for k, v in skyrl.NAMES.items() if v not in skyrl.INSTEAD.values()}, **skyrl.INSTEAD}, skyrl_lines,
    ),
    "slime": (
        "slime_console", "slime",
        {**{k: v for k, v in slime.NAMES.items() if k not in WITH_GROUPS}, "eval/aime": "accuracy/val"}, slime_lines,
    ),
    "slime, other names": (
        "slime_console", "slime",
        {**{k: v for k, v in slime.NAMES.items() if v not in slime.INSTEAD.values() and k not in WITH_GROUPS},
         **slime.INSTEAD}, slime_lines,
    ),
    "areal": ("areal_console", "areal", areal.NAMES, areal_table),
    "areal, rewards of episodes": (
        "areal_console", "areal",
        {**{k: v for k, v in areal.NAMES.items() if v not in areal.INSTEAD.values()}, **areal.INSTEAD}, areal_table,
    ),
    "roll": ("roll_console", "roll", roll.NAMES, roll_line),
    "roll, bare": ("roll_console", "roll", roll.NAMES, roll_bare),
    "roll, other names": (
        "roll_console", "roll",
        {**{k: v for k, v in roll.NAMES.items() if v not in roll.INSTEAD.values()}, **roll.INSTEAD}, roll_line,
    ),
    "nemo-rl": (
        "nemo_rl_console", "nemo_rl", {key: nemo_rl.NAMES[key] for key in nemo_rl.LABELS.values()}, nemo_block
    ),
    "prime-rl trainer": ("prime_rl", "prime_rl", prime_rl.NAMES, prime),
    "prime-rl orchestrator": (
        "prime_rl", "prime_rl", {**ORCHESTRATOR, "eval/math/effective/solver/avg@4": "accuracy/val"}, prime
    ),
    "prime-rl trainer.log": ("prime_rl_console", "prime_rl", PRIME_TRAINER, prime_line),
    "prime-rl trainer.log of 2025": (
        "prime_rl_console", "prime_rl", PRIME_TRAINER, lambda step, n: prime_line(step, n, ":")
    ),
    "prime-rl orchestrator.log": ("prime_rl_console", "prime_rl", PRIME_ORCHESTRATOR, prime_line),
}  # fmt: skip
"""Format, trainer, names (theirs -> ours) and how a step is written, by kind of log."""


def log(kind: str, steps: int = 3, **changes: float) -> str:
    """A whole log of one kind; the numbers of its last step are those of `values`."""
    _, _, names, write = LOGS[kind]
    return "".join(write(step, {**values(names), **changes}) for step in range(1, steps + 1))


def any_log(kind: str) -> str:
    """One of `LOGS`, or of those with TRL's names."""
    if kind in LOGS:
        return log(kind)
    rows = [record("0.20", step) for step in (5, 10, 15)]
    if kind == "trl console":
        return trl_console(rows)
    return "".join((swift if kind == jsonl.SWIFT else llama_factory)(row["step"], row) for row in rows)


KINDS = (*LOGS, "trl console", jsonl.SWIFT, jsonl.LLAMA_FACTORY)
CONSOLES = tuple(
    kind for kind in KINDS if not any(word in kind for word in ("file", "prime", "swift", "llama")) or "log" in kind
)
