"""What looks like a secret is hidden, wherever it is written; what does not stays as it is."""

from __future__ import annotations

import json
import time

import pytest

from stabilizer.runs.secrets import HIDDEN, HIDDEN_PART, hidden_keys, redacted, redacted_text, redacted_words


@pytest.mark.parametrize(
    "key",
    ["token", "hf_token", "HF-TOKEN", "api_key", "apikey", "aws_access_key_id", "passwd", "password", "client_secret"],
)
def test_the_value_of_a_secret_key_is_hidden(key):
    assert redacted({"a": [{key: "k"}]}) == {"a": [{key: HIDDEN}]}


@pytest.mark.parametrize("inside", [{"value": "k"}, ["k", "k"], {"a": [{"b": "k"}]}, 7])
def test_all_that_is_below_a_secret_key_is_hidden(inside):
    assert '"k"' not in json.dumps(redacted({"password": inside, "api_keys": inside}))


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
        ("password='two words' --n 2", "password='<hidden>' --n 2"),
        ("run --api-token k123 --n 2", "run --api-token <hidden> --n 2"),
        ("http://u:p@ss@host/", f"http://{HIDDEN_PART}@host/"),
        ("Cookie: session=abc; x=1", "Cookie: <hidden>; x=1"),
        ("Authorization: Token abcdef123", "Authorization: <hidden> <hidden>"),
    ],
)
def test_a_secret_inside_of_a_text_is_hidden(text, shown):
    assert redacted_text(text) == shown
    assert hidden_keys({"a": shown}) == ["a"]


@pytest.mark.parametrize(
    "secret",
    [
        "hf_AbCdEfGhIjKlMnOpQrSt", "sk-proj-abc123def456ghi789", "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "xoxb-1234567890-abcdef", "AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
)  # fmt: skip
def test_a_key_that_is_known_by_its_form_is_hidden_under_any_name(secret):
    for text in (secret, f"export X={secret}; run", f"https://{secret}@host/", f"['{secret}']"):
        assert secret not in redacted_text(text)
    assert secret not in json.dumps(redacted({"a": ["-x", secret], "b": {"c": secret}}))


def test_addresses_that_let_their_holder_in_are_hidden():
    hooks = ["https://hooks.slack.com/services/T0/B0/XyZ12345", "https://discord.com/api/webhooks/123/XyZ-12345"]
    signed = ["https://a.blob/x?sig=XyZ12345&se=2", "https://s3/x?X-Amz-Signature=XyZ12345"]
    assert not [text for text in map(redacted_text, hooks + signed) if "XyZ" in text]


def test_a_private_key_is_hidden():
    text = "-----BEGIN PRIVATE KEY-----\nMIIabc\ndef=\n-----END PRIVATE KEY-----"
    assert redacted_text(text) == f"-----BEGIN PRIVATE KEY-----{HIDDEN_PART}-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8000/v1",
        "a basic fact: 2+2",
        "tokens: 12",
        "answer in the form <answer>5</answer>",
        "user@host",
        "*** note",
        "models/sk-learn/of-a-long-name-without-digits",
        "signature: question -> answer",
        "--max-tokens 512 --pad-token <pad>",
        "api_key=null",
        "git@github.com:a/b.git",
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
    for text in (
        "://" + "a:" * 200_000,
        "api_key" * 50_000,
        "token " * 50_000,
        "bearer " * 50_000,
        "eyJ-" * 100_000,
        "sk-" * 100_000,
        "--token" * 50_000,
        "-" * 400_000,
        "eyJaaaaaaaa." * 30_000,
        "://a:" * 80_000,
        "authorization: a " * 20_000,
        'password="' * 40_000,
        "PRIVATE KEY-----" * 20_000,
    ):
        redacted_text(text)
    assert time.process_time() - began < 5
