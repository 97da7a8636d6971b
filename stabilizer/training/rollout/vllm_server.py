"""vLLM servers, each with a copy of the weights, asked over HTTP. Each is started by the user:

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs \
        --generation-config vllm

The variable and the first option enable the routes for training. With the second, log-probabilities are those of the
distribution that is sampled from. New weights go through a folder that the servers can read, as a safetensors file:
nothing is pickled, and no group of processes is needed. A version numbers them, and every completion names the version
of the weights that wrote it.

A server that fails is asked again a few times and then left out; the others take over its work, and the next transfer
of weights asks it again. One that was restarted answers with another version: it gets the weights once more.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from time import sleep
from typing import Any, TypeVar
from urllib.error import HTTPError

from torch import Tensor

from stabilizer.training.http_json import HttpJson
from stabilizer.training.rollout.synced import Completion, Request
from stabilizer.training.settings import ServerConfig
from stabilizer.training.tensor_file import TensorFile

T = TypeVar("T")
START = (
    "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs"
    " --generation-config vllm"
)
PAUSE_S = 0.5
"""Seconds before a question is repeated for the first time; twice as long before each further time."""
REFUSED = range(400, 500)
"""HTTP codes of a question that will be refused again."""


class ServersLost(ConnectionError):
    """No server is left that answers."""


class _Odd(OSError):
    """A server answers, with something else than it should."""


class _Host:
    """One server."""

    def __init__(self, url: str, settings: ServerConfig):
        self._http = HttpJson(
            url, timeout_s=settings.timeout_s, key="rollout.server.urls", example="http://127.0.0.1:8000"
        )
        self._retries = settings.retries
        self.url = self._http.url
        self.lost = False
        self.checksum: object = None

    def ask(self, route: str, body: object = None) -> Any:
        """The answer, after repeated attempts; OSError if there is none. A server that is late is not asked again."""
        for attempt in range(self._retries + 1):
            try:
                return self._http.ask(route, body)
            except HTTPError as error:
                failure: OSError = error
                if error.code in REFUSED:
                    break
            except TimeoutError as error:
                failure = error
                break
            except (OSError, ValueError) as error:
                failure = error if isinstance(error, OSError) else _Odd(str(error))
            if self.lost or attempt == self._retries:
                break
            sleep(PAUSE_S * 2**attempt)
        raise failure

    def load(self, folder: Path, version: int) -> None:
        """Have it read the weights in a folder, and check that it has them."""
        self.ask("/pause?mode=wait", {})
        try:
            self.ask("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
            self.ask("/reset_prefix_cache", {})  # cached values of old weights are wrong
            self.ask("/update_weight_version", {"new_version": str(version)})
        finally:
            self.ask("/resume", {})
        if (found := self.version()) != version:
            raise _Odd(f"it has weights of version {found} after it was given version {version}")
        self.checksum = self.ask("/weight_checker", {"action": "checksum"})["checksums"]

    def version(self) -> int | None:
        """The version of its weights; None for a server that never got any."""
        return _number(self.ask("/weight_info")["weight_version"])

    def generate(self, prompt: Sequence[int], **sampling: Any) -> dict[str, Any]:
        """One completion of a prompt, and what else was asked for."""
        answer = self.ask("/inference/v1/generate", {"token_ids": list(prompt), "sampling_params": sampling})
        try:
            return {**answer, **answer["choices"][0]}
        except (TypeError, KeyError, IndexError):
            raise _Odd(f"its answer holds no completion: {str(answer)[:200]}") from None


class VllmServers:
    """A `Server` over one or more servers of vLLM with the same weights."""

    def __init__(self, settings: ServerConfig):
        self._hosts = [_Host(url, settings) for url in settings.urls]
        self._concurrency = settings.concurrency * len(self._hosts)
        self._folder = Path(tempfile.mkdtemp(prefix="weights-", dir=settings.folder or None))
        self._weights: Path | None = None
        self._renewing = Lock()
        self.version = 0
        self.failures: Counter[str] = Counter()
        """Servers that were left out, by reason."""
        try:
            limits = [self._described(host) for host in self._hosts]
        except BaseException:
            self.close()
            raise
        self.max_length = min(length for length, _ in limits)
        self.exact = all(precise for _, precise in limits)

    def _described(self, host: _Host) -> tuple[int, bool]:
        """(tokens of prompt and completion, whether it computes in float32); ValueError for an unsuitable server."""
        try:
            self.version = max(self.version, host.version() or 0)
            info = host.ask("/server_info?config_format=json")["vllm_config"]["model_config"]
            length = int(host.ask("/v1/models")["data"][0]["max_model_len"])
            mode, dtype = str(info["logprobs_mode"]), str(info["dtype"])
        except (OSError, KeyError, TypeError, IndexError) as error:
            raise ValueError(
                f"rollout.server.urls: {host.url} does not answer as a vLLM server for training ({error}); start it"
                f" with: {START}"
            ) from error
        if mode != "processed_logprobs":
            raise ValueError(
                f"rollout.server.urls: {host.url} gives log-probabilities of kind {mode!r}, before temperature and"
                f" sampling limits; start it with: {START}"
            )
        return length, dtype.endswith("float32")

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Give the weights to all servers, also to those that were lost; ServersLost if none takes them."""
        old, self._weights, self.version = self._weights, self._folder / f"version-{version}", version
        self._weights.mkdir(exist_ok=True)
        with (self._weights / "model.safetensors").open("wb") as file:
            for chunk in TensorFile(dict(weights)).chunks():
                file.write(chunk)
        with ThreadPoolExecutor(len(self._hosts)) as pool:
            list(pool.map(self._given, self._hosts))
        self._live()
        if old not in (None, self._weights):
            shutil.rmtree(old, ignore_errors=True)

    def _given(self, host: _Host) -> None:
        assert self._weights is not None
        try:
            host.load(self._weights, self.version)
            host.lost = False
        except (OSError, KeyError, TypeError) as error:
            self._lose(host, error)

    def _renew(self, host: _Host) -> None:
        """Give the weights once more to a server that was restarted, or lost them in another way."""
        with self._renewing:
            if host.version() != self.version:
                self._given(host)

    def _lose(self, host: _Host, error: Exception) -> None:
        if not host.lost:
            self.failures[f"{host.url}: {error or type(error).__name__}"] += 1
        host.lost = True

    def _live(self) -> list[_Host]:
        """The servers that answer. Those with other weights than most are left out."""
        kinds = [repr(host.checksum) for host in self._hosts if not host.lost]
        usual = max(kinds, key=kinds.count, default="")
        for host in self._hosts:
            if not host.lost and repr(host.checksum) != usual:
                self._lose(host, _Odd("its weights differ from those of the other servers (/weight_checker)"))
        if live := [host for host in self._hosts if not host.lost]:
            return live
        raise ServersLost(
            "no vLLM server is left: " + "; ".join(self.failures) + ". Start the servers again and resume the run from"
            " its newest checkpoint"
        )

    def _from_any(self, number: int, work: Callable[[_Host], T]) -> T:
        """The result of work on one of the servers; a question of another number goes to another server."""
        while True:
            live = self._live()
            host = live[number % len(live)]
            try:
                return work(host)
            except HTTPError as error:
                if error.code in REFUSED:
                    raise ValueError(f"{host.url} refuses a prompt: {error.msg}") from error
                self._lose(host, error)
            except (OSError, KeyError, TypeError, IndexError) as error:
                self._lose(host, error)

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of given tokens; each sequence is scored by another server."""
        return [self._from_any(number, partial(_scores, ids)) for number, ids in enumerate(sequences)]

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion for each request, divided between the servers."""
        with ThreadPoolExecutor(self._concurrency) as pool:
            return list(pool.map(self._complete, range(len(requests)), requests))

    def _complete(self, number: int, request: Request) -> Completion:
        def work(host: _Host) -> Completion:
            completion = _completion(host, request, self.version)
            if completion.version == self.version:
                return completion
            self._renew(host)
            completion = _completion(host, request, self.version)
            if completion.version != self.version:
                raise _Odd(f"it generates with weights of version {completion.version}, not {self.version}")
            return completion

        return self._from_any(number, work)

    def close(self) -> None:
        """Delete the weights that were handed over; the servers stay."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _scores(ids: Sequence[int], host: _Host) -> list[float]:
    answer = host.generate(ids, temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
    places = answer["prompt_logprobs"][1:]
    return [float(place[str(token)]["logprob"]) for place, token in zip(places, ids[1:], strict=True)]


def _completion(host: _Host, request: Request, current: int) -> Completion:
    answer = host.generate(
        request.prompt,
        **request.sampling(),
    )
    spans = answer["weight_versions"] or ()
    versions = [_number(span["version"]) for span in spans]
    logps = [float(place["logprob"]) for place in answer["logprobs"]["content"]]
    return Completion(list(answer["token_ids"]), logps, min((v or 0 for v in versions), default=current))


def _number(version: object) -> int | None:
    return int(str(version)) if str(version).isdecimal() else None
