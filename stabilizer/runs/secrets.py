"""Secrets are kept out of the run directory: values of secret-looking keys and flags, and secrets inside of text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HIDDEN = "***"
"""Written in place of the value of a key whose name matches `_SECRET`."""
HIDDEN_PART = "<hidden>"
"""Written in place of a secret that is part of a longer text, such as the password of an address."""

_NAMES = (
    r"api[_-]?keys?|access[_-]?key|private[_-]?key|secret|passwd|password|passphrase|credentials?|cookie"
    r"|authorization|(?<![a-z])pwd(?=$|[\"'\s:=])"
    r"|(?<!pad[_-])(?<!eos[_-])(?<!bos[_-])(?<!unk[_-])(?<!sep[_-])(?<!cls[_-])(?<!mask[_-])(?<!stop[_-])(?<!image[_-])"
    r"token(?=$|[\"'\s:=])"
)
"""Words of names whose values are secrets. Names of special tokens, such as `pad_token`, are none."""
_SECRET = re.compile(_NAMES, re.IGNORECASE)
_IN_ADDRESS = re.compile(
    r"(?<=://)[^\s/:'\"]{0,200}:[^\s/'\"]{1,200}(?=@)"  # user:password@
    r"|(?<=://)[A-Za-z0-9_-]{16,200}(?=@)"  # token@
    r"|(?<=hooks\.slack\.com/services/)[A-Za-z0-9/_-]{8,200}"
    r"|(?<=[?&]sig=)[^\s&'\"]{1,500}|(?<=-Signature=)[^\s&'\"]{1,500}"  # signed for a while, as by clouds
    r"|(?<=/api/webhooks/)[0-9]{1,30}/[A-Za-z0-9_-]{8,200}",
)
"""The part of an address that lets its holder in."""
_IN_HEADER = re.compile(r"\b((?:bearer|basic)\s+|authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?[a-z]{1,20}\s{1,3})"
                        r"([A-Za-z0-9+/=._~-]{8,500})", re.IGNORECASE)  # fmt: skip
_BY_FORM = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,200}|sk-(?=[A-Za-z_-]{0,80}\d)[A-Za-z0-9_-]{16,200}|gh[opsur]_[A-Za-z0-9]{16,200}"
    r"|github_pat_\w{16,200}|glpat-[\w-]{16,200}|xox[a-z]-[\w-]{10,200}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{35}"
    r"|eyJ[\w-]{8,400}\.eyJ[\w-]{2,2000}\.[\w-]{0,2000})"
    r"|(?<=PRIVATE KEY-----)[A-Za-z0-9+/=\s\\]{1,8000}",
)
"""Keys that are known by their form: Hugging Face, OpenAI, GitHub, GitLab, Slack, AWS, Google, JWT, PEM."""
_IN_ASSIGNMENT = re.compile(
    rf"((?:{_NAMES})[\"']?\s{{0,3}}[:=]\s{{0,3}})(\"[^\"]{{1,500}}\"|'[^']{{1,500}}'|[\"']?[^\s\"',;&}}\]]{{1,500}})",
    re.IGNORECASE,
)
"""`api_key=...`, `"password": "..."` and the like inside of a text. `{1,500}` bounds the search."""
_FLAG = re.compile(r"--?[\w-]{1,100}")
_AFTER_FLAG = re.compile(rf"((?<![\w-])--[\w-]{{0,50}}?(?:{_NAMES})\s{{1,3}})([^\s\"']{{1,500}})", re.IGNORECASE)


def redacted(value: Any, key: str = "") -> Any:
    """The same structure with secrets hidden. All that is below a secret key is hidden."""
    if isinstance(value, Mapping):
        return {str(inner): redacted(item, _inherited(key) or str(inner)) for inner, item in value.items()}
    if isinstance(value, (list, tuple)):
        if not _inherited(key) and all(isinstance(item, str) for item in value):
            return redacted_words(value)
        return [redacted(item, _inherited(key)) for item in value]
    if value and _SECRET.search(key) and not isinstance(value, bool):
        return HIDDEN
    return redacted_text(value) if isinstance(value, str) else value


def _inherited(key: str) -> str:
    """A key that makes everything below it secret; empty if it does not."""
    return key if _SECRET.search(key) else ""


def redacted_text(text: str) -> str:
    """The text with the secrets in it hidden: passwords in addresses, headers, assignments, known keys."""
    text = _IN_ADDRESS.sub(HIDDEN_PART, text)
    text = _AFTER_FLAG.sub(rf"\1{HIDDEN_PART}", _IN_HEADER.sub(rf"\1{HIDDEN_PART}", text))
    text = _IN_ASSIGNMENT.sub(lambda found: found[1] + _hidden_value(found[2]), text)
    return _BY_FORM.sub(HIDDEN_PART, text)


def _hidden_value(value: str) -> str:
    quote = value[0] if value[0] in "\"'" else ""
    bare = value.strip(quote) if quote else value
    if bare.lower() in ("bearer", "basic", "null", "none", "") or HIDDEN_PART in bare:
        return value
    return f"{quote}{HIDDEN_PART}{quote if len(value) > 1 and value[-1] == quote else ''}"


def hidden_keys(value: Any, key: str = "") -> list[str]:
    """Dotted keys of the values in which `redacted` hid something."""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    found = [name for part, item in inner for name in hidden_keys(item, f"{key}.{part}" if key else str(part))]
    return [key] if isinstance(value, str) and (value == HIDDEN or HIDDEN_PART in value) else found


def redacted_words(words: Sequence[str]) -> list[str]:
    """A command line with the secrets in it hidden."""
    shown: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        before = shown[-1] if shown else ""
        if _FLAG.fullmatch(before) and _SECRET.search(before):
            shown.append(HIDDEN)
        elif equals and value and _SECRET.search(key):
            shown.append(f"{key}={HIDDEN}")
        else:
            shown.append(redacted_text(word))
    return shown
