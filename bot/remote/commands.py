"""The commands login, launch, watch, list, status, logs, cancel, and command, which call the HTTP API: what
each prints, its exit code, and `--key` to repeat a launch.
"""

import argparse
import json
import sys
from collections.abc import Callable
from getpass import getpass
from typing import Any
from uuid import uuid4

from bot.remote.api import Sweepbot, connect, say
from bot.remote.client import UnavailableError, check_key
from bot.remote.credentials import Credentials, store
from bot.remote.progress import details, follow, line, listed, planned
from bot.text.terminal import typed, without_markup
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
