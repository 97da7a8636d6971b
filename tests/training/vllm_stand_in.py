"""A stand-in for `vllm serve` in a thread: the routes that training uses, over a copy of the model, with faults."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from stabilizer.training.model import Policy
from stabilizer.training.rollout.engine import Cut
from stabilizer.training.rollout.synced import Request
from tests.training.servers import CopyServer


class StandIn(ThreadingHTTPServer):
    """Answers as vLLM does. What it does wrong is set by its attributes."""

    daemon_threads = True
    request_queue_size = 512  # as many connections may wait

    def __init__(self, policy: Policy):
        super().__init__(("127.0.0.1", 0), _Handler)
        self._policy = policy
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.asked: list[str] = []
        self.fails: dict[str, int] = {}
        """Route -> how many further questions are answered with an error of the server."""
        self.hangs = False
        """Whether completions never end."""
        self.delay_s = 0.0
        """Seconds that every completion takes; all of them at the same time."""
        self.log: list[str] = []
        """Routes in order, with `begins` and `ends` for each completion."""
        self.closing = threading.Event()
        self.keeps_old_weights = False
        """Whether new weights are accepted and lost, while their version is taken."""
        self.mode, self.dtype = "processed_logprobs", "torch.float32"
        self.restart()

    def restart(self) -> None:
        """Start again with the first weights, as after a crash."""
        self.copy, self.version = CopyServer(self._policy), "default"

    def answer(self, route: str, body: dict[str, Any]) -> object:
        route = route.partition("?")[0]
        self.asked.append(route)
        if self.fails.get(route, 0) > 0:
            self.fails[route] -= 1
            raise RuntimeError("out of memory")
        if route == "/inference/v1/generate" and self.hangs:
            self.closing.wait()
        return getattr(self, f"_{route.strip('/').replace('/', '_')}")(body)

    def _server_info(self, body: dict[str, Any]) -> object:
        return {"vllm_config": {"model_config": {"logprobs_mode": self.mode, "dtype": self.dtype}}}

    def _v1_models(self, body: dict[str, Any]) -> object:
        return {"data": [{"id": "model", "max_model_len": self.copy.max_length}]}

    def _weight_info(self, body: dict[str, Any]) -> object:
        return {"weight_version": self.version}

    def _pause(self, body: dict[str, Any]) -> object:
        return {"status": "paused"}

    def _resume(self, body: dict[str, Any]) -> object:
        return {"status": "resumed"}

    def _reset_prefix_cache(self, body: dict[str, Any]) -> object:
        return {"success": True}

    def _update_weight_version(self, body: dict[str, Any]) -> object:
        self.version = body["new_version"]
        return {"success": True, "new_version": self.version}

    def _collective_rpc(self, body: dict[str, Any]) -> object:
        assert body["method"] == "reload_weights"
        (path,) = Path(body["kwargs"]["weights_path"]).glob("*.safetensors")
        if not self.keeps_old_weights:
            self.copy.load(load_file(path).items(), 0)
        return {"results": [None]}

    def _weight_checker(self, body: dict[str, Any]) -> object:
        sums = {name: _sum(p) for name, p in self.copy.copy.model.named_parameters()}
        return {"checksums": sums}

    def _inference_v1_generate(self, body: dict[str, Any]) -> object:
        ids, asked = body["token_ids"], body["sampling_params"]
        choice: dict[str, Any] = {"weight_versions": [], "token_ids": [0], "logprobs": None}
        answer: dict[str, Any] = {"choices": [choice], "prompt_logprobs": None}
        if "prompt_logprobs" in asked:
            (scores,) = self.copy.score([ids])
            places = zip(ids[1:], scores, strict=True)
            return answer | {"prompt_logprobs": [None, *({str(t): {"logprob": s}} for t, s in places)]}
        stops = tuple(asked["stop_token_ids"])
        cut = Cut(asked["top_k"], asked["top_p"], asked["min_p"])
        (made,) = self.copy.complete(
            [Request(ids, asked["seed"], asked["temperature"], asked["max_tokens"], stops, cut)]
        )
        spans = [{"version": self.version, "start": 0, "end": len(made.ids)}]
        content = [{"token_id": t, "logprob": p} for t, p in zip(made.ids, made.logps, strict=True)]
        choice |= {"token_ids": made.ids, "logprobs": {"content": content}, "weight_versions": spans}
        return answer


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def _answered(self, body: dict[str, Any]) -> None:
        completes = "prompt_logprobs" not in body.get("sampling_params", {"prompt_logprobs": 0})
        self.server.log.append("begins" if completes else self.path)
        if completes:
            time.sleep(self.server.delay_s)
        try:
            if self.server.hangs:
                code, answer = 200, self.server.answer(self.path, body)
            else:
                with self.server.lock:
                    code, answer = 200, self.server.answer(self.path, body)
        except (AttributeError, AssertionError):
            code, answer = 404, {"detail": "Not Found"}
        except Exception as error:
            code, answer = 500, {"error": str(error)}
        if completes:
            self.server.log.append("ends")
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self._answered({})

    def do_POST(self) -> None:
        self._answered(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, *args: object) -> None:
        pass


def _sum(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()


@contextmanager
def standing_in(policy: Policy):
    """A stand-in that serves until the end."""
    server = StandIn(policy)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
