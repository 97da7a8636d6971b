"""Event files: what tensorboardX wrote, and every way in which a file can be damaged."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from stabilizer.formats import tensorboard
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load
from tests.trainers.event_files import VERSION, event, frame, log, scalar, tensor

SAMPLE = Path(__file__).parent / "tool_samples" / "events.out.tfevents.1700000000.small"
ROWS = [
    (step, {"train/reward": step / 8, "train/kl": 0.25, "train/completions/mean_length": 64.0}) for step in range(40)
]


def write(folder: Path, data: bytes, name: str = "events.out.tfevents.1700000000.host") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


def test_a_file_of_tensorboardx_is_read_in_trls_names() -> None:
    run = load(SAMPLE)
    assert (run.source.format, run.source.trainer, run.source.steps) == ("tensorboard", "trl", 12)
    view = run.history.view()
    assert view.series("reward/mean").values == pytest.approx([0.4 + step / 100 for step in range(1, 13)])
    assert view.latest("policy/kl_ref") == pytest.approx(0.012)
    loss = view.series("policy/loss")
    assert np.flatnonzero(np.isnan(loss.values)).tolist() == [2] and loss.steps[2] == 3  # NaN is evidence and survives
    assert any("1 values that are not scalars" in note for note in run.source.notes)  # the add_text


def test_values_one_an_event_or_all_in_one_are_the_same_log(tmp_path: Path) -> None:
    one = load(write(tmp_path / "a", log(ROWS))).history
    all_in_one = load(write(tmp_path / "b", log(ROWS, together=True))).history
    assert one.names() and set(one.names()) == set(all_in_one.names())
    for name in one.names():
        assert one.view().series(name).values.tolist() == all_in_one.view().series(name).values.tolist()


def test_tensors_of_one_number_count_and_larger_ones_do_not(tmp_path: Path) -> None:
    data = VERSION + event(1, [tensor("reward", 0.5), tensor("histogram", 1.0, 3), scalar("kl", 0.25)])
    points = tensorboard.scalars(write(tmp_path, data))
    found = dict(zip([points.tags[k] for k in points.tag], points.value.tolist(), strict=True))
    assert found == {"reward": 0.5, "kl": 0.25} and points.other == 1


@pytest.mark.parametrize("step", [0, 1, 127, 128, 2**31, 2**53 - 1])
def test_steps_of_any_size(tmp_path: Path, step: int) -> None:
    assert tensorboard.columns(write(tmp_path, log([(step, {"a": 1.0})])))["a"].steps.tolist() == [step]


def test_events_of_every_layout_are_read_in_their_order(tmp_path: Path) -> None:
    rng = random.Random(0)
    tags = ["a", "train/kl", "train/reward", "x" * 60, "y" * 100, "z" * 140, *(f"t{number}" for number in range(300))]
    steps = [0, 1, 127, 128, 300, 20_000, 3_000_000, 2**40]
    for _ in range(60):
        known = tags[: rng.choice((3, 8, len(tags)))]
        rows = [
            (
                rng.choice(steps),
                [(rng.choice(known), rng.choice((0.5, float(place)))) for _ in range(rng.choice((1, 1, 1, 2, 5)))],
            )
            for place in range(rng.randrange(80))
        ]
        kinds = [rng.choice((scalar, scalar, scalar, tensor)) for _ in rows]
        data = b"".join(
            event(step, [kind(*item) for item in row]) for (step, row), kind in zip(rows, kinds, strict=True)
        )
        points = tensorboard.scalars(write(tmp_path, VERSION + data))
        found = zip(points.step.tolist(), [points.tags[k] for k in points.tag], points.value.tolist(), strict=True)
        assert list(found) == [(step, *item) for step, row in rows for item in row]
        assert points.tags == list(dict.fromkeys(item[0] for _, row in rows for item in row))


def test_a_nan_of_any_bits_is_a_nan(tmp_path: Path) -> None:
    hurt = [scalar("a", 1.0)[:-4] + bits for bits in (b"\x01\0\xa0\x7f", b"\xff\xff\xff\xff")]
    points = tensorboard.scalars(write(tmp_path, VERSION + event(1, hurt[:1]) + event(1, hurt)))
    assert np.isnan(points.value).all() and len(points.value) == 3


def test_every_prefix_of_a_file_is_a_prefix_of_the_run(tmp_path: Path) -> None:
    data = log(ROWS[:6])
    whole = tensorboard.columns(write(tmp_path, data))
    for length in range(len(VERSION) + 1, len(data), 7):
        points = tensorboard.scalars(path := write(tmp_path, data[:length]))
        assert points.damaged <= 1
        for tag, series in tensorboard.columns(path).items() if len(points.step) else ():
            assert series.values.tolist() == whole[tag].values[: len(series)].tolist()


def test_reading_goes_on_behind_a_damaged_frame(tmp_path: Path) -> None:
    first, middle, last = (log(ROWS[a:b]) for a, b in ((0, 3), (3, 4), (4, 8)))
    for place in range(0, len(middle), 11):
        hurt = bytearray(middle)
        hurt[place] ^= 0xFF
        run = load(write(tmp_path, first + bytes(hurt) + last))
        steps = run.history.view().series("rollout/length_mean").steps
        assert {0, 1, 2} <= set(steps.tolist()) and 7 in steps


def test_noise_is_refused_or_read_but_never_raises_anything_else(tmp_path: Path) -> None:
    rng = random.Random(0)
    data = log(ROWS[:4])
    for _ in range(300):
        hurt = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            hurt[rng.randrange(len(hurt))] = rng.randrange(256)
        try:
            load(write(tmp_path, bytes(hurt)), format="tensorboard")
        except RunError as error:
            assert str(tmp_path) in str(error)


def test_files_of_one_folder_are_one_log_and_a_step_that_goes_back_is_a_restart(tmp_path: Path) -> None:
    write(tmp_path, log(ROWS[:20]), "events.out.tfevents.1700000000.host.1.0")
    write(tmp_path, log(ROWS[10:30]), "events.out.tfevents.1700009999.host.2.0")
    run = load(tmp_path)
    assert len(run.source.files) == 2 and sorted(run.histories) == [0, 1]
    assert run.histories[0].view().series("reward/mean").steps.tolist() == list(range(20))
    assert run.history.view().series("reward/mean").steps.tolist() == list(range(30))


def test_a_late_evaluation_at_an_earlier_step_is_no_restart(tmp_path: Path) -> None:
    rows = [*ROWS[:10], (5, {"eval/reward": 0.5}), *ROWS[10:20], (15, {"eval/reward": 0.6})]
    run = load(write(tmp_path, log(rows)))
    assert list(run.histories) == [0]
    assert run.history.view().series("trl/eval_reward").steps.tolist() == [5, 15]


def test_of_several_folders_the_largest_is_read_and_a_note_names_the_others(tmp_path: Path) -> None:
    write(tmp_path / "runs/long", log(ROWS))
    write(tmp_path / "runs/short", log(ROWS[:3]))
    run = load(tmp_path)
    assert run.source.steps == 40 and any("runs/short" in note for note in run.source.notes)


def test_a_file_without_scalars_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no events in it"):
        load(write(tmp_path, VERSION))


def test_a_name_for_every_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="different names"):
        load(write(tmp_path, log([(1, {f"m{place}": 1.0 for place in range(50_001)})], together=True)))


FAR = b"\xff" * 8 + b"\x7f"
"""A length just under 2^63."""


@pytest.mark.parametrize("part", [b"\x2a" + FAR, b"\x2a\x0c\x0a" + FAR + b"ab", b"\x2a\x0e\x0a\x0c\x0a" + FAR + b"ab"])
def test_a_length_that_overflows_damages_its_own_record_alone(part: bytes, tmp_path: Path) -> None:
    sound = log((step, {"train/reward": 0.5}) for step in range(1, 13))
    path = write(tmp_path, sound + frame(b"\x09" + bytes(8) + b"\x10\x05" + part))
    assert len(tensorboard.columns(path)["train/reward"]) == 12
