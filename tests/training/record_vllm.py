"""Records what vLLM answers in one training step: `python -m tests.training.record_vllm`, where vLLM is installed.

The default test suite replays it, so that the interface is tested against vLLM's own words where vLLM is not installed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch

from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer
from stabilizer.training.rollout import vllm_engine
from tests.training.conftest import SMALL
from tests.training.servers import RECORDED, RECORDINGS

REAL = vllm_engine.InProcessVllm


class Recorder:
    """A server that writes down what passes through it."""

    def __init__(self, *args):
        self._server = REAL(*args)
        self.max_length, self.exact = self._server.max_length, self._server.exact
        self.version, self.failures = self._server.version, self._server.failures
        self.scored, self.completed = [], []

    def load(self, weights, version):
        self._server.load(weights, version)

    def score(self, sequences):
        self.scored.append((sequences, self._server.score(sequences)))
        return self.scored[-1][1]

    def complete(self, requests):
        self.completed.append((requests, self._server.complete(requests)))
        return self.completed[-1][1]

    def close(self):
        self._server.close()


def record(dtype: str) -> None:
    """One step of the small sorting run, written to `recordings/vllm-<dtype>.json`."""
    import vllm

    config = load_config("sorting", [*SMALL, *RECORDED, f"rollout.vllm.dtype={dtype}"])
    with tempfile.TemporaryDirectory() as folder:
        run = Trainer(config, checkpoints=Path(folder))
        metrics = run.train_step().metrics
    recorder = run.engine._server
    (probe, scores), (requests, completions) = recorder.scored[0], recorder.completed[0]
    run.engine.close()
    content = {
        "made_by": f"vllm {vllm.__version__}, torch {torch.__version__}, {dtype}",
        "probe": probe,
        "scores": scores,
        "requests": requests,
        "completions": completions,
    }
    RECORDINGS.mkdir(exist_ok=True)
    lines = ",\n".join(f" {json.dumps(key)}: {_rows(value)}" for key, value in content.items())
    (RECORDINGS / f"vllm-{dtype}.json").write_text(f"{{\n{lines}\n}}\n")
    print(f"{dtype}: mismatch {metrics['policy/mismatch_kl']:.3g} nats/token")


def _rows(value: object) -> str:
    value = json.loads(json.dumps(value), parse_float=lambda text: round(float(text), 7))
    if isinstance(value, list):
        return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"
    return json.dumps(value)


if __name__ == "__main__":
    vllm_engine.InProcessVllm = Recorder
    for name in sys.argv[1:] or ("float32", "bfloat16"):
        record(name)
