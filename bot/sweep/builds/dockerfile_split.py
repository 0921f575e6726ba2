"""Split a Dockerfile into two images, the layers below the code and the code, where that is safe, or say why
it isn't. Pure.

The result must equal an unsplit build, so anything unclear means no split: one stage; one `COPY .` after all
RUNs; nothing before it that changes ownership, or reads files that it doesn't name. Hand-written, because the
question is what an instruction can depend on: Python's parsers only split lines, and BuildKit's is a Go
library.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

SETTING_INSTRUCTIONS = {"ENV", "LABEL", "WORKDIR", "ENTRYPOINT", "CMD", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
COPIES = {"COPY", "ADD"}  # the same for a directory; ADD also unpacks archives, which aren't text
BELOW = SETTING_INSTRUCTIONS | COPIES | {"FROM", "ARG", "RUN", "SHELL"}
ABOVE = SETTING_INSTRUCTIONS | {"USER"}
# A directory in the code's layer replaces the one below with its own owner and mode, and replaces symlinks.
# All directories above the code's are in that layer, too.
DELICATE = {
    "FROM": "onbuild",  # instructions that the base image adds
    "RUN": r"\b(chown|chgrp|chmod|umask|ln|useradd|adduser)\b|\bmkdir\s+([^\s;&|]+\s+){0,20}(-\w*m|--mode)"
    r"|\binstall\s+(-\w+\s+){0,9}(-[A-Za-z]*[dDmog]|--(directory|mode|owner|group))|--mount=(?!type=cache)|<<",
}
SPECIAL = re.compile(r"/(bin|boot|dev|etc|home|lib\w*|media|mnt|proc|root|run|sbin|sys|tmp|var)(/|$)")
OPEN_WORKSPACE = re.compile(r"(FROM|ARG)\b.*nvidia/(?!cuda)", re.IGNORECASE)  # all users can write to it
NUMBERS = re.compile(r"--chown=\d+(:\d+)?")


@dataclass(frozen=True)
class Split:
    below: str  # a Dockerfile
    sources: tuple[str, ...]  # paths that `below` copies, from the repository root
    code: str  # a Dockerfile


def split(text: str) -> Split | str:
    """Return the two Dockerfiles; or why it can't be split safely, for users."""
    lines = list(_instructions(text))
    whole = [number for number, line in enumerate(lines) if _copies_all(line)]
    if re.search(r"^[ \t]*#[ \t]*escape[ \t]*=", text, re.IGNORECASE | re.MULTILINE):
        return "it has the directive `escape`"
    if len(whole) != 1:
        return f"it has {'several' if whole else 'no'} `COPY . DIRECTORY`"
    [at] = whole
    before, after = lines[:at], lines[at + 1 :]
    if doubt := _doubt(before, after):
        return doubt
    if (sources := _sources(before)) is None:
        return "above `COPY .`, it copies other than files by name"
    if (code := _code(lines[at], before)) is None:
        return "`COPY .` has an unknown owner or directory, or one of the system"
    return Split("\n".join([*before, *after, ""]), sources, code)


def _doubt(before: list[str], after: list[str]) -> str:
    """Return which instruction can change what the code's layer has; "" if none can."""
    words = [_word(line) for line in before]
    if [*words, *map(_word, after)].count("FROM") > 1:
        return "it has several stages"
    if other := next((word for word in map(_word, after) if word not in ABOVE), ""):
        return f"`{other[:20]}` follows `COPY .`"
    for word, line in zip(words, before, strict=True):
        found = re.search(DELICATE.get(word, "$^"), line)
        if found or word not in BELOW:
            return f"`{found[0].strip() if found else word[:20]}` is above `COPY .`"
    return ""


def _word(line: str) -> str:
    return line.split(None, 1)[0].upper()


def _rest(line: str) -> str:
    return line[len(_word(line)) :].strip()


def _instructions(text: str) -> Iterator[str]:
    """Yield each instruction on one line, without comments."""
    plain = "\n".join(line for line in text.splitlines() if not re.match(r"\s*#", line))
    for line in re.sub(r"\\[ \t]*\n", " ", plain).splitlines():
        if line.strip():
            yield line.strip()


def _copies_all(line: str) -> bool:
    flags, paths = _copy(line)
    return len(paths) == 2 and paths[0] in {".", "./"} and not any(f.startswith("--from") for f in flags)


def _copy(line: str) -> tuple[list[str], list[str]]:
    """Return the flags and paths of a copy; empty for other instructions, and with quotes or patterns."""
    if _word(line) not in COPIES or re.search(r"[\[\"'$*?\\]", line):
        return [], []
    words = _rest(line).split()
    return [x for x in words if x.startswith("--")], [x for x in words if not x.startswith("--")]


def _sources(before: list[str]) -> tuple[str, ...] | None:
    """Return the files that are copied by name; None if they can't be determined."""
    copies = [_copy(line) for line in before if _word(line) in COPIES]
    if any(flags or len(paths) < 2 for flags, paths in copies):
        return None
    found = [posixpath.normpath(path) for _, paths in copies for path in paths[:-1]]
    return None if any(path.startswith((".", "/")) for path in found) else tuple(found)


def _code(copy: str, before: list[str]) -> str | None:
    """Return the Dockerfile of the code; None if its target or owner can't be determined."""
    flags, [_, target] = _copy(copy)
    place = ""  # unknown: the base image can have any
    for line in before:
        if _word(line) == "WORKDIR":
            place = posixpath.join(place, _rest(line))
    place = posixpath.normpath(posixpath.join(place, target))
    if not re.fullmatch(r"/\w[\w./-]*", place) or not all(map(NUMBERS.fullmatch, flags)):
        return None
    if SPECIAL.match(place) or (place.startswith("/workspace") and any(map(OPEN_WORKSPACE.match, before))):
        return None
    return " ".join(["FROM scratch\nCOPY", *flags, ".", f"{place}\n"])
