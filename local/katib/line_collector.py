"""The File and StdOut metrics collector: lines of a text or JSON file, by Go's regular expressions.

As the real one it reads the whole file once, after the training has ended with the marker "completed".
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from local.katib.metrics import UNAVAILABLE, Reported

Log = Callable[[str], None]
DEFAULT_FILTER = r"([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)"


class ParseError(Exception):
    """The real collector's message before it exits with 255."""


def read_lines(file: Path, names: list[str], filters: list[str], form: str, log: Log) -> list[Reported]:
    """Return the values in the file, or one that is unavailable. Raises ParseError."""
    try:
        lines = file.read_text(errors="replace").split("\n")
    except OSError as error:
        why = f"failed to open the file: open {file.name}: {(error.strerror or '').lower()}"
        raise ParseError(f"Failed to collect logs: {why}") from error
    found = list(_json_values(lines, names) if form == "JSON" else _text_values(lines, names, filters))
    if any(one.metric == names[0] for one in found):
        return found
    log(f"Objective metric {names[0]} is not found in training logs, {UNAVAILABLE} value is reported")
    return [Reported(UNAVAILABLE, 0, names[0])]


def _text_values(lines: list[str], names: list[str], filters: list[str]) -> Iterator[Reported]:
    rules = [re.compile(each, re.ASCII) for each in filters or [DEFAULT_FILTER]]
    for line in lines:
        if not any(name in line for name in names):
            continue
        second = _second(line.partition(" ")[0])
        for rule in rules:
            for match in rule.finditer(line):
                name, value = match[1].strip(), match[2].strip()
                if name in names:
                    yield Reported(value, second, name)


def _json_values(lines: list[str], names: list[str]) -> Iterator[Reported]:
    for line in filter(None, lines):
        try:
            values = json.loads(line)
        except ValueError as error:
            why = f"failed to parse the json object: {error}"
            raise ParseError(f"Failed to collect logs: {why}") from error
        for name in names:
            if isinstance(values.get(name), str):  # numbers are skipped
                yield Reported(values[name], _second(str(values.get("timestamp", ""))), name)


def _second(word: str) -> int:
    """Return the time of a line that starts with one; 0 without."""
    try:
        at = datetime.fromisoformat(word)
    except ValueError:
        return 0
    return int(at.replace(tzinfo=at.tzinfo or UTC).timestamp())
