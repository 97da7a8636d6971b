r"""A shell script or a pasted command: `accelerate launch ... --beta 0.0`, `python -m verl... key=value \`.

The script is split into words the way a shell would, and never run. A variable is followed when the script itself
gives it a literal value; what comes from outside (`$1`, `$(nproc)`, an environment variable) stays unknown.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stabilizer.configs.config import Beside, ConfigError, Parsed, Setting, Unresolved, limited, scalar
from stabilizer.configs.purposes import Purpose, purpose
from stabilizer.configs.python_script import literal

FORM = "shell"
SUFFIXES = (".sh", ".bash", ".zsh", ".slurm", ".sbatch", ".cmd")
PROCESS_FLAGS = ("--num_processes", "--num-processes", "--nproc_per_node", "--nproc-per-node", "--num_gpus")
"""Flags of accelerate, torchrun and deepspeed that give the number of training processes."""
_STARTS_ITSELF = re.compile(r"(?:^| )(?:swift|megatron|llamafactory-cli|lmf|xtuner) ")
"""Programs that start torchrun themselves with NPROC_PER_NODE x NNODES processes (swift/cli/main.py; LLaMA-Factory's
launcher takes every visible GPU where nothing is said)."""
LAUNCHER_FLAGS = (
    "--config_file",
    "--mixed_precision",
    "--num_machines",
    "--machine_rank",
    "--main_process_ip",
    "--main_process_port",
    "--use_deepspeed",
    "--deepspeed_config_file",
    "--zero_stage",
    "--multi_gpu",
    "--gpu_ids",
    "--dynamo_backend",
    "--nnodes",
    "--node_rank",
    "--master_addr",
    "--master_port",
    "--standalone",
    "--rdzv_id",
    "--rdzv_backend",
    "--rdzv_endpoint",
    "--include",
    "--hostfile",
    "--num_nodes",
)
"""Other flags of a launcher. They are no settings of the training."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_OVERRIDE = re.compile(r"(?:\+\+|\+|~)?([A-Za-z_][\w./@-]*)=(.*)", re.S)
_CONTINUED = re.compile(r"\\\r?\n")
_PLAIN = re.compile(r"\$([A-Za-z_]\w*)")
_BRACED = re.compile(r"([A-Za-z_]\w*)(?::?([-=])(.*))?", re.S)
_SUM = re.compile(r"[\w\s+*/%()-]{1,200}")
_TRAINING = re.compile(
    r"main_ppo|verl\.trainer|openrlhf|train_ppo|grpo|rloo|ppo|skyrl|nemo|prime_rl|\brl\b|open_r1|accelerate|torchrun|trl|swift|llamafactory"
    r"|rlhf|areal|slime|train_async|start_\w+_pipeline",
    re.I,
)
_ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_ALL_OF = re.compile(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}")
"""A word that stands for all words of an array."""
_FILES = (".yaml", ".yml", ".json")
_TAKES_FILE = re.compile(r"^(?:\S*/)?(?:llamafactory-cli|lmf) train |^(?:\S*/)?swift (?:sft|pt|rlhf) ")
"""Programs whose first word may be the file with their settings."""
_NEGATIVE = re.compile(r"-\.?\d")
"""The beginning of a number below zero, which is no flag."""
_DEVICES = re.compile(r"\d{1,4}(?:,\d{1,4}){0,63}")
_MAX_BESIDE = 20
_MAX_WORDS = 50_000
_SHOWN = 2000
"""Characters of the command without its settings that are kept."""
_LONGEST = 10_000
"""Longest value of a variable that is followed. A value doubled sixty times in a row would fill any memory."""


@dataclass
class Word:
    """A word of a command, quotes removed and variables filled in."""

    text: str
    start: int
    end: int
    known: bool = True


@dataclass
class Command:
    """The words up to the end of a command."""

    words: list[Word] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)


def read(path: Path, text: str) -> Parsed:
    """The settings of the command that starts a training: the one with the most arguments that look like settings."""
    try:
        variables: dict[str, str | None] = {}
        commands = [command for command in _commands(text, variables) if command.words]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    ends = [place for place, letter in enumerate(text) if letter == "\n"]
    scans = [_Scan(command, path, text, ends) for command in commands]
    best, other = _chosen(scans) if scans else (_Scan(Command(), path, text, ends), None)
    return Parsed(
        form=FORM,
        path=path,
        text=text,
        settings=limited(best.found, path),
        command=best.program[:_SHOWN],
        processes=best.processes or best.launched(variables),
        hints={"end": best.end, "gpus": _gpus(scans, best, variables)},
        beside=tuple(_besides(scans, best)),
        does=f"`{other.program}` {other.does}" if other else "",
        devices=best.devices,
    )


def _gpus(scans: list[_Scan], best: _Scan, variables: Mapping[str, str | None]) -> int | None:
    """The GPUs that the script leaves to the training: those of the one `ray start`, else the visible ones."""
    rays = [scan for scan in scans if scan.program.startswith("ray start")]
    if not rays:
        devices = best.devices or _devices(variables.get("CUDA_VISIBLE_DEVICES") or "")
        return len(devices) if devices else None
    said = {setting.key: setting.value for setting in rays[0].found}.get("num-gpus")
    return said if len(rays) == 1 and isinstance(said, int) else None


def _devices(said: str) -> tuple[int, ...] | None:
    return tuple(map(int, said.split(","))) if _DEVICES.fullmatch(said) else None


def _chosen(scans: list[_Scan]) -> tuple[_Scan, Purpose | None]:
    """The command with the most settings that may train, else of all, and what it does where it can't train."""
    training = [scan for scan in scans if scan.arguments and purpose(scan.program) is None]
    best = max(training or scans, key=lambda scan: scan.arguments)
    return best, None if training else purpose(best.program)


def _besides(scans: list[_Scan], best: _Scan) -> Iterator[Beside]:
    """The other commands that train nothing."""
    others = [(scan, found) for scan in scans if scan is not best and (found := purpose(scan.program))]
    for scan, found in others[:_MAX_BESIDE]:
        yield _beside(scan, found)


def _beside(scan: _Scan, found: Purpose) -> Beside:
    said = {setting.key.replace("-", "_"): setting.value for setting in scan.found}
    words = tuple(scan.program.rpartition(found.program.rpartition(" ")[2])[2].split())
    return Beside(
        does=found.does, program=found.program, words=words, settings=said, devices=scan.devices, line=scan.line
    )


def insert(parsed: Parsed, key: str, value: Any) -> tuple[int, str]:
    """After the last setting of the command, written like the others."""
    own = [s for s in parsed.settings if s.span and s.file == str(parsed.path)]
    end, spelling = max(((s.span[1], s.written) for s in own if s.span), default=(int(parsed.hints["end"]), "--"))
    while end < len(parsed.text) and parsed.text[end] in "\"'":
        end += 1
    begin = parsed.text.rfind("\n", 0, end) + 1
    line = parsed.text[begin:]
    indent = line[: len(line) - len(line.lstrip())]
    joint = f" \\\n{indent}" if "\\\n" in parsed.text else " "
    pair = f"--{key} {written(value)}" if spelling.startswith("-") else f"{key}={written(value)}"
    return end, f"{joint}{pair}"


def written(value: Any) -> str:
    """A value as a word."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(written(item) for item in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


class _Scan:
    """Goes through the words of a command and collects its settings."""

    def __init__(self, command: Command, path: Path, text: str, ends: Sequence[int]):
        self.found: list[Setting] = []
        self._ends = ends
        """Where the lines of the text end."""
        self.processes: int | None = None
        self._words, self._path, self._text = _without_set(command.words), path, text
        self._launching = any(word.text in ("accelerate", "torchrun", "deepspeed") for word in self._words[:6])
        """Whether the flags are still those of a launcher."""
        self._free: list[str] = []
        """Words that are no flag, no value of a flag and no setting."""
        place = 0
        while place < len(self._words) and _ASSIGNMENT.match(self._words[place].text):
            place += 1  # the environment given to this one command: FOO=1 python ...
        self._environment = dict(word.text.split("=", 1) for word in self._words[:place])
        while place < len(self._words):
            place += self._take(place)

    @property
    def program(self) -> str:
        """The command without its flags and settings."""
        return " ".join(self._free)

    @property
    def arguments(self) -> int:
        """How many words look like settings, those of a training ten times."""
        words = self._words
        count = sum(word.text.startswith("--") or bool(_OVERRIDE.fullmatch(word.text)) for word in words)
        return (count or self._named_file()) * (10 if _TRAINING.search(" ".join(word.text for word in words)) else 1)

    @property
    def end(self) -> int:
        """Where the command ends in the text."""
        return self._words[-1].end if self._words else 0

    @property
    def line(self) -> int:
        """Where the command begins."""
        return bisect_left(self._ends, self._words[0].start) + 1 if self._words else 0

    @property
    def devices(self) -> tuple[int, ...] | None:
        """The GPUs that `CUDA_VISIBLE_DEVICES=0,1` before the command names."""
        return _devices(self._environment.get("CUDA_VISIBLE_DEVICES", ""))

    def launched(self, variables: Mapping[str, str | None]) -> int | None:
        """The processes that a program starts by itself, as the environment tells it."""
        if not _STARTS_ITSELF.search(self.program):
            return None
        said = {**variables, **self._environment}
        each = said.get("NPROC_PER_NODE") or ""
        if not each and self.devices and self.program.startswith("llamafactory-cli"):
            return len(self.devices)
        nodes = said.get("NNODES") or "1"
        return int(each) * int(nodes) if each.isdigit() and nodes.isdigit() else None

    def _named_file(self) -> int:
        return sum(setting.key == "config" for setting in self.found)

    def _take(self, place: int) -> int:
        """Take in a word and those that belong to it; returns how many."""
        word = self._words[place]
        if word.text.startswith("--") and len(word.text.partition("=")[0]) > 2:
            return self._flag(place)
        if (match := _OVERRIDE.fullmatch(word.text)) and not word.text.startswith("-"):
            self._override(word, *match.groups())
        if word.text == "@" and place + 1 < len(self._words):  # prime-rl: `uv run rl @ rl.toml`
            named = self._words[place + 1]
            self._add("@", "@", named.text, word, (named.start, named.end))
            return 2
        if word.text.endswith(".py") or word.text == "-m":
            self._launching = False
        self._word(word)
        return 1

    def _word(self, word: Word) -> None:
        """A word that is no flag; of some programs the first one is the file with the settings."""
        if word.text.startswith("-") or _OVERRIDE.fullmatch(word.text):
            return
        self._free.append(word.text)
        if word.text.endswith(_FILES) and _TAKES_FILE.search(self.program):
            self._add("config", "config", word.text, word, (word.start, word.end))

    def _flag(self, place: int) -> int:
        word = self._words[place]
        flag, equals, inline = word.text.partition("=")
        if flag == "--module":  # deepspeed --module openrlhf.cli.train_ppo_ray
            self._free += [word.text for word in self._words[place + 1 : place + 2]]
        value, span = _flag_value(self._words, place, equals, inline, self._text)
        if self._launching and flag in PROCESS_FLAGS:
            self.processes = value if isinstance(value, int) else None
        elif not (self._launching and _of_launcher(flag)):
            self._add(flag[2:], flag, value, word, span)
        return 1 if equals or span is None else 1 + max(1, _consumed(self._words, place))

    def _override(self, word: Word, key: str, value: str) -> None:
        """`key=value`, as Hydra takes it."""
        raw = self._text[word.start : word.end]
        cut = raw.find("=") + 1
        span = (word.start + cut, word.end) if cut else None
        self._add(key, key, _hydra(value) if word.known else Unresolved(raw[cut:]), word, span)

    def _add(self, key: str, written: str, value: Any, word: Word, span: tuple[int, int] | None) -> None:
        line = bisect_left(self._ends, word.start) + 1
        self.found.append(Setting(key=key, value=value, written=written, file=str(self._path), line=line, span=span))


def _without_set(words: list[Word]) -> list[Word]:
    """The words without a `--set` before a setting: --set optim.lr=1e-4."""
    after = [*(word.text for word in words[1:]), ""]
    return [w for w, text in zip(words, after, strict=True) if w.text != "--set" or not _OVERRIDE.fullmatch(text)]


def _of_launcher(flag: str) -> bool:
    return flag.replace("-", "_").replace("__", "--", 1) in LAUNCHER_FLAGS


def _flag_value(
    words: list[Word], place: int, equals: str, inline: str, text: str
) -> tuple[Any, tuple[int, int] | None]:
    word = words[place]
    if equals:
        cut = text.find("=", word.start) + 1
        return (scalar(inline) if word.known else Unresolved(inline)), (cut, word.end)
    values = words[place + 1 : place + 1 + _consumed(words, place)]
    if not values:
        return True, None
    known = [scalar(value.text) if value.known else Unresolved(value.text) for value in values]
    return (known[0] if len(known) == 1 else known), (values[0].start, values[-1].end)


def _consumed(words: list[Word], place: int) -> int:
    """How many words after a flag are its values: all up to the next flag or script."""
    end = place + 1
    while end < len(words):
        text = words[end].text
        if text.startswith("-") and not _NEGATIVE.match(text) or text.endswith(".py"):
            break
        end += 1
    return end - place - 1


def _hydra(text: str) -> Any:
    inner = text.strip()
    if inner.startswith("[") and inner.endswith("]"):
        return [scalar(part.strip().strip("\"'")) for part in inner[1:-1].split(",") if part.strip()]
    return scalar(inner.strip("\"'"))


def _commands(text: str, variables: dict[str, str | None]) -> Iterator[Command]:
    """The commands of a text, of which each may use the variables that were set before it."""
    for command in _split(text, variables):
        words = command.words
        plain = [word for word in words if word.text not in ("export", "local", "readonly", "declare")]
        if plain and all(_ASSIGNMENT.match(word.text) for word in plain):
            for word in plain:
                name, _, value = word.text.partition("=")
                variables[name] = value if word.known and len(value) <= _LONGEST else None
            continue
        yield command


def _split(text: str, variables: dict[str, str | None]) -> Iterator[Command]:
    """The commands of a script, by the rules of a shell: quotes, continued lines, comments, ; & | and redirections."""
    arrays: dict[str, list[Word]] = {}
    command, place, count = Command(), 0, 0
    while place < len(text):
        char = text[place]
        if skipped := _skipped(text, place):
            place = skipped
        elif char in "\n;&|()":
            yield command
            command, place = Command(), place + 1
        else:
            word, place = _word(text, place, variables)
            if (array := _ARRAY.fullmatch(word.text)) and text.startswith("(", place):
                held, place = _array(text, place + 1, variables)
                arrays[array[1]] = [*(arrays.get(array[1], []) if array[2] else []), *held]
                count += len(held)
            elif not (word.text.isdigit() and text[place : place + 1] in ("<", ">")):
                named = _ALL_OF.fullmatch(word.text)
                words = arrays.get(named[1], [word]) if named else [word]
                command.words += words
                count += len(words)
            if count > _MAX_WORDS:
                raise ConfigError(f"more than {_MAX_WORDS:,} words; is this the script that starts the training?")
    yield command


def _skipped(text: str, place: int) -> int:
    """Where the blanks, the continued line or the comment that begins here ends; 0 for none of them."""
    if continued := _CONTINUED.match(text, place):
        return continued.end()
    if text[place] == "#":
        return _find(text, "\n", place)
    return place + 1 if text[place] in " \t\r<>" else 0


def _array(text: str, place: int, variables: dict[str, str | None]) -> tuple[list[Word], int]:
    """The words of `NAME=( ... )` behind its bracket, and where it ends."""
    words: list[Word] = []
    while place < len(text) and text[place] != ")":
        if skipped := _skipped(text, place):
            place = skipped
        elif text[place] in "\n;&|(":
            place += 1
        else:
            word, place = _word(text, place, variables)
            words.append(word)
    return words[:_MAX_WORDS], place + 1


def _word(text: str, start: int, variables: dict[str, str | None]) -> tuple[Word, int]:
    """The word that begins at `start`, and where it ends."""
    pieces: list[str] = []
    known, place = True, start
    while place < len(text) and text[place] not in " \t\r\n;&|<>()" and not text.startswith("\\\n", place):
        piece, sure, place = _piece(text, place, variables)
        pieces.append(piece)
        known = known and sure
    return Word("".join(pieces), start, min(place, len(text)), known), max(place, start + 1)


def _piece(text: str, place: int, variables: dict[str, str | None]) -> tuple[str, bool, int]:
    """A part of a word, quoted or not: its value, whether that is known, and where the part ends."""
    char = text[place]
    if char == "'":
        stop = _find(text, "'", place + 1)
        return text[place + 1 : stop], True, stop + 1
    if char == '"':
        stop = _closing_quote(text, place + 1)
        return *_expanded(text[place + 1 : stop], variables), stop + 1
    if char == "\\":
        return text[place + 1 : place + 2], True, place + 2
    if char in "$`":
        match = _PLAIN.match(text, place)
        stop = match.end() if match else place + 2
        if text.startswith(("$(", "${", "`"), place):
            stop = _closing(text, place)
        return *_expanded(text[place:stop], variables), stop
    return char, True, place + 1


def _find(text: str, char: str, start: int) -> int:
    """The next place of a character; the end of the text where there is none."""
    place = text.find(char, start)
    return len(text) if place < 0 else place


def _closing_quote(text: str, place: int) -> int:
    """Where a double-quoted text ends: quotes within expansions and escaped ones don't end it."""
    while place < len(text) and text[place] != '"':
        if text.startswith(("$(", "${", "`"), place):
            place = _closing(text, place)
        else:
            place += 2 if text[place] == "\\" else 1
    return place


def _closing(text: str, place: int) -> int:
    """Where what begins with a backtick, `$(` or `${` ends: brackets and braces nest."""
    if text[place] == "`":
        return min(_find(text, "`", place + 1) + 1, len(text))
    opened, closed = ("${", "}") if text[place + 1] == "{" else ("(", ")")
    depth = 0
    for match in re.compile(f"{re.escape(opened)}|{re.escape(closed)}").finditer(text, place):
        depth += 1 if match.group() == opened else -1
        if depth == 0:
            return match.end()
    return len(text)


def _expanded(piece: str, variables: dict[str, str | None]) -> tuple[str, bool]:
    """The text with variables, defaults and sums filled in, and whether all of them were known."""
    filled: list[str] = []
    sure, place = True, 0
    while (mark := re.compile(r"[$`]").search(piece, place)) is not None:
        start = mark.start()
        filled.append(piece[place:start])
        place, value = _filled(piece, start, variables)
        filled.append(piece[start:place] if value is None else value)
        sure = sure and value is not None
    return "".join([*filled, piece[place:]]), sure


def _filled(text: str, start: int, variables: dict[str, str | None]) -> tuple[int, str | None]:
    """Where the expansion that begins here ends, and its value or None."""
    if match := _PLAIN.match(text, start):
        return match.end(), variables.get(match.group(1))
    if not text.startswith(("$(", "${", "`"), start):
        outside = re.match(r"\$[\d@*#?!$-]", text[start : start + 2])  # $1, $@: what the script is called with
        return start + (2 if outside else 1), None if outside else "$"
    stop = _closing(text, start)
    inner = text[start + 2 : stop - 1]
    if text[start] == "`" or len(inner) > _LONGEST:
        return stop, None
    if text.startswith("$((", start):
        return stop, _sum(text[start + 3 : stop - 2], variables)
    return stop, None if text[start + 1] == "(" else _braced(inner, variables)


def _braced(inner: str, variables: dict[str, str | None]) -> str | None:
    """`${name}`, `${name:-default}` and `${name:=default}`, without the braces."""
    match = _BRACED.fullmatch(inner)
    if match is None:
        return None
    name, operator, default = match.groups()
    value = variables.get(name)
    if value is None and operator:
        value, sure = _expanded(default.strip("\"'"), variables)
        if not sure:
            return None
        if operator == "=":
            variables[name] = value
    return value


def _sum(text: str, variables: dict[str, str | None]) -> str | None:
    """`$((1024 * 20))`: whole numbers and variables that hold them."""
    plain = re.sub(r"\$\{?([A-Za-z_]\w*)\}?", r"\1", text)
    plain = re.sub(r"[A-Za-z_]\w*", lambda match: str(variables.get(match.group())), plain)
    if not _SUM.fullmatch(plain) or "**" in plain:
        return None
    try:
        value = literal(ast.parse(plain.strip().replace("/", "//"), mode="eval").body, {})
    except SyntaxError:
        return None
    return str(value) if isinstance(value, int) else None
