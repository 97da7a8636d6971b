"""Episodes of several turns: the policy writes, an environment answers, and only the policy's text is learned from.

A turn ends after the first text that calls the environment or ends the episode; any text generated beyond it did not
see the reply and is discarded. Replies are added to the context with `mask_BT` False and a log-probability of 0. Each
later turn is generated from all tokens so far, unchanged: nothing is decoded and encoded again, so the recorded
log-probabilities are those of exactly the row that is learned from.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from stabilizer.training.environments import Environment, Reply
from stabilizer.training.environments.own import OwnEnvironment, Step
from stabilizer.training.ranks import ALONE, Ranks
from stabilizer.training.rollout.engine import Engine, Sampling
from stabilizer.training.rollout.rollouts import Rollouts, pad_left
from stabilizer.training.tasks import random_bits


class Outcome(NamedTuple):
    """The outcome of one episode."""

    turns: int
    """Turns of the policy."""
    searches: int
    """Calls that were carried out."""
    invalid: int
    """Invalid calls, which got a reply that says so."""
    failed: str
    """Why the environment could not answer, '' if it did not fail."""
    reward: float | None = None
    """The sum of the rewards that the environment gave; None if it gave none."""


@dataclass(slots=True)
class _Episode:
    """One row during its generation."""

    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    chosen: list[bool] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """Turns and replies, in order."""
    turns: int = 0
    replies: list[Reply] = field(default_factory=list)
    calling: bool = False
    """Whether the last turn ended with a call that has no reply yet."""
    cut: bool = False
    """Whether the last turn ended because there was no room left."""
    broken: str = ""
    """Why an environment of the user's own failed."""
    reward: float | None = None

    @property
    def failed(self) -> str:
        return self.broken or (self.replies[-1].failed if self.replies else "")

    @property
    def written(self) -> int:
        return sum(self.chosen)

    def extend(self, ids: list[int], logps: list[float], text: str, *, chosen: bool) -> None:
        self.ids += ids
        self.chosen += [chosen] * len(ids)
        self.logps += logps
        self.texts.append(text)

    def outcome(self) -> Outcome:
        invalid = sum(not reply.valid for reply in self.replies)
        lost = bool(self.replies and self.replies[-1].failed)
        return Outcome(self.turns, len(self.replies) - invalid - lost, invalid, self.failed, self.reward)


class Played:
    """An environment of the user's own over the episodes of one call of `play`.

    It is asked after every turn, so it also sees a last or truncated one, and may reward it.
    """

    ends = ()

    def __init__(
        self,
        environment: OwnEnvironment,
        columns: Sequence[Mapping[str, Any]],
        tokenizer: PreTrainedTokenizerBase,
        reply_text: Callable[[str, bool], str],
    ):
        self.calls = environment.calls
        self._environment, self._columns, self._tokenizer = environment, columns, tokenizer
        self._reply_text = reply_text
        self._number: dict[int, int] = {}

    def begin(self, episodes: Sequence[_Episode]) -> None:
        """Begin all episodes; `columns` are those of their prompts, in order."""
        size = len(episodes) // max(len(self._columns), 1)
        begun = self._environment.begin([row for row in self._columns for _ in range(size)])
        for number, (episode, why) in enumerate(zip(episodes, begun, strict=True)):
            self._number[id(episode)] = number
            episode.broken = why

    def stepped(
        self, playing: Sequence[_Episode], max_completion: int, max_length: int | None, *, last: bool
    ) -> list[_Episode]:
        """Let the environment answer a turn of these episodes; returns those that go on."""
        asked = [episode for episode in playing if not episode.broken]
        turns = [episode.texts[-1] for episode in asked]
        steps = self._environment.step([self._number[id(e)] for e in asked], turns) if asked else []
        room = max_length or math.inf
        return [
            episode
            for episode, step in zip(asked, steps, strict=True)
            if self._goes_on(episode, step, room, ends=last or episode.cut or episode.written >= max_completion)
        ]

    def _goes_on(self, episode: _Episode, step: Step, room: float, *, ends: bool) -> bool:
        """Note an answer and append its reply; whether the episode goes on."""
        episode.broken, episode.calling = step.failed, False
        if step.reward is not None:
            episode.reward = (episode.reward or 0.0) + step.reward
        if step.done or step.failed:
            return False
        text = self._reply_text(step.text, episode.ids[-1] == self._tokenizer.eos_token_id)
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if ends or len(episode.prompt + episode.ids + ids) >= room:
            episode.cut = True  # the environment would have gone on
            return False
        episode.replies.append(Reply(step.text))
        episode.extend(ids, [0.0] * len(ids), text, chosen=False)
        return True


def play(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    environment: Environment | Played,
    sampling: Sampling,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_turns: int,
    ranks: Ranks = ALONE,
) -> tuple[Rollouts, list[Outcome]] | None:
    """`sampling.group_size` episodes of each prompt, those of one prompt next to each other; None without a prompt.

    An episode ends at the model's end token, at a text in `environment.ends`, when the environment fails, after
    `max_turns` turns, when the policy has written `sampling.max_completion` tokens, and when the engine has no room for
    another token. In the last three cases it counts as truncated. An environment of the user's own decides itself
    whether an end token ends the episode. Replies use the engine's room, but not the policy's limit; a reply without
    room for a token after it is left out. A rank that has finished its episodes takes part in the others' turns, so
    that random numbers do not depend on the number of ranks.
    """
    stops = Stops((*environment.calls, *environment.ends), tokenizer)
    episodes = [_Episode(list(prompt)) for prompt in prompts for _ in range(sampling.group_size)]
    playing, device = episodes, torch.device("cpu")
    if isinstance(environment, Played):
        environment.begin(episodes)
    for turn in range(max_turns):
        first, whole = ranks.place(len(playing) if turn else len(prompts))
        if not whole:
            break
        if not playing:
            continue
        room = max(sampling.max_completion - episode.written for episode in playing)
        seed = random_bits(sampling.seed, "turn", turn) >> 1
        now = sampling._replace(max_completion=room, seed=seed, stop_ids=stops.ids, first=first, whole=whole)
        if turn == 0:
            written = engine.generate(prompts, now)
            device = written.mask_BT.device
        else:
            written = engine.generate([e.prompt + e.ids for e in playing], now._replace(group_size=1))
        _add_turns(playing, written, sampling.max_completion, stops, environment.calls)
        last = turn + 1 == max_turns
        if isinstance(environment, Played):
            playing = environment.stepped(playing, sampling.max_completion, engine.max_length, last=last)
            continue
        waiting = [e for e in playing if e.calling and e.written < sampling.max_completion]
        playing = [] if last else _answered(waiting, environment, tokenizer, engine.max_length)
    if not episodes:
        return None
    rollouts = _assemble(episodes, prompts, sampling.group_size, tokenizer.pad_token_id, device)
    return rollouts, [episode.outcome() for episode in episodes]


class Stops:
    """Finds where a turn ends."""

    def __init__(self, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase):
        self._texts, self._tokenizer = texts, tokenizer
        encoded = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        single = [len(ids) == 1 and ids[0] != tokenizer.unk_token_id for ids in encoded]
        self.ids = tuple(ids[0] for ids, one in zip(encoded, single, strict=True) if one)
        """Texts that are one token, at which an engine can stop by itself."""
        self.longer = tuple(text for text, one in zip(texts, single, strict=True) if not one)

    def decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def found(self, text: str) -> bool:
        return any(stop in text for stop in self._texts)

    def before(self, text: str) -> str:
        """The text before the first stop."""
        return text[: min(text.find(stop) for stop in self._texts if stop in text)]

    def end(self, ids: list[int]) -> int:
        """The shortest prefix of tokens that contains a stop. The last token may contain more text: tokens are not
        split."""
        return 1 + bisect_left(range(1, len(ids)), True, key=lambda n: self.found(self.decode(ids[:n])))


def cut_at(rollouts: Rollouts, stops: Stops, pad: int) -> Rollouts:
    """Completions that end with the first stop in their text. Their text, but not their tokens, ends before it."""
    device, width = rollouts.mask_BT.device, rollouts.completion_ids_BT.shape[1]
    lengths, texts, ended = rollouts.length_B.tolist(), list(rollouts.texts), []
    for row, (ids, length) in enumerate(zip(rollouts.completion_ids_BT.tolist(), lengths, strict=True)):
        text = stops.decode(ids[:length])
        ended.append(stops.found(text))
        if ended[-1]:
            lengths[row] = stops.end(ids[:length])
            texts[row] = stops.before(text)
    length_B = torch.tensor(lengths, device=device)
    beyond_BT = torch.arange(width, device=device)[None] >= length_B[:, None]
    entropy_BT = rollouts.entropy_BT
    return replace(
        rollouts,
        completion_ids_BT=rollouts.completion_ids_BT.masked_fill(beyond_BT, pad),
        mask_BT=rollouts.mask_BT & ~beyond_BT,
        logp_BT=rollouts.logp_BT.masked_fill(beyond_BT, 0.0),
        entropy_BT=None if entropy_BT is None else entropy_BT.masked_fill(beyond_BT, 0.0),
        length_B=length_B,
        span_B=length_B,
        truncated_B=rollouts.truncated_B & ~torch.tensor(ended, device=device),
        texts=texts,
    )


def _add_turns(
    playing: list[_Episode], written: Rollouts, max_completion: int, stops: Stops, calls: Sequence[str]
) -> None:
    rows = zip(
        playing,
        written.completion_ids_BT.tolist(),
        written.logp_BT.tolist(),
        written.length_B.tolist(),
        written.truncated_B.tolist(),
        strict=True,
    )
    for episode, ids, logps, length, truncated in rows:
        count = min(length, max_completion - episode.written)
        truncated |= count < length
        text = stops.decode(ids[:count])
        if stopped := stops.found(text):
            count = stops.end(ids[:count])
            text = stops.decode(ids[:count])
        elif not truncated:  # the model's end token, which is no text
            text = stops.decode(ids[: count - 1])
        episode.extend(ids[:count], logps[:count], text, chosen=True)
        episode.turns += 1
        episode.calling = stopped and any(call in text for call in calls)
        episode.cut = truncated and not stopped


def _answered(
    waiting: list[_Episode], environment: Environment, tokenizer: PreTrainedTokenizerBase, max_length: int | None
) -> list[_Episode]:
    """Let the environment answer; returns the episodes that go on."""
    if waiting:
        _add_replies(waiting, environment.respond([e.texts[-1] for e in waiting]), tokenizer, max_length)
    return [e for e in waiting if not e.calling and not e.failed]


def _add_replies(
    calling: list[_Episode], replies: list[Reply], tokenizer: PreTrainedTokenizerBase, max_length: int | None
) -> None:
    """Add a reply; an episode without room for its reply and a further token keeps waiting."""
    for episode, reply in zip(calling, replies, strict=True):
        ids = [] if reply.failed else tokenizer(reply.text, add_special_tokens=False)["input_ids"]
        if not reply.failed and max_length and len(episode.prompt + episode.ids + ids) >= max_length:
            continue
        episode.calling = False
        episode.replies.append(reply)
        if not reply.failed:
            episode.extend(ids, [0.0] * len(ids), reply.text, chosen=False)


def _assemble(
    episodes: list[_Episode], prompts: Sequence[Sequence[int]], group_size: int, pad: int, device: torch.device
) -> Rollouts:
    prompt_ids, prompt_mask = pad_left(prompts, pad, device)
    width = max(len(episode.ids) for episode in episodes)

    def block(rows: list[list[Any]], filler: float) -> torch.Tensor:
        return torch.tensor([row + [filler] * (width - len(row)) for row in rows], device=device)

    mask_BT = block([e.chosen for e in episodes], False)
    return Rollouts(
        prompt_ids_BP=prompt_ids.repeat_interleave(group_size, 0),
        prompt_mask_BP=prompt_mask.repeat_interleave(group_size, 0),
        completion_ids_BT=block([e.ids for e in episodes], pad),
        mask_BT=mask_BT,
        logp_BT=block([e.logps for e in episodes], 0.0),
        length_B=mask_BT.sum(1),
        span_B=torch.tensor([len(e.ids) for e in episodes], device=device),
        truncated_B=torch.tensor([e.cut or e.calling for e in episodes], device=device),
        texts=["".join(e.texts) for e in episodes],
        group_size=group_size,
    )
