"""What looks like a secret is hidden, wherever it is written; what does not stays as it is."""

from __future__ import annotations

import time

import pytest

from stabilizer.runs.secrets import HIDDEN, HIDDEN_PART, hidden_keys, redacted, redacted_text, redacted_words


@pytest.mark.parametrize(
    "key",
    ["token", "hf_token", "HF-TOKEN", "api_key", "apikey", "aws_access_key_id", "passwd", "password", "client_secret"],
)
def test_the_value_of_a_secret_key_is_hidden(key):
    assert redacted({"a": [{key: "k"}]}) == {"a": [{key: HIDDEN}]}


@pytest.mark.parametrize("key", ["max_tokens", "pad_token", "eos_token", "token_level", "tokenizer", "passes", "keys"])
def test_the_value_of_an_ordinary_key_stays(key):
    assert redacted({key: "<|endoftext|>"}) == {key: "<|endoftext|>"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://bob:pa55@host:8000/v1", f"http://{HIDDEN_PART}@host:8000/v1"),
        ("Authorization: Bearer abcdef123456", f"Authorization: Bearer {HIDDEN_PART}"),
        (
            "reward.functions=[{use: judge.py, api_key: sk-12345678}]",
            "reward.functions=[{use: judge.py, api_key: <hidden>}]",
        ),
        ('{"judge": {"api_key": "sk-1234", "n": 2}}', '{"judge": {"api_key": "<hidden>", "n": 2}}'),
        (
            "postgres://reader:x@db/runs?password=abc&n=1",
            f"postgres://{HIDDEN_PART}@db/runs?password={HIDDEN_PART}&n=1",
        ),
    ],
)
def test_a_secret_inside_of_a_text_is_hidden(text, shown):
    assert redacted_text(text) == shown
    assert hidden_keys({"a": shown}) == ["a"]


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8000/v1",
        "a basic fact: 2+2",
        "tokens: 12",
        "answer in the form <answer>5</answer>",
        "user@host",
        "*** note",
    ],
)
def test_ordinary_text_stays(text):
    assert redacted_text(text) == text
    assert hidden_keys({"a": text}) == []


def test_a_command_line_keeps_everything_but_its_secrets():
    words = [
        "--hf-token",
        "k1",
        "--set",
        'reward.functions=[{"api_key":"k2"}]',
        "--url=http://u:k3@h",
        "--token=k4",
        "--steps",
        "7",
    ]
    shown = redacted_words(words)
    assert not [n for n in range(1, 5) if f"k{n}" in " ".join(shown)]
    assert shown[-2:] == ["--steps", "7"]


def test_long_text_is_searched_in_linear_time():
    began = time.process_time()
    for text in ("://" + "a:" * 200_000, "api_key" * 50_000, "token " * 50_000, "bearer " * 50_000):
        redacted_text(text)
    assert time.process_time() - began < 5
