"""The command `ci`: a sweep for a pull request, compared with one of its base, the branch to merge into."""

import argparse
import os
from dataclasses import replace
from hashlib import sha256

from bot.core.errors import UserError
from bot.platform.commands.grammar import Parsed
from bot.remote.answers import Answer
from bot.remote.api import Sweepbot, connect, say
from bot.remote.checkout import naming
from bot.remote.ci_host import PullRequest, comment, pull_request
from bot.remote.ci_verdict import Verdict, code, pairs, report, verdict
from bot.remote.client import Sweep
from bot.remote.commands import FAILED, INTERRUPTED
from bot.remote.progress import follow
from bot.sweep.launch.command_line import TABLE
from bot.sweep.launch.options import LAUNCH
from bot.text.masking import Mask, secrets_in_environment
from bot.text.terminal import typed

ENDED_BADLY = {"failed", "cancelled", "refused"}


def run_ci(arguments: argparse.Namespace) -> int:
    """Run the sweeps, keep the comment, and return 0 if the rule holds. Raises UserError."""
    pull, client = pull_request(os.environ), connect()  # a fork's job has no token
    options = TABLE.read(LAUNCH, typed(arguments.request))
    marker = f"<!-- sweepbot ci {_digest(arguments.name)} -->"
    try:
        new, base = _launched(client, options, pull)
        follow(client.events(new), as_json=False)
        follow(client.events(base), as_json=False)
        ended = client.show(new), client.show(base)
        decided = _decided(client, *ended, arguments.max_worse)
        text = Mask(secrets_in_environment(os.environ))(report(arguments.name, *ended, decided))
        print(text)
        try:
            comment(pull, marker, text)
        except UserError as error:  # the job's result doesn't depend on it
            say(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0 if decided.passed else FAILED


def _launched(client: Sweepbot, options: Parsed, pull: PullRequest) -> tuple[str, str]:
    """Start both sweeps, and return their names.

    For a day, pull requests share that of the base's commit, unless it has already ended without success.
    """

    def start(branch: str, about: str) -> str:
        command = _on(options, branch)
        return str(client.launch(command, f"ci/{_digest(f'{about} {command}')}")["id"])

    new, base = start(pull.branch, pull.run), start(pull.base, pull.base_commit or pull.run)
    if client.show(base)["state"] in ENDED_BADLY:
        base = start(pull.base, pull.run)
    return new, base


def _on(options: Parsed, branch: str) -> str:
    """Nobody is there to decide about a first trial that failed."""
    return naming(
        branch, replace(options, options={"gate": "off", **options.options, "branch": branch}).typed
    )


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def _decided(client: Sweepbot, new: Sweep, base: Sweep, max_worse: float) -> Verdict:
    for each in (new, base):
        if each["state"] != "succeeded":
            why = f"the sweep of {code(each['branch'])} ended as {each['state']}"
            return Verdict(passed=False, text=f"**Failed**: {why}.")
    found = pairs(*(client.results(each["id"]) for each in (base, new)))
    return verdict(found, (new["objective"] or Answer())["goal"], base["branch"], max_worse)
