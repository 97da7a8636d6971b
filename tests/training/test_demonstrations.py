"""Supervised fine-tuning in the same loop: it is cross-entropy, on the tokens of the demonstrations alone."""

import argparse
import json

import pytest
import torch
from torch.nn.functional import cross_entropy

from stabilizer.commands.train import add_arguments
from stabilizer.core.metrics import is_known
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer
from stabilizer.training.model import build_model
from tests.training.conftest import SMALL
from tests.training.data.conftest import character_tokenizer


def sft(task, *overrides, path):
    chosen = (*SMALL, "stage=sft", "rollout.group_size=1", "rollout.max_completion=48", *overrides)
    return Trainer(load_config(task, chosen), checkpoints=path)


def next_problems(run):
    return run.task.training(2, seed=0, salt=0, cursor=0)


def first_batch(run):
    """What the next step learns from, and its metrics."""
    seen, update = [], run.learner.update

    def noted(step, batch, *rest, **options):
        seen.append(batch)
        return update(step, batch, *rest, **options)

    run.learner.update = noted
    metrics = run.train_step().metrics
    return seen[0], metrics


def cross_entropy_by_hand(run, batch):
    """The mean over the tokens that are learned from, by the plain model, before its update."""
    rollouts = batch.rollouts
    ids = torch.cat([rollouts.prompt_ids_BP, rollouts.completion_ids_BT], 1)
    losses = []
    for row in range(len(ids)):
        real = torch.cat([rollouts.prompt_mask_BP[row], torch.ones_like(rollouts.mask_BT[row])])
        mine = torch.cat([torch.zeros_like(rollouts.prompt_mask_BP[row]), rollouts.mask_BT[row]])[real]
        text = ids[row][real]
        logits = run.policy.model(input_ids=text[None, :-1]).logits[0]
        losses.append(cross_entropy(logits, text[1:], reduction="none")[mine[1:]])
    return torch.cat(losses).mean().item()


@pytest.mark.parametrize("task", ["sorting", "search"])
def test_the_loss_is_the_cross_entropy_of_what_the_policy_writes(tmp_path, task):
    run = sft(task, "optim.micro_batch=3", path=tmp_path)
    twin = sft(task, path=tmp_path / "twin")
    batch, metrics = first_batch(run)
    with torch.no_grad():
        assert metrics["policy/loss"] == pytest.approx(cross_entropy_by_hand(twin, batch), rel=1e-4)
    texts = run.policy.tokenizer.batch_decode(batch.rollouts.completion_ids_BT)
    assert all("<eos>" in text for text in texts)
    if task == "search":  # retrieved text is in the row, and nothing is learned from it
        whole, own = batch.rollouts.span_B.sum(), batch.mask_BT.sum()
        assert 0 < int(own) < int(whole)


def test_it_learns_its_demonstrations_and_reports_no_rewards(tmp_path):
    run = sft("sorting", "optim.lr=3e-3", "validation.every=15", "rollout.prompts=16", path=tmp_path)
    steps = [run.train_step().metrics for _ in range(15)]
    assert steps[-1]["policy/loss"] < 0.95 * steps[0]["policy/loss"] and "accuracy/val" in steps[-1]
    names = {name for step in steps for name in step}
    assert all(is_known(name) for name in names)
    assert not any(name.startswith(("reward/", "rollout/", "policy/kl", "policy/ratio")) for name in names)


def test_demonstrations_come_from_a_column_of_text_or_messages(tmp_path):
    rows = [
        {"prompt": "1+1=", "answer": "2", "shown": "two"},
        {"prompt": "2+2=", "answer": "4", "shown": [{"role": "assistant", "content": "four"}]},
    ]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
    common = (f"data.path={tmp_path}/d.jsonl", "model=builtin:addition", "data.held_out=0", "rollout.prompts=2")
    answers = sft(None, *common, path=tmp_path / "a")
    assert answers.config.optim.lr == 4e-4, "SMALL sets it"
    assert {answers.task.demonstration(problem, 0) for problem in next_problems(answers)} == {"2", "4"}
    assert answers.validate() == {}, "without reward functions there is nothing to grade"
    shown = sft(None, *common, "data.completion_column=shown", "rollout.max_completion=3", path=tmp_path / "b")
    assert {shown.task.demonstration(problem, 0) for problem in next_problems(shown)} == {"two", "four"}
    batch, _ = first_batch(shown)
    assert batch.mask_BT.sum().item() == 6, "cut at three tokens"
    with pytest.raises(ValueError, match="column 'gone' .data.completion_column. holds null for the prompt"):
        sft(None, *common, "data.completion_column=gone", path=tmp_path / "c").train_step()


def test_a_chat_is_demonstrated_after_its_template(tmp_path):
    tokenizer = character_tokenizer(chat=True)
    build_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    row = {"prompt": [{"role": "user", "content": "hi"}], "answer": "yo"}
    (tmp_path / "d.jsonl").write_text(json.dumps(row))
    run = sft(None, f"data.path={tmp_path}/d.jsonl", f"model={tmp_path}/model", "data.held_out=0",
              "rollout.prompts=1", path=tmp_path / "c")  # fmt: skip
    batch, _ = first_batch(run)
    text = tokenizer.decode(torch.cat([batch.rollouts.prompt_ids_BP, batch.rollouts.completion_ids_BT], 1)[0])
    assert text.replace("\n", "") == "<bos><|im_start|>userhi<|im_end|><|im_start|>assistantyo<|im_end|>"


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("rollout.group_size=4", "rollout.group_size = 4: must be 1 in the stage `sft`"),
        ("policy.surrogate=clip", "policy.surrogate = 'clip': must be reinforce, with policy.advantage=none"),
        ("rollout.engine=vllm", "must be builtin in the stage `sft`"),
    ],
)
def test_settings_that_would_be_another_loss_are_refused(override, why):
    with pytest.raises(ValueError, match=why):
        load_config("sorting", [override], stage="sft")


def test_the_command_has_the_stage():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert parser.parse_args(["sorting", "--stage", "sft"]).stage == "sft"
    assert load_config("sorting", stage="sft").rollout.group_size == 1
    assert load_config("sorting").stage == "rl"
