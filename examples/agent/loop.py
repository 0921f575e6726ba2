"""A loop that improves a training by commits, as a coding agent does; here each try sets one constant.

    python loop.py --file train.py --constant SCALE --start 1 --step 0.5 --launch "space=lr trials=4"

Run it in a checkout, on a branch of its own, after `sweepbot login`. It remembers nothing itself: its tries
are commits, what they reached is in Sweepbot's history, and a commit is the idempotency key of its sweep. So
it can be killed at any moment and started again, and no sweep runs twice.
"""

import argparse
import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

TRY = re.compile(r"^Try (\d+): \w+ = (\S+)$")
SERVER = StdioServerParameters(command="sweepbot", args=["mcp"])


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def tries() -> list[tuple[str, float]]:
    """Return the commit and the constant of each try, in their order."""
    lines = git("log", "--reverse", "--format=%H %s").splitlines()
    found = ((line[:40], TRY.match(line[41:])) for line in lines)
    return [(commit, float(match[2])) for commit, match in found if match]


def proposed(reached: list[tuple[float, float]], start: float, step: float) -> float:
    """Return the next constant: go on while it helps, else turn around with half the step.

    `reached`: the constant and the objective of each try; lower is better.
    """
    best: tuple[float, float] | None = None
    for constant, value in reached:
        if best is None or value < best[1]:
            best = constant, value
        else:
            step = -step / 2
    return start if best is None else best[0] + step


def committed(options: argparse.Namespace, number: int, constant: float) -> str:
    """Set the constant, commit, and return the commit."""
    line = f"{options.constant} = {constant:g}"
    before = git("show", f"HEAD:./{options.file}")  # the file may be half written, by a loop that was killed
    changed = re.sub(rf"^{options.constant} = .*$", line, before, flags=re.MULTILINE)
    Path(options.file).write_text(f"{changed}\n")
    git("commit", "--quiet", "--allow-empty", "--message", f"Try {number}: {line}", "--", options.file)
    return git("rev-parse", "HEAD")


async def called(agent: Client, tool: str, **arguments: object) -> dict[str, Any]:
    answer = await agent.call_tool(tool, arguments)
    if answer.is_error:
        raise SystemExit(f"{tool}: {answer.content[0].text}")
    return dict(answer.structured_content)


async def measured(agent: Client, options: argparse.Namespace, commit: str) -> float:
    """Launch the commit, unless it was, and return the best value of its sweep."""
    branch = git("branch", "--show-current")
    git("push", "--quiet", "--set-upstream", "origin", branch)
    command = f"branch={branch} {options.launch}"
    found = await called(agent, "launch", command=command, key=f"loop-{commit}")
    while found.get("ended") is None:
        found = await called(agent, "wait", sweep=found["id"])
    if found["commit"] != commit:
        raise SystemExit(
            f"{found['id']} is of {found['commit']}, not of {commit}: somebody else pushed {branch}."
        )
    if found["state"] != "succeeded":
        raise SystemExit(f"{found['id']} {found['state']}: {found['cause'] or found['reason']}")
    return float(found["best"]["value"])


async def main(options: argparse.Namespace) -> None:
    async with Client(SERVER) as agent:
        space = re.search(r"space=(\S+)", options.launch)
        past = (await called(agent, "history", space=space[1]))["sweeps"] if space else []
        known = {each["commit"]: each["value"] for each in past}
        reached: list[tuple[float, float]] = []
        for number in range(options.tries):
            made = tries()
            if number < len(made):
                commit, constant = made[number]
            else:
                constant = proposed(reached, options.start, options.step)
                commit = committed(options, number, constant)
            value = known.get(commit)
            value = await measured(agent, options, commit) if value is None else value
            reached.append((constant, value))
            print(f"{number}: {options.constant} = {constant:g}: {value:g}", flush=True)
    constant, value = min(reached, key=lambda each: each[1])
    print(f"best: {options.constant} = {constant:g}: {value:g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Improve a training by commits.")
    parser.add_argument("--file", required=True)
    parser.add_argument("--constant", required=True, help="set by a line NAME = VALUE of the file")
    parser.add_argument("--start", type=float, required=True)
    parser.add_argument("--step", type=float, required=True)
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--launch", required=True, help="options of the sweep without branch=")
    asyncio.run(main(parser.parse_args()))
