"""Parse the subset of Dockerfile that local builds support; anything else is an error with its line."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

KNOWN = {"FROM", "ENV", "WORKDIR", "COPY", "RUN", "CMD", "ENTRYPOINT"}
REAL = {"ADD", "ARG", "EXPOSE", "HEALTHCHECK", "LABEL", "SHELL", "STOPSIGNAL", "USER", "VOLUME"}
VARIABLE = re.compile(r"\\(\$)|\$(?:(\w+)|\{(\w+)(?::([-+])([^}]*))?\})")


class DockerfileError(Exception):
    """An error with the parser's message."""


@dataclass(frozen=True)
class Instruction:
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name} {self.text}"

    @property
    def words(self) -> list[str] | None:
        """Return the list of the exec form; None for the shell form."""
        try:
            words = json.loads(self.text)
        except ValueError:
            return None
        return words if isinstance(words, list) else None

    @property
    def command(self) -> list[str]:
        return self.words or ["/bin/sh", "-c", self.text]


def parse(text: str) -> list[Instruction]:
    """Raises DockerfileError."""
    instructions = []
    for number, line in _logical_lines(text):
        name, _, rest = line.partition(" ")
        if problem := _problem(name, rest.strip()):
            raise DockerfileError(f"dockerfile parse error on line {number}: {problem}")
        instructions.append(Instruction(name.upper(), rest.strip()))
    if not instructions:
        raise DockerfileError("file with no instructions")
    if [i for i, step in enumerate(instructions) if step.name == "FROM"] != [0]:
        raise DockerfileError("a local build has one stage, and it starts with FROM")
    return instructions


def _problem(name: str, rest: str) -> str:
    if name.upper() in REAL or (name.upper() in ("COPY", "RUN") and rest.startswith("--")):
        return f"a local build has no {name} {rest.partition(' ')[0]}"
    if name.upper() not in KNOWN:
        return f"unknown instruction: {name}"
    return "" if rest else f"{name.upper()} requires arguments"


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without comments, with continuations joined."""
    start, parts = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or not line.strip():
            continue
        start = start if parts else number
        parts += line.strip() if not parts else line
        if parts.rstrip().endswith("\\"):
            parts = parts.rstrip()[:-1]
            continue
        yield start, re.sub(r"^(\S+)\s+", r"\1 ", parts)
        parts = ""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand `$name`, `${name}`, `${name:-default}`, and `${name:+instead}`; unknown names are empty."""

    def value(match: re.Match[str]) -> str:
        escaped, plain, name, sign, other = match.groups()
        found = variables.get(plain or name or "", "")
        return escaped or {"-": found or other, "+": found and other}.get(sign, found) or ""

    return VARIABLE.sub(value, text)


def pairs(text: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Parse `a=b c="d e"`, or the legacy form `a the rest`."""
    words = shlex.split(text)
    if "=" not in words[0]:
        name, _, rest = text.partition(" ")
        return {name: expand(rest.strip(), variables)}
    return {key: expand(value, variables) for key, _, value in (word.partition("=") for word in words)}


def ignored(patterns: str) -> Callable[[Path], bool]:
    """Return a function that returns whether a .dockerignore excludes a path; the last match counts."""
    rules = []
    for line in map(str.strip, patterns.splitlines()):
        if line and not line.startswith("#"):
            wanted = line.startswith("!")
            rules.append((re.compile(_regex(line.lstrip("!").strip("/"))), not wanted))

    def is_excluded(path: Path) -> bool:
        verdicts = [out for rule, out in rules if rule.fullmatch(path.as_posix())]
        return bool(verdicts) and verdicts[-1]

    return is_excluded


def _regex(pattern: str) -> str:
    """Return whether the path or a parent directory matches."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    found = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.removeprefix("./"))
    return "".join(parts.get(part, re.escape(part)) for part in found) + "(?:/.*)?"
