import json
import os
import shutil

import pytest

from stabilizer.training import checkpoint as disk
from stabilizer.training.state import Progress

FILES = {"a.bin": b"\x00\x01", "b.json": b"{}"}


def test_what_is_read_is_what_was_written(tmp_path):
    saved = disk.write(tmp_path / "new" / "folder", 5, 2, FILES)
    assert saved.path.name == "step-5-a2" and disk.read(saved) == FILES
    assert disk.scan(tmp_path / "new" / "folder") == [saved]


def test_writing_again_replaces(tmp_path):
    disk.write(tmp_path, 5, 0, FILES)
    saved = disk.write(tmp_path, 5, 0, {"c.bin": b"3"})
    assert disk.read(saved) == {"c.bin": b"3"} and [p.name for p in tmp_path.iterdir()] == ["step-5-a0"]


@pytest.mark.parametrize(
    "damage",
    ["flip a byte", "cut short", "delete a file", "a pipe in its place", "break the manifest", "delete the manifest"],
)
def test_damage_is_noticed(tmp_path, damage):
    saved = disk.write(tmp_path, 5, 0, FILES)
    file, manifest = saved.path / "a.bin", saved.path / "manifest.json"
    match damage:
        case "flip a byte":
            file.write_bytes(b"\x00\x02")
        case "cut short":
            file.write_bytes(b"\x00")
        case "delete a file":
            file.unlink()
        case "a pipe in its place":  # to read it would wait for ever
            file.unlink()
            os.mkfifo(file)
        case "break the manifest":
            manifest.write_text("{")
        case "delete the manifest":
            manifest.unlink()
    with pytest.raises(disk.CheckpointDamaged, match="step-5-a0"):
        disk.read(saved)


def test_every_flipped_bit_of_a_manifest_is_noticed(tmp_path):
    saved = disk.write(tmp_path, 5, 0, FILES)
    manifest = saved.path / "manifest.json"
    sound = manifest.read_bytes()
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        manifest.write_bytes(damaged)
        with pytest.raises(disk.CheckpointDamaged, match="step-5-a0"):
            disk.read(saved)


def test_a_copy_of_a_state_under_another_name_is_not_that_state(tmp_path):
    saved = disk.write(tmp_path, 5, 0, FILES)
    copied = shutil.copytree(saved.path, tmp_path / "step-9-a0")
    with pytest.raises(disk.CheckpointDamaged, match="its manifest is of step 5, attempt 0"):
        disk.read(disk.scan(tmp_path)[-1])
    with pytest.raises(disk.CheckpointDamaged, match="its manifest is of step 5"):
        disk.verified(disk.Checkpoint(9, 0, copied))


def test_a_state_half_written_is_not_seen(tmp_path):
    saved = disk.write(tmp_path, 5, 0, FILES)
    half = tmp_path / "step-6-a0.new"
    half.mkdir()
    (half / "a.bin").write_bytes(b"")
    (tmp_path / "step-7-a0").mkdir()  # what a removal that was interrupted leaves
    assert disk.scan(tmp_path) == [saved]
    assert disk.read(disk.write(tmp_path, 6, 0, FILES)) == FILES


def test_dying_between_the_renames_of_a_replacement_loses_nothing(tmp_path):
    saved = disk.write(tmp_path, 5, 0, FILES)
    saved.path.rename(tmp_path / "step-5-a0.old")
    assert disk.scan(tmp_path) == [saved] and disk.read(saved) == FILES


def test_what_deaths_left_behind_goes_with_the_next_state(tmp_path):
    saved = [disk.write(tmp_path, step, 0, FILES) for step in (5, 6)]
    for name in ("step-7-a0.new", "step-7-a0", "step-6-a0.old", "step-notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.bin").write_bytes(b"large")
    saved[0].path.rename(tmp_path / "step-5-a0.old")
    saved.append(disk.write(tmp_path, 9, 1, FILES))
    assert disk.scan(tmp_path) == saved and all(disk.read(checkpoint) == FILES for checkpoint in saved)
    assert {path.name for path in tmp_path.iterdir()} == {"step-notes", *(c.path.name for c in saved)}


def test_scan_orders_by_attempt_then_step(tmp_path):
    for step, attempt in [(10, 1), (100, 0), (20, 0), (3, 1)]:
        disk.write(tmp_path, step, attempt, FILES)
    assert [(c.attempt, c.step) for c in disk.scan(tmp_path)] == [(0, 20), (0, 100), (1, 3), (1, 10)]


def test_the_manifest_says_size_and_hash(tmp_path):
    manifest = json.loads((disk.write(tmp_path, 1, 0, {"x": b""}).path / "manifest.json").read_text())
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # sha256 of nothing, well known
    assert manifest["files"] == {"x": {"size": 0, "sha256": empty}}


def test_newest_first_and_one_per_doubling_of_age_are_kept():
    # ages of 0, 10, ..., 90 seen from 100: 100 and 90 are the newest two; ages 20 and 30 share a doubling (16-31), so
    # do 40, 50, 60 (32-63) and 70 ... 100 (64-127); of each the oldest stays, and step 0 is the oldest of the last
    assert disk.worth_keeping(range(0, 101, 10), keep=2) == {100, 90, 70, 40, 0}


def test_thinning_as_steps_come_keeps_few_and_reaches_far_back():
    kept: set[int] = set()
    for step in range(0, 5001, 10):
        kept = disk.worth_keeping(kept | {step}, keep=3)
        older = [5 * 10**k for k in range(4) if 5 * 10**k < step]
        assert 0 in kept and len(kept) <= 3 + 14
        for age in older:  # some state is between once and five times as old as wished
            assert any(age <= step - old <= 5 * age for old in kept) or step - age < 40
    assert {5000, 4990, 4980} <= kept


def test_lineage_leaves_abandoned_branches_out():
    # attempt 0 ran from 0; attempt 1 went back to 50; attempt 2 went back to 75 of attempt 1
    progress = Progress(seed=0, lineage={"0": 0, "1": 50, "2": 75})
    assert progress.on_line(50, 0) and not progress.on_line(60, 0) and not progress.on_line(75, 0)
    assert progress.on_line(75, 1) and not progress.on_line(80, 1)
    assert progress.on_line(100, 2) and not progress.on_line(10, 3)


@pytest.mark.parametrize(
    ("steps", "every", "keep", "most"), [(60, 20, 2, 4), (10, 0, 8, 1), (0, 5, 3, 1), (100, 10, 50, 11)]
)
def test_the_most_states_on_disk_at_one_time_are_known_before(steps, every, keep, most) -> None:
    assert disk.most_kept(steps, every, keep) == most
