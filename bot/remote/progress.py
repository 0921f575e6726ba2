"""Show sweeps in the terminal: the line of a followed one (rewritten, or one for each change in a pipe), the
details of `status`, the table of `list`, and what a plan would cost.
"""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from bot.remote.client import Sweep
from bot.text.terminal import aligned, without_markup
from bot.text.wording import printable

CLEAR = "\r\x1b[K"  # the line


def follow(sweeps: Iterable[Sweep], *, as_json: bool) -> Sweep:
    """Print the sweep at each change, and at its end what came of it. Return it as it is then."""
    rewritten = sys.stdout.isatty() and not as_json
    last, sweep = "", Sweep()
    for sweep in sweeps:
        text = json.dumps(sweep) if as_json else line(sweep)
        if rewritten:
            width = shutil.get_terminal_size().columns - 1
            print(f"{CLEAR}{text[:width]}", end="", flush=True)
        elif text != last:
            print(text, flush=True)
        last = text
    if rewritten:
        print(CLEAR, end="")
    if not as_json:
        print("\n".join([*([last] if rewritten else []), *details(sweep)]))
    return sweep


def line(sweep: Sweep) -> str:
    """Return one such as `lr-brave-otter: running, 5 of 12 trials, 1 failed, 2 running, best 0.031`."""
    return printable(", ".join([f"{sweep['id']}: {sweep['state']}", *_facts(sweep)]))


def _facts(sweep: Sweep) -> Iterator[str]:
    trials, best = sweep["trials"], sweep["best"]
    if trials["total"]:
        yield f"{trials['done']} of {trials['total']} trials"
        yield from (f"{trials[each]} {each}" for each in ("failed", "running") if trials.get(each))
    value = best["value"] if isinstance(best, dict) else best  # lists have no parameters
    if value is not None:
        yield f"best {value:.6g}"


def details(sweep: Sweep) -> Iterator[str]:
    """Yield the lines below the first one, without those that are unknown."""
    parameters = (sweep["best"] or {}).get("parameters") or {}
    facts = {
        "Branch": " @ ".join(filter(None, (sweep["branch"], sweep["commit"]))),
        "Reason": sweep["reason"],
        "Cause": sweep["cause"] if sweep["cause"] != sweep["reason"] else None,
        "Best": " ".join(f"{name}={value}" for name, value in parameters.items()),
        "Thread": sweep["thread"],
        "MLflow": sweep["results_url"],
    }
    for name, value in facts.items():
        if value:
            yield f"  {name + ':':<8} {printable(without_markup(str(value)))}"


def listed(sweeps: Iterable[Sweep]) -> str:
    """Return a table of sweeps."""
    rows = [[each["id"], each["state"], ", ".join(_facts(each)), each["owner"] or ""] for each in sweeps]
    return aligned([printable(cell) for cell in row] for row in rows)


def planned(plan: dict[str, Any]) -> str:
    """Return what a sweep would build, run, and cost."""
    at = "" if "," in plan["commit"] else f" @ {plan['commit'][:12]} {plan['subject']}"  # facts have several
    head = f"{plan['branch']}{at}".strip()
    rows = [[f"  {each['name']}:", each["text"]] for each in plan["facts"]]
    notes = [f"  Note: {each}" for each in plan["notes"]]
    lines = [head, *aligned(rows).split("\n"), f"  Example trial: {plan['example']}", *notes]
    return "\n".join([*map(printable, lines), "Nothing has started."])
