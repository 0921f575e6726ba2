"""Measure Sweepbot beside its alternatives. `python -m bench [GROUP ...]`

Prints a table, writes bench/results/GROUP.json and the table in docs/performance.md, and exits with 1 when a
goal is missed. A group is a module of this package with `async def run() -> list[Row]`. The other programs
here have a command line of their own.
"""

import argparse
import asyncio
import sys
import traceback
from importlib import import_module

from bench import document
from bench.table import Row, summary, table, write

GROUPS = (
    "ack",
    "words",
    "work_queue",
    "reaction",
    "launch",
    "environment_start",
    "counts",
    "start",
    "gpus",
    "scale",
)
NAMED = ("suites", "early_stopping")  # run only if named; otherwise, the table has the last results
ALL = (*GROUPS, *NAMED)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("group", nargs="*", help=f"default: {', '.join(GROUPS)}; also: {', '.join(NAMED)}")
    chosen = parser.parse_args().group
    if unknown := sorted(set(chosen) - set(ALL)):
        parser.error(f"unknown group: {', '.join(unknown)}. Available: {', '.join(ALL)}")
    rows = [row for group in chosen or GROUPS for row in measured(group)]
    if not chosen:
        rows += [row for group in NAMED for row in document.recorded(group)]
    document.write(ALL)
    print(table(rows))
    print(summary(rows))
    return int(any(row.met is False for row in rows))


def measured(group: str) -> list[Row]:
    """Run one group and write its results; a group that breaks is a goal missed, and hides no other."""
    print(f"measuring {group} ...", file=sys.stderr, flush=True)
    try:
        rows: list[Row] = asyncio.run(import_module(f"bench.{group}").run())
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        return [Row(what=group, against="", measured=f"failed: {error}", goal="runs", met=False)]
    write(group, rows)
    return rows


if __name__ == "__main__":
    sys.exit(main())
