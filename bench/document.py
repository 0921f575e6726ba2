"""Write the results of the last runs into bench/RESULTS.md."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.commits import measured_code
from bench.table import COLUMNS, RESULTS, Row, cells, summary

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "bench/RESULTS.md"
BEGIN, END = "<!-- results: written by make bench -->", "<!-- end of results -->"


def recorded(group: str) -> list[Row]:
    """Return the rows of a group's last run; none if it never ran."""
    file = RESULTS / f"{group}.json"
    return [Row(**row) for row in json.loads(file.read_text())["rows"]] if file.exists() else []


def ran(groups: Iterable[str]) -> list[str]:
    """Return the groups that have results."""
    return [group for group in groups if (RESULTS / f"{group}.json").exists()]


def stale(groups: Iterable[str]) -> list[str]:
    """Return one line for each group whose last run is of other code than today's."""
    try:
        old = [each for each in ran(groups) if _last(each)["machine"].get("code") != measured_code(each)]
    except RuntimeError as error:  # the tree isn't a repository of this user
        return [f"git can't tell which groups are outdated: {error}"]
    return [f"outdated: {group}: {_last(group)['date'][:10]}: its code has changed since" for group in old]


def results(groups: Iterable[str]) -> str:
    """Return the table of the groups' last runs, in Markdown."""
    known = ran(groups)
    rows = [row for group in known for row in recorded(group)]
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(_escaped(cells(row)) for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "\n".join(map(about, known))
    return f"{summary(rows).capitalize()}.\n\n{table}\n\n{notes}"


def write(groups: Sequence[str]) -> None:
    """Replace what is between the two marks of the document."""
    text = DOCUMENT.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{results(groups)}\n\n{END}{after}")


def _last(group: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RESULTS / f"{group}.json").read_text())
    return document


def _escaped(line: Sequence[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in line]


def about(group: str) -> str:
    """Return when and where a group's last run was, as an item of a list."""
    document = _last(group)
    machine = document["machine"]
    when = document["date"].replace("T", " ")[:16]
    on = f"{machine['cores']} cores, load {machine['load']}"
    took = f", {document['seconds']} s" if "seconds" in document else ""
    return f"- `{group}`: {when} UTC, commit {machine['commit']}, {on}{took}"
