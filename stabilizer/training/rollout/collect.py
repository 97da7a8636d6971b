"""From prompts to scored episodes, for the training steps and for validation on held-out problems."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from stabilizer.training.advantages import silent_groups
from stabilizer.training.demonstrations import demonstrated
from stabilizer.training.environments.own import OwnEnvironment
from stabilizer.training.knobs import Knobs
from stabilizer.training.model import Policy
from stabilizer.training.ranks import ALONE, Ranks
from stabilizer.training.rollout.engine import Cut, Engine, Sampling
from stabilizer.training.rollout.episodes import Episodes
from stabilizer.training.rollout.rollouts import Rollouts, concat
from stabilizer.training.rollout.turns import Outcome, Played, Stops, cut_at, play
from stabilizer.training.settings import TrainConfig
from stabilizer.training.tasks import Problem, Score, Task

NO_REWARD = "the environment gave no reward, and there is no reward function"


def unobserved(phase: str) -> None:
    """Nobody watches the phases of this trainer."""


class Collector:
    """Generates answers to prompts and scores them; with an environment, in episodes of several turns."""

    def __init__(
        self,
        config: TrainConfig,
        task: Task,
        policy: Policy,
        engine: Engine,
        arithmetic: Callable[[], AbstractContextManager[None]],
        ranks: Ranks = ALONE,
    ):
        self._config = config
        self._task = task
        self._tokenizer = policy.tokenizer
        self._device = policy.model.device
        self._engine = engine
        self._arithmetic = arithmetic
        self._ranks = ranks
        self._environment = task.environment(config.search)
        self._own = OwnEnvironment(config.environment) if config.environment.use else None
        self._stops = Stops(config.rollout.stop, policy.tokenizer) if config.rollout.stop else None
        self._cut = Cut(config.rollout.top_k, config.rollout.top_p, config.rollout.min_p)
        self.on_phase: Callable[[str], object] = unobserved
        """Called when a step begins to generate and to score. Validation is one phase as a whole."""
        self.outages: Counter[str] = Counter()
        """Episodes whose environment failed so far, by reason."""

    def episodes(
        self,
        knobs: Knobs,
        problems: Callable[[int, int], list[Problem]],
        seed: Callable[[str], int],
        on_phase: Callable[[str], object] | None = None,
    ) -> Episodes:
        """Episodes of one step; with `resample`, from fresh prompts until enough groups can teach something.

        `problems(count, offset)` returns the next prompts, `seed(purpose)` the step's random numbers.
        """
        on_phase = on_phase or self.on_phase
        again = knobs.filter_groups == "resample" and knobs.group_size > 1
        draws = self._config.policy.resample_batches if again else 1
        parts: list[Episodes] = []
        greedy: list[Episodes] = []
        for draw in range(draws):
            fresh = problems(knobs.prompts, draw * knobs.prompts)
            sampling = Sampling(
                knobs.group_size,
                knobs.temperature,
                knobs.max_completion,
                seed(f"rollout {draw}" if draw else "rollout"),
                cut=self._cut,
            )
            answered = self._shown if self._config.stage == "sft" else self._answered
            parts.append(answered(fresh, sampling, on_phase))
            if knobs.advantage == "greedy":
                greedy.append(self._answered(fresh, Sampling(1, 0.0, knobs.max_completion), on_phase))
            if draw + 1 < draws and _with_signal(parts, knobs.group_size) >= knobs.prompts:
                break
        joined = self._joined(parts)
        return joined._replace(greedy=self._joined(greedy)) if greedy else joined

    def _joined(self, parts: list[Episodes]) -> Episodes:
        return Episodes(
            [problem for part in parts for problem in part.problems],
            concat([part.rollouts for part in parts], self._tokenizer.pad_token_id),
            [score for part in parts for score in part.scores],
            [outcome for part in parts for outcome in part.outcomes],
            sum(part.prompts_drawn for part in parts),
        )

    def solved(self, problems: list[Problem], sampling: Sampling) -> Tensor:
        """1 or 0 for each answer, those to one problem next to each other; NaN for an answer without a score."""
        scores = self._answered(problems, sampling).scores
        solved = [math.nan if score.failed else float(score.solved) for score in scores]
        return torch.tensor(solved, dtype=torch.float64)

    def _shown(self, problems: list[Problem], sampling: Sampling, on_phase: Callable[[str], object]) -> Episodes:
        """Demonstrations of the problems, each with reward 1."""
        on_phase("data")
        rollouts = demonstrated(
            problems, self._task.encode(problems, self._tokenizer), self._task, self._tokenizer, self._device,
            longest=sampling.max_completion, seed=sampling.seed,
        )  # fmt: skip
        return Episodes(problems, rollouts, [Score(1.0, True, {}) for _ in problems], [], len(problems))

    def _answered(
        self, problems: list[Problem], sampling: Sampling, on_phase: Callable[[str], object] = unobserved
    ) -> Episodes:
        on_phase("rollout")
        drawn, mine = len(problems), self._ranks.share(len(problems))
        written = self._written(problems[mine], sampling._replace(first=mine.start, whole=drawn))
        parts = [part for part in self._ranks.gather(written) if part is not None]
        rollouts = concat([part for part, _ in parts], self._tokenizer.pad_token_id)
        outcomes = [outcome for _, part in parts for outcome in part]
        problems = [problem for problem in problems for _ in range(sampling.group_size)]
        on_phase("reward")
        scored = _with_facts(problems, rollouts) if self._task.reads_generated else problems
        scores = self._ranks.from_lead(lambda: self._task.score_all(scored, rollouts.texts))
        scores = self._with_outcomes(scores, outcomes)
        return Episodes(problems, rollouts, scores, outcomes, drawn)

    def _with_outcomes(self, scores: list[Score], outcomes: list[Outcome]) -> list[Score]:
        """The scores of episodes: without the environment's answer there is none."""
        if self._own is not None:
            scores = [_with_reward(*both, self._config) for both in zip(scores, outcomes, strict=True)]
        scores = list(scores)
        for row, outcome in enumerate(outcomes):
            if outcome.failed:
                self.outages[outcome.failed] += 1
                none = dict.fromkeys(scores[row].components, math.nan)
                scores[row] = replace(
                    scores[row], reward=math.nan, solved=False, components=none, failed=outcome.failed
                )
        return scores

    def _written(self, problems: list[Problem], sampling: Sampling) -> tuple[Rollouts, list[Outcome]] | None:
        """The policy's answers, with their outcomes in an environment; None without a problem."""
        if not problems and self._environment is None and self._own is None:
            return None
        prompts = self._task.encode(problems, self._tokenizer)
        with self._arithmetic():
            if self._own is not None:
                return self._played(self._own, problems, prompts, sampling)
            if self._environment is None:
                return self._completed(prompts, sampling), []
            turns = self._config.search.max_turns
            return play(
                self._engine, prompts, self._environment, sampling, self._tokenizer, max_turns=turns, ranks=self._ranks
            )

    def _played(
        self, own: OwnEnvironment, problems: list[Problem], prompts: list[list[int]], sampling: Sampling
    ) -> tuple[Rollouts, list[Outcome]] | None:
        """Episodes in an environment of the user's own. A reply is a message of the chat, or plain text after one."""
        reply_text: Callable[[str, bool], str] = _unchanged
        if problems and problems[0].messages:
            reply_text = ChatReply(self._tokenizer, own.role, self._config.data.chat_template_kwargs)
        played = Played(own, [problem.columns for problem in problems], self._tokenizer, reply_text)
        turns = self._config.environment.max_turns
        return play(self._engine, prompts, played, sampling, self._tokenizer, max_turns=turns, ranks=self._ranks)

    def _completed(self, prompts: list[list[int]], sampling: Sampling) -> Rollouts:
        """Completions of one turn."""
        if self._stops is None:
            return self._engine.generate(prompts, sampling)
        stops = self._stops
        rollouts = self._engine.generate(prompts, sampling._replace(stop_ids=stops.ids, stop_texts=stops.longer))
        return cut_at(rollouts, stops, self._tokenizer.pad_token_id)


def _unchanged(text: str, ended: bool) -> str:
    return text


class ChatReply:
    """A reply as a chat template writes it between two turns of the assistant."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, role: str, more: Mapping[str, Any]):
        self._tokenizer, self._role, self._more = tokenizer, role, dict(more)

    def __call__(self, text: str, ended: bool) -> str:
        """The text after the assistant's turn; with its end token unless the turn `ended` with it."""
        before = [{"role": "user", "content": "."}, {"role": "assistant", "content": "."}]
        whole = self._rendered([*before, {"role": self._role, "content": text}], goes_on=True)
        begun, eos = self._rendered(before), str(self._tokenizer.eos_token)
        if not whole.startswith(begun.rstrip()):
            raise ValueError(
                f"environment.use: the chat template does not continue a chat by a message of the role {self._role!r};"
                " set `role` of the class to one that it knows"
            )
        turn_ends = begun.rfind(eos) if eos in begun else len(begun)
        return whole[turn_ends + (len(eos) if ended and eos in begun else 0) :]

    def _rendered(self, messages: list[dict[str, str]], *, goes_on: bool = False) -> str:
        return str(
            self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=goes_on, **self._more)
        )


def _with_reward(score: Score, outcome: Outcome, config: TrainConfig) -> Score:
    """The score with the reward of the environment added, which alone decides if there is no reward function."""
    alone = not config.reward.functions
    if outcome.reward is None:
        return replace(score, reward=math.nan, failed=NO_REWARD) if alone and not outcome.failed else score
    solved = outcome.reward >= config.reward.solved_at if alone else score.solved
    components = {**score.components, "environment": outcome.reward}
    return replace(score, reward=score.reward + outcome.reward, solved=solved, components=components)


def _with_facts(problems: list[Problem], rollouts: Rollouts) -> list[Problem]:
    """The problems with facts about their completions, under the names that reward functions use."""
    rows = zip(
        rollouts.completion_ids_BT.tolist(), rollouts.span_B.tolist(), rollouts.truncated_B.tolist(), strict=True
    )
    facts = [{"completion_ids": ids[:span], "finish_reason": "length" if cut else "stop"} for ids, span, cut in rows]
    return [replace(problem, generated=known) for problem, known in zip(problems, facts, strict=True)]


def _with_signal(parts: list[Episodes], group_size: int) -> int:
    """Groups whose rewards, if there are any, differ by more than rounding."""
    scores = [score for part in parts for score in part.scores]
    reward_GN = torch.tensor([score.reward for score in scores], dtype=torch.float64).view(-1, group_size)
    valid_GN = torch.tensor([not score.failed for score in scores]).view(-1, group_size)
    return int((~silent_groups(reward_GN, valid_GN)).sum())
