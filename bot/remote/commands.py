"""The commands login, launch, watch, list, status, logs, cancel, and command, which call the HTTP API: what
each prints, its exit code, and `--key` to repeat a launch. The line of a followed sweep is rewritten, or in a
pipe, printed for each change.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from getpass import getpass
from typing import Any
from uuid import uuid4

from bot.remote.api import CLEAR, Sweepbot, connect, say
from bot.remote.client import Sweep, UnavailableError, check_key
from bot.remote.credentials import Credentials, store
from bot.text.terminal import aligned, typed, without_markup
from bot.text.wording import printable

FAILED, INTERRUPTED = 1, 130  # exit codes: the sweep didn't succeed; Ctrl-C, as shells have it


def run_remote(arguments: argparse.Namespace) -> int:
    """Run a command and return its exit code. Raises UserError."""
    try:
        return COMMANDS[arguments.word](arguments)
    except (KeyboardInterrupt, EOFError):  # Ctrl-C; Ctrl-D at the token
        return INTERRUPTED


def login(arguments: argparse.Namespace) -> int:
    token = getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()
    credentials = Credentials(arguments.url.rstrip("/"), token.strip())
    _ = Sweepbot(credentials, say).json("/sweeps", limit=1)["sweeps"]
    say(f"Logged in to {credentials.url}. The token is in {store(credentials)}.")
    return 0


def launch(arguments: argparse.Namespace) -> int:
    from bot.remote.checkout import with_branch  # noqa: PLC0415 - of /sweep's options, which no other command reads

    client = connect()
    command, pushed = with_branch(typed(arguments.request))
    if pushed:
        say(pushed)
    if arguments.dry_run:
        plan = client.plan(command)
        _print(plan, arguments, planned(plan))
        return 0
    key = uuid4().hex if arguments.key is None else arguments.key
    check_key("--key", key)
    try:
        made = client.launch(command, key)
    except (UnavailableError, KeyboardInterrupt):
        say(f"The launch may have arrived. Repeat it with --key {key}: that is the same sweep.")
        raise
    if arguments.wait:
        return _followed(client, made["id"], arguments)
    _print(made, arguments, f"{made['id']}: {made['state']}. Follow it with sweepbot watch {made['id']}")
    return 0


def watch(arguments: argparse.Namespace) -> int:
    return _followed(connect(), arguments.sweep, arguments)


def _followed(client: Sweepbot, sweep: str, arguments: argparse.Namespace) -> int:
    try:
        end = follow(client.events(sweep), as_json=arguments.json)
    except KeyboardInterrupt:
        say(f"Sweep {sweep} continues. Cancel it with sweepbot cancel {sweep}")
        raise
    return 0 if end["state"] == "succeeded" else FAILED


def list_sweeps(arguments: argparse.Namespace) -> int:
    found = list(connect().list(active=arguments.active))
    if arguments.json:
        print("".join(f"{json.dumps(each)}\n" for each in found), end="")
    else:
        print(listed(found) or "No sweeps.")
    return 0


def status(arguments: argparse.Namespace) -> int:
    sweep = connect().show(arguments.sweep)
    _print(sweep, arguments, "\n".join([line(sweep), *details(sweep)]))
    return 0


def logs(arguments: argparse.Namespace) -> int:
    found = connect().logs(arguments.sweep, arguments.trial)
    if arguments.json:
        print(json.dumps(found))
    else:
        say(f"Log of {found['source']}:")
        print("\n".join(printable(each.expandtabs()) for each in found["log"].split("\n")))
    return 0


def command(arguments: argparse.Namespace) -> int:
    """Send a command of a sweep's thread."""
    sweep, words = arguments.sweep, typed(arguments.command)
    answer = connect().command(sweep, words)
    _print(
        answer, arguments, f"Request sent to {answer['id']}. Its result appears in sweepbot status {sweep}"
    )
    return 0


def _print(answer: Any, arguments: argparse.Namespace, text: str) -> None:
    print(json.dumps(answer) if arguments.json else without_markup(text))


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
    last = (sweep.get("commands") or [{}])[-1]
    command = " ".join(filter(None, (last.get("command"), last.get("about"))))
    facts = {
        "Branch": " @ ".join(filter(None, (sweep["branch"], sweep["commit"]))),
        "Reason": sweep["reason"],
        "Cause": sweep["cause"] if sweep["cause"] != sweep["reason"] else None,
        "Denied": last.get("denied") and f"{command}: {last['denied']}",
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


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "login": login,
    "launch": launch,
    "watch": watch,
    "list": list_sweeps,
    "status": status,
    "logs": logs,
    "cancel": command,
    "command": command,
}
