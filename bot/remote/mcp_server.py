"""The command `mcp`: an MCP server on standard input and output, whose tools call the HTTP API."""

import argparse
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar
from uuid import uuid4

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from bot import __version__
from bot.core.errors import UserError
from bot.remote.client import Client, of
from bot.remote.commands import PAGE, connected
from bot.text.terminal import without_markup

POLL_SECONDS = 5.0  # a token can make 60 calls a minute
AWAITS_PERSON = {"held", "paused"}  # states that only a command ends
READS = ToolAnnotations(read_only_hint=True)

INSTRUCTIONS = (
    "Sweepbot runs hyperparameter sweeps of a git branch on a Kubernetes cluster. Commit and push first, "
    "launch, wait until the sweep has ended, then read its results. People follow it in a Slack thread. "
    "GPUs are shared: cancel sweeps that you no longer need."
)
Name = Annotated[str, Field(description="the sweep's full name, such as lr-brave-otter", max_length=100)]
P = ParamSpec("P")
R = TypeVar("R")


def run_mcp(_arguments: argparse.Namespace) -> int:
    """Serve until standard input ends. Raises UserError without credentials."""
    with suppress(KeyboardInterrupt):
        server(connected()).run("stdio")
    return 0


def server(client: Client) -> MCPServer[Any]:
    """Return the server, whose tools use this client."""
    made = MCPServer[Any]("sweepbot", instructions=INSTRUCTIONS, version=__version__)

    @made.tool()
    @_explained
    def launch(
        command: Annotated[
            str, Field(description="options as in Slack: branch=main space=lr gpus=1 trials=20")
        ],
        key: Annotated[
            str, Field(description="a new random text for each sweep; to repeat a call, the same text")
        ],
    ) -> dict[str, Any]:
        """Start a sweep and return its id. The space is sweeps/NAME.yaml of the pushed branch."""
        return dict(client.post("/sweeps", command, key))

    @made.tool(annotations=READS)
    @_explained
    def list_sweeps(
        active: Annotated[bool, Field(description="only those that run")] = True,
    ) -> dict[str, Any]:
        """List your sweeps and all running ones, the one changed last first."""
        found = client.json("/sweeps", limit=PAGE, active=str(active).lower())
        return {"sweeps": found["sweeps"], "complete": found["next"] is None}

    @made.tool(annotations=READS)
    @_explained
    def status(sweep: Name) -> dict[str, Any]:
        """Return a sweep's state, progress, best result, and the cause of a failure."""
        return dict(client.json(of(sweep)))

    @made.tool(annotations=READS)
    @_explained
    def wait(
        sweep: Name, seconds: Annotated[float, Field(description="how long at most", ge=0, le=3600)] = 50
    ) -> dict[str, Any]:
        """Return a sweep's status once it has ended or needs a decision (held, paused), or after the time."""
        end = time.monotonic() + seconds
        while True:
            found = client.json(of(sweep))
            left = end - time.monotonic()
            if found["ended"] or found["state"] in AWAITS_PERSON or left <= 0:
                return dict(found)
            time.sleep(min(POLL_SECONDS, left))

    @made.tool(annotations=READS)
    @_explained
    def results(
        sweep: Name, limit: Annotated[int, Field(description="trials to return", ge=1, le=1000)] = 20
    ) -> dict[str, Any]:
        """Return a sweep's trials, the best first, with parameters and values, and how many there are."""
        trials = client.json(f"{of(sweep)}/results")["trials"]
        return {"total": len(trials), "trials": trials[:limit]}

    @made.tool()
    @_explained
    def command(
        sweep: Name, text: Annotated[str, Field(description="such as cancel, pause, or extend trials=30")]
    ) -> dict[str, Any]:
        """Send cancel, drain, pause, pause now, resume, open, retry, extend trials=N, or raise budget=N."""
        return dict(client.post(f"{of(sweep)}/commands", text, uuid4().hex))

    return made


def _explained(tool: Callable[P, R]) -> Callable[P, R]:
    """Let the agent read what was wrong."""

    @wraps(tool)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return tool(*args, **kwargs)
        except UserError as error:
            raise ToolError(without_markup(str(error))) from None

    return call
