"""Every format gives the same rows, and every error says where it is."""

from __future__ import annotations

import csv
import importlib
import json
import sys

import pytest

from stabilizer.training.data.table import READERS, read_table

ROWS = [{"prompt": "a, b\nc", "answer": "1"}, {"prompt": 'say "hi" é', "answer": "2"}]


def as_jsonl(path):
    path.write_text("\n\n".join(json.dumps(row) for row in ROWS), encoding="utf-8")


def as_json(path):
    path.write_text(json.dumps(ROWS), encoding="utf-8")


def as_csv(path):
    with path.open("w", newline="", encoding="utf-8-sig") as file:  # a byte-order mark, as spreadsheets write one
        writer = csv.DictWriter(file, list(ROWS[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(ROWS)


def as_parquet(path):
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
    importlib.import_module("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(ROWS), path)


WRITERS = {
    ".jsonl": as_jsonl, ".ndjson": as_jsonl, ".json": as_json, ".csv": as_csv, ".tsv": as_csv, ".parquet": as_parquet,
}  # fmt: skip


@pytest.mark.parametrize("suffix", READERS)
def test_every_format_gives_the_same_rows(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    WRITERS[suffix](path)
    table = read_table(str(path))
    assert [dict(row) for row in table.rows] == ROWS and table.columns == ("prompt", "answer")


def test_a_row_knows_its_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    as_jsonl(path)  # with an empty line in between
    assert read_table(str(path)).where(1) == f"{path} line 3"
    path = tmp_path / "rows.csv"
    as_csv(path)  # the first row takes lines 2 and 3
    table = read_table(str(path))
    assert [table.where(i) for i in range(2)] == [f"{path} line 2", f"{path} line 4"]


def test_a_json_file_may_hold_its_list_under_one_name(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"data": ROWS}))
    assert list(read_table(str(path)).rows) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"prompt": 1}\n{"prompt": \n', "a.jsonl line 2 column 11: not JSON"),
        ("a.jsonl", b'{"prompt": 1}\n[1]\n', "a.jsonl line 2: must be an object"),
        ("a.jsonl", b"\n", "has no rows"),
        ("a.jsonl", b'{"prompt": "\xff"}', "not UTF-8"),
        ("a.json", b'[{"prompt": 1},\n {]', "a.json line 2 column 3: not JSON"),
        ("a.json", b'{"prompt": 1, "answer": 2}', "must be a list of objects"),
        ("a.json", b"[1]", "a.json row 1: must be an object"),
        ("a.csv", b"prompt,answer\na,b\na,b,c\n", "a.csv line 3: 3 fields, but the header names 2"),
        ("a.csv", b"prompt,answer\na\n", "a.csv line 2: 1 fields, but the header names 2"),
        ("a.csv", b"prompt,answer,prompt\na,b,c\n", "a.csv line 1: the header names 'prompt' twice"),
        ("a.tsv", b"answer\tanswer\n", "a.tsv line 1: the header names 'answer' twice"),
        ("a.txt", b"hello", "unknown file type; supported types are .jsonl"),
    ],
)
def test_errors_name_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        read_table(str(tmp_path / name))


def test_a_broken_parquet_file_is_said_to_be_one(tmp_path):
    pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
    (tmp_path / "a.parquet").write_bytes(b"PAR1nonsense")
    with pytest.raises(ValueError, match=r"a\.parquet: can't be read as Parquet"):
        read_table(str(tmp_path / "a.parquet"))


def test_a_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "train.jsonl").write_text("{}")
    with pytest.raises(ValueError, match=r"tarin\.jsonl: no such file; nearest there is 'train\.jsonl'"):
        read_table(str(tmp_path / "tarin.jsonl"))


@pytest.mark.parametrize(
    ("absent", "name", "message"),
    [
        ("pyarrow", "a.parquet", "needs pyarrow: pip install"),
        ("datasets", "owner/set", "needs datasets: pip install"),
    ],
)
def test_without_the_extra_the_error_names_it(tmp_path, monkeypatch, absent, name, message):
    (tmp_path / "a.parquet").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stabilizer.training.data.table.find_spec", lambda package: None if package == absent else 1)
    monkeypatch.delitem(sys.modules, absent, raising=False)
    with pytest.raises(ValueError, match=message):
        read_table(name)


def test_a_folder_saved_by_datasets(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra `data` is not installed")
    one, two = (datasets.Dataset.from_list([row]) for row in ROWS)
    datasets.DatasetDict({"train": one, "test": two}).save_to_disk(tmp_path / "both")
    one.save_to_disk(tmp_path / "single")
    both = str(tmp_path / "both")
    assert list(read_table(both).rows) == ROWS[:1] and list(read_table(both, "test").rows) == ROWS[1:]
    assert list(read_table(str(tmp_path / "single")).rows) == ROWS[:1]
    assert read_table(both, "test").where(0) == f"{both} split test row 1"
    with pytest.raises(ValueError, match="no split 'tset'; nearest is 'test' .there are train, test"):
        read_table(both, "tset")
    with pytest.raises(ValueError, match="datasets can't load it"):
        (tmp_path / "empty").mkdir()
        read_table(str(tmp_path / "empty"))


def test_brackets_without_end_are_refused_with_their_line(tmp_path):
    path = tmp_path / "deep.jsonl"
    path.write_text('{"prompt": "x"}\n{"prompt": ' + "[" * 100_000 + "\n")
    with pytest.raises(ValueError, match="deep.jsonl line 2: brackets are nested too deeply"):
        read_table(str(path))


def test_columns_without_a_name_are_no_name_given_twice(tmp_path):
    (tmp_path / "a.csv").write_text("prompt,,\na,,\n")
    assert read_table(str(tmp_path / "a.csv")).rows[0]["prompt"] == "a"


def test_the_home_of_nobody_holds_no_table():
    with pytest.raises(ValueError, match="^~nosuchuser/a.csv: no home folder is known for '~nosuchuser'"):
        read_table("~nosuchuser/a.csv")
