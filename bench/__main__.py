"""Measure Sweepbot beside its alternatives. `python -m bench [GROUP ...]`

Prints a table, writes bench/results/GROUP.json and the table in bench/RESULTS.md, and exits with 1 when a
goal is missed. It measures only what is committed, so that a result names its code. A group is a module of
this package with `async def run() -> list[Row]`. The other programs here have a command line of their own.
"""

import argparse
import asyncio
import sys
from importlib import import_module
from time import monotonic

from bench import commits, document
from bench.table import Row, part, summary, table, write

GROUPS = (
    "ack",
    "ack_file",
    "words",
    "queue",
    "reaction",
    "launch",
    "environment_start",
    "counts",
    "burst",
    "start",
    "gpus",
    "scale",
    "workers",
    "between",
    "idle",
    "early_stopping",
    "search",
    "warm_start",
    "branches",
)
# Run only if named, and the table has their last results: the one takes as long as all others together, the
# other needs a clone of Katib.
NAMED = ("suites", "katib_search")
ALL = (*GROUPS, *NAMED)
TIMEOUT = 3600.0  # seconds of one group


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("group", nargs="*", help=f"default: {', '.join(GROUPS)}; also: {', '.join(NAMED)}")
    parser.add_argument("--outdated", action="store_true", help="only name groups older than their code")
    parsed = parser.parse_args()
    chosen = parsed.group
    if unknown := sorted(set(chosen) - set(ALL)):
        parser.error(f"unknown group: {', '.join(unknown)}. Available: {', '.join(ALL)}")
    if parsed.outdated:
        print("\n".join(document.stale(chosen or ALL)) or "Every group measured today's code.")
        return 0
    try:
        commits.measured_commit()
    except RuntimeError as error:
        parser.error(str(error))
    rows = [row for group in chosen or GROUPS for row in measured(group)]
    if not chosen:
        rows += [row for group in NAMED for row in document.recorded(group) or [_unmeasured(group)]]
    document.write(ALL)
    print(table(rows), *map(document.about, chosen or document.ran(ALL)), sep="\n")
    print(*document.stale(ALL), summary(rows), sep="\n")
    return int(any(row.met is False for row in rows))


def measured(group: str) -> list[Row]:
    """Run one group and write its results; a group that breaks is a goal missed, and hides no other."""
    print(f"measuring {group} ...", file=sys.stderr, flush=True)
    commit, started = commits.measured_commit(), monotonic()
    rows = asyncio.run(part(group, _run(group)))
    if commits.measured_commit() != commit:
        raise RuntimeError(f"{group} isn't written: another commit was checked out while it was measured")
    write(group, rows, monotonic() - started, {"commit": commit, "code": commits.measured_code(group)})
    return rows


async def _run(group: str) -> list[Row]:
    async with asyncio.timeout(TIMEOUT):
        rows: list[Row] = await import_module(f"bench.{group}").run()
        return rows


def _unmeasured(group: str) -> Row:
    return Row(what=group, against="", measured=f"not measured: run make bench GROUP={group}")


if __name__ == "__main__":
    sys.exit(main())
