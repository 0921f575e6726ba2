"""The commands of operators, for the command line and for Slack: ps, inspect, retry, release, and recover."""

import logging
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.commands import Action, AuditEntry, Command
from bot.core.errors import UnknownNameError, UserError
from bot.core.ids import is_meant
from bot.core.work_item import OPERATOR, WorkItem
from bot.operate.causes import find_cause
from bot.operate.checks import find_faults
from bot.operate.facts import FactReader, FindFaults
from bot.operate.show import Row, inspection, lines_mrkdwn, process_list
from bot.operate.words import ABOUT_ONE, COMMANDS, MAX_NAME
from bot.platform.config.permissions import doctor_denial
from bot.platform.runtime.audit import write_entry
from bot.platform.slack.mrkdwn import plain
from bot.platform.storage.last_errors import LastErrors
from bot.platform.storage.queue_state import QueueReader
from bot.platform.storage.work_queue import Queue
from bot.sweep.clients import SweepClients
from bot.sweep.sweeps.durable_record import recover
from bot.text.wording import counted, listed, printable
from k8s.api.errors import ApiError, UnreachableError

log = logging.getLogger(__name__)
MAX_FITS = 10  # sweeps named in an error


@dataclass(frozen=True)
class Operator:
    clients: SweepClients
    redis: Redis
    find_faults: FindFaults = find_faults

    async def run(self, word: str, name: str = "") -> list[str]:
        """Return the answer's lines. Raises UserError, ApiError, UnreachableError, and RedisError."""
        if word not in COMMANDS:
            raise UserError(f"Unknown command {printable(word[:MAX_NAME])}. Available: {listed(COMMANDS)}.")
        if bool(name) != (word in ABOUT_ONE) or len(name) > MAX_NAME:
            raise UserError(f"Usage: {word}{' SWEEP' if word in ABOUT_ONE else ''}.")
        match word:
            case "ps":
                return await self._list()
            case "inspect":
                return await self._inspect(await self._full_name(name))
            case "retry":
                return [await self._retry(await self._full_name(name))]
            case "release":
                return [await release(self.clients.queue, name)]
        return await self._recover()

    async def _full_name(self, name: str) -> str:
        """Complete a part of a sweep's name. Raises UserError if several sweeps match."""
        known = [sweep.id for sweep in await self.clients.store.listed()]
        fits = [each for each in known if is_meant(each, name)]
        if name in known or not fits:
            return name
        if len(fits) > 1:
            several = f"{counted(len(fits), 'sweep')}: {listed(fits[:MAX_FITS])}"
            raise UserError(f"{printable(name)} matches {several}. *Fix:* Give the full name.")
        return fits[0]

    async def _list(self) -> list[str]:
        queue = QueueReader(self.redis, self.clients.queue.prefix)
        live = [s for s in await self.clients.store.listed() if s.live]
        sweeps = {sweep.id: sweep for sweep in live}
        names = list(dict.fromkeys([*sweeps, *await queue.others()]))
        states, errors = await queue.items(names), await LastErrors(self.redis).of_all(names)
        rows = [
            Row(item=name, state=state, errors=found, sweep=sweeps.get(name))
            for name, state, found in zip(names, states, errors, strict=True)
        ]
        return process_list(rows, has_worker=await queue.has_worker(), now=self.clients.now())

    async def _inspect(self, name: str) -> list[str]:
        facts = await FactReader(self.clients, self.redis, self.find_faults).read(name)
        if facts.missing:
            raise UnknownNameError(f"{printable(name)}: {find_cause(facts)}")
        return inspection(facts)

    async def _retry(self, name: str) -> str:
        if name in await self.clients.queue.quarantined():
            raise UserError(f"{printable(name)} is quarantined. *Fix:* Run release {printable(name)}.")
        if not await self.clients.store.is_active(name):
            raise UnknownNameError(
                f"No unfinished sweep {printable(name)} in Redis. *Fix:* Run inspect or recover."
            )
        await self.clients.queue.add(WorkItem.sweep(name))
        return f"{name} queued: a worker reconciles it now."

    async def _recover(self) -> list[str]:
        found = await recover(self.clients)
        lines = [f"{counted(len(found.woken), 'unfinished sweep')} queued; {len(found.restored)} restored."]
        lines += [f"restored: {printable(each)}" for each in sorted(found.restored)]
        newer = "stored by a newer Sweepbot; finish the upgrade"
        return [*lines, *(f"unreadable: {printable(each)}: {newer}" for each in sorted(found.unreadable))]


async def release(queue: Queue, name: str) -> str:
    """Release an item from quarantine. Raises UserError with the quarantined items, and RedisError."""
    if await queue.retry(WorkItem.parse(name)):
        return f"{name} released. Sweepbot is retrying now."
    held = listed(sorted(await queue.quarantined())) or "none"
    raise UnknownNameError(f"{printable(name[:MAX_NAME])} isn't quarantined. Quarantined: {held}.")


async def answer_commands(_: str, clients: SweepClients, redis: Redis) -> None:
    """Answer each waiting `/sweep admin`: the handler of a work item.

    An error of a service is the answer: a retry would answer long after the question.
    """
    for command in await clients.store.commands(str(OPERATOR)):
        await clients.answer(command, str(OPERATOR), await _answer(command, Operator(clients, redis)))


async def _answer(command: Command, operator: Operator) -> str:
    """Check the permission here, too: admins can have changed since the command was queued."""
    word, _, name = command.changes.partition(" ")
    if refused := doctor_denial(command.user, operator.clients.config):
        at, about = operator.clients.now(), word[:MAX_NAME]
        entry = AuditEntry(at=at, user=command.user, action=Action.OPERATE, about=about, refused=refused)
        write_entry(name[:MAX_NAME], entry)
        return refused
    try:
        lines = await operator.run(word, name)
    except (UserError, ApiError, UnreachableError) as error:
        return plain(str(error))
    except RedisError:
        raise
    except Exception:  # the next question must not fail because of this one
        log.exception("can't answer admin command %s", printable(command.changes))
        return "Couldn't answer: internal error. *Fix:* Check the worker's log, and report the bug."
    return lines_mrkdwn(lines)
