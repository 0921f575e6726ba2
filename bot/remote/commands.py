"""The commands login, launch, watch, list, status, logs, cancel, and command, which call the HTTP API."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from getpass import getpass
from typing import Any
from uuid import uuid4

from bot.core.errors import UserError
from bot.remote.client import Client, UnavailableError, of
from bot.remote.credentials import LOG_IN, Credentials, current, store
from bot.remote.progress import CLEAR, details, follow, line, listed, planned
from bot.text.masking import Mask, secrets_in_environment
from bot.text.terminal import typed, without_markup
from bot.text.wording import printable

FAILED, INTERRUPTED = 1, 130  # exit codes: the sweep didn't succeed; Ctrl-C, as shells have it
PAGE = 200  # sweeps in one answer

MAX_KEY = 200  # characters of an idempotency key


def run_remote(arguments: argparse.Namespace) -> int:
    """Run a command and return its exit code. Raises UserError."""
    try:
        return COMMANDS[arguments.word](arguments)
    except (KeyboardInterrupt, EOFError):  # Ctrl-C; Ctrl-D at the token
        return INTERRUPTED


def connected() -> Client:
    """Return a client with the credentials at hand. Raises UserError."""
    credentials = current(os.environ)
    if credentials is None:
        raise UserError(f"You aren't logged in. {LOG_IN}")
    return Client(credentials, say)


def say(sentence: str) -> None:
    """Print a sentence for people, apart from the output."""
    text = without_markup(Mask(secrets_in_environment(os.environ))(sentence))
    print(f"{CLEAR if sys.stderr.isatty() else ''}{text}", file=sys.stderr)


def login(arguments: argparse.Namespace) -> int:
    token = getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()
    credentials = Credentials(arguments.url.rstrip("/"), token.strip())
    answer = Client(credentials, say).json("/sweeps", limit=1)
    if not isinstance(answer, dict) or "sweeps" not in answer:
        raise UserError(f"{credentials.url} isn't Sweepbot's API. *Fix:* Check the URL.")
    say(f"Logged in to {credentials.url}. The token is in {store(credentials)}.")
    return 0


def launch(arguments: argparse.Namespace) -> int:
    from bot.remote.checkout import with_branch  # noqa: PLC0415 - of /sweep's options, which no other command reads

    client = connected()
    command, pushed = with_branch(typed(arguments.request))
    if pushed:
        say(pushed)
    if arguments.dry_run:
        plan = client.post("/plans", {"command": command})
        _print(plan, arguments, planned(plan))
        return 0
    key = uuid4().hex if arguments.key is None else arguments.key
    if not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise UserError(f"--key must be 1 to {MAX_KEY} printable ASCII characters.")
    try:
        made = client.post("/sweeps", {"command": command}, key)
    except (UnavailableError, KeyboardInterrupt):
        say(f"The launch may have arrived. Repeat it with --key {key}: that is the same sweep.")
        raise
    if arguments.wait:
        return _followed(client, made["id"], arguments)
    _print(made, arguments, f"{made['id']}: {made['state']}. Follow it with sweepbot watch {made['id']}")
    return 0


def watch(arguments: argparse.Namespace) -> int:
    return _followed(connected(), arguments.sweep, arguments)


def _followed(client: Client, sweep: str, arguments: argparse.Namespace) -> int:
    try:
        end = follow(client.events(sweep), as_json=arguments.json)
    except KeyboardInterrupt:
        say(f"Sweep {sweep} continues. Cancel it with sweepbot cancel {sweep}")
        raise
    return 0 if end["state"] == "succeeded" else FAILED


def list_sweeps(arguments: argparse.Namespace) -> int:
    active = {"active": "true"} if arguments.active else {}
    found = list(connected().pages("/sweeps", "sweeps", limit=PAGE, **active))
    if arguments.json:
        print("".join(f"{json.dumps(each)}\n" for each in found), end="")
    else:
        print(listed(found) or "No sweeps.")
    return 0


def status(arguments: argparse.Namespace) -> int:
    sweep = connected().json(of(arguments.sweep))
    _print(sweep, arguments, "\n".join([line(sweep), *details(sweep)]))
    return 0


def logs(arguments: argparse.Namespace) -> int:
    named = {"trial": arguments.trial} if arguments.trial else {}
    found = connected().json(f"{of(arguments.sweep)}/logs", **named)
    if arguments.json:
        print(json.dumps(found))
    else:
        say(f"Log of {found['source']}:")
        print("\n".join(printable(each.expandtabs()) for each in found["log"].split("\n")))
    return 0


def command(arguments: argparse.Namespace) -> int:
    """Send a command of a sweep's thread."""
    sweep, words = arguments.sweep, typed(arguments.command)
    answer = connected().post(f"{of(sweep)}/commands", {"command": words}, uuid4().hex)
    _print(answer, arguments, f"Request sent to {sweep}. Its result appears in sweepbot status {sweep}")
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
