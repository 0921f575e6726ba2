"""CPU time and memory of a process from its start to the first command it answers, beside a bare Bolt app."""

import asyncio
from dataclasses import dataclass
from functools import partial

from bench.child import child, cpu_of
from bench.site import Site, site
from bench.slack_calls import first_answer
from bench.table import Row, compared, interleaved
from tests.free_port import free_port

ROUNDS = 5


@dataclass(frozen=True)
class Cost:
    """CPU seconds, and MB in memory."""

    cpu: float
    memory: float = 0


async def run() -> list[Row]:
    async with site() as here:
        serve, bolt, plan, bare = await interleaved(
            ROUNDS, partial(_serve, here), partial(_bolt, here), _plan_help, _bare_import
        )
    return [
        _cpu("CPU to start `serve` and answer a command", "bare Bolt app", serve, bolt),
        _cpu("CPU of `plan --help`", "importing Bolt", plan, bare),
        compared(
            "memory of `serve` after its first command",
            "bare Bolt app",
            [each.memory for each in serve],
            [each.memory for each in bolt],
            unit="MB",
        ),
    ]


def _cpu(what: str, against: str, ours: list[Cost], theirs: list[Cost]) -> Row:
    figures = [each.cpu for each in ours], [each.cpu for each in theirs]
    return compared(what, against, *figures, unit="s", at_most=2)


async def _serve(here: Site) -> Cost:
    port = free_port()
    return await _answering(here, port, "-m", "bot", "serve")


async def _bolt(here: Site) -> Cost:
    port = free_port()
    return await _answering(here, port, "-m", "bench.bolt_app")


async def _answering(here: Site, port: int, *arguments: str) -> Cost:
    env = {**here.env, "SLACK_MODE": "http", "HTTP_PORT": str(port)}
    async with child(*arguments, env=env) as process:
        await first_answer(port)
        return Cost(process.cpu, process.memory)


async def _plan_help() -> Cost:
    return Cost(await asyncio.to_thread(cpu_of, "-m", "bot", "plan", "--help"))


async def _bare_import() -> Cost:
    return Cost(await asyncio.to_thread(cpu_of, "-c", "import slack_bolt.async_app"))
