"""Two workers check two sweeps against one limit of GPUs at the same moment: one sweep gets the rest."""

import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.work_item import WorkItem
from bot.platform.config.limits import Launch
from bot.platform.config.teams import Team
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Lease
from bot.sweep.sweeps.reconciler import reconcile
from tests.bot.factories import CONFIG, NOW, OWNER, STRANGER, a_sweep
from tests.scenarios.sweep_in_memory import SPACE, SWEEP, Clock, SimulatedSweep, WorkerCrash

SECOND = "lr-calm-lynx"
PERSON = replace(CONFIG, launch=Launch(gpus_per_person=3))
TEAM = replace(CONFIG, teams=(Team(name="vision", members=(OWNER, STRANGER), gpus_total=3),))
COMMANDS = {Phase.RUNNING: Action.DRAIN, Phase.PAUSED: Action.RESUME, Phase.SUCCEEDED: Action.EXTEND}
STARTS = [
    Phase.RECEIVED,
    pytest.param(Phase.PAUSED, marks=pytest.mark.features("pause")),
    pytest.param(Phase.SUCCEEDED, marks=pytest.mark.features("extension")),
]
STARTED = {Phase.OPENING, Phase.RUNNING}


class GapStore(Store):
    """Runs `meanwhile` once, between what a worker has read about SWEEP and its save of the decision."""

    meanwhile = None
    checks = 0

    async def save(self, record, lease=None, checks=()):
        started = record.id == SWEEP and record.phase in STARTED
        if started and (meanwhile := self.meanwhile):
            self.meanwhile = None
            await meanwhile()
        return await super().save(record, lease, checks)

    async def limit_check(self, group):
        self.checks += 1
        return await super().limit_check(group)


class TwoSweeps(SimulatedSweep):
    """Each can use two GPUs, of three. `other`: the owner of the second sweep."""

    def __init__(self, redis, *, other=OWNER):
        space = SPACE.replace("[a, b, c]", "[a, b, c, d, e]")
        space = space.replace("max_failed: 1", "max_failed: 1, trial_hours: 2")
        super().__init__(redis, Clock(None), image=True, endless=True, space=space)
        self.store = GapStore(redis, prefix="life")
        self.clients = replace(self.clients, store=self.store)
        self.owners = {SWEEP: OWNER, SECOND: other}

    async def brought_to(self, sweep, phase):
        """Bring the sweep to this phase, and store the command that is given in it."""
        if phase is Phase.RECEIVED:
            return
        if sweep == SECOND:
            await self.create_second()
        await self._until(sweep, Phase.RUNNING)
        if phase is Phase.PAUSED:
            await self.asked(sweep, Action.PAUSE_NOW)
        self.scenario["endless"] = False
        await self._until(sweep, phase)
        self.scenario["endless"] = True
        await self.asked(sweep, COMMANDS[phase])

    async def create_second(self):
        """A clock that is behind dates it before the first one, so that it doesn't wait for that."""
        requester = replace(a_sweep().requester, user=self.owners[SECOND])
        earlier = NOW - timedelta(seconds=1)
        another = a_sweep(id=SECOND, request_id="trigger-2", created=earlier, requester=requester)
        await self.store.create(another, [SECOND], "trigger-2")

    async def start_second(self):
        if await self.store.get(SECOND) is None:
            await self.create_second()
        await self.reconciled(SECOND)

    async def asked(self, sweep, action):
        owner = self.owners[sweep]
        await self.store.add_command(sweep, Command(action=action, user=owner, user_name="ada", trials=5))

    async def _until(self, sweep, phase):
        for _ in range(40):
            if (await self.store.get(sweep)).phase is phase:
                return
            await self.round(item=sweep)
        raise AssertionError(self.texts())

    async def reconciled(self, sweep):
        """Return after how long the sweep is reconciled again."""
        lease = Lease(WorkItem.sweep(sweep), f"worker of {sweep}", failures=0, key=f"life:lease:{sweep}")
        await self.redis.set(lease.key, lease.token)
        return await reconcile(lease, self.clients)

    async def started_sweeps(self):
        records = await self.store.records([SWEEP, SECOND])
        return [one.id for one in records if one.phase in STARTED]


@pytest.fixture
def owner():
    return OWNER


@pytest.fixture
async def two(redis, owner):
    story = TwoSweeps(redis, other=owner)
    async with story.started():
        yield story


@pytest.mark.slow
@pytest.mark.parametrize("first", STARTS)
@pytest.mark.parametrize("second", STARTS)
@pytest.mark.parametrize("owner", [STRANGER])
async def test_of_two_sweeps_of_a_team_checked_at_once_one_starts(two, first, second, caplog):
    await one_starts(two, first, second, TEAM, caplog)


@pytest.mark.parametrize(
    ("owner", "first", "second", "config"),
    [
        pytest.param(OWNER, Phase.RECEIVED, Phase.PAUSED, PERSON, marks=pytest.mark.features("pause")),
        pytest.param(
            OWNER, Phase.PAUSED, Phase.SUCCEEDED, PERSON, marks=pytest.mark.features("pause", "extension")
        ),
        pytest.param(OWNER, Phase.SUCCEEDED, Phase.RECEIVED, PERSON, marks=pytest.mark.features("extension")),
        (STRANGER, Phase.RECEIVED, Phase.RECEIVED, TEAM),
    ],
)
async def test_of_two_sweeps_checked_at_once_one_starts(two, first, second, config, caplog):
    """Each start is once the first and once the second; `make slow` has all pairs, of a team."""
    await one_starts(two, first, second, config, caplog)


async def one_starts(two, first, second, config, caplog):
    await two.brought_to(SWEEP, first)
    await two.brought_to(SECOND, second)
    assert await two.started_sweeps() == []
    two.clients.config, two.store.meanwhile = config, two.start_second
    caplog.set_level(logging.INFO, "sweepbot.audit")
    caplog.clear()
    assert await two.reconciled(SWEEP) == timedelta(0)
    assert await two.started_sweeps() == [SECOND]
    await two.reconciled(SWEEP)
    assert await two.started_sweeps() == [SECOND]
    assert "can use up to 2, and" in dict(two.slack.ephemeral_messages)[OWNER]
    lines = [line for line in caplog.messages if f"sweep={SWEEP}" in line]
    assert len(lines) == 3
    assert lines[0].endswith(": allowed")
    assert ": checked again: " in lines[1]
    assert ": denied: This sweep can use up to 2 GPUs, " in lines[2]


async def test_sweeps_that_both_fit_start_at_the_second_check(two):
    two.clients.config = replace(CONFIG, launch=Launch(gpus_per_person=4))
    two.store.meanwhile = two.start_second
    assert await two.reconciled(SWEEP) == timedelta(0)
    await two.reconciled(SWEEP)
    assert await two.started_sweeps() == [SWEEP, SECOND]


@pytest.mark.features("extension", "approval")
@pytest.mark.parametrize("owner", [OWNER, STRANGER])
async def test_of_two_sweeps_extended_at_once_one_exceeds_the_budget_also_beside_a_limit_of_gpus(two):
    """Each needs 10 of 15 GPU-hours. The limit of GPUs is each person's, the budget both's."""
    two.clients.config = replace(
        CONFIG,
        launch=Launch(gpus_per_person=100),
        teams=(Team(name="vision", members=(OWNER, STRANGER), budget="15"),),
    )
    await two.brought_to(SWEEP, Phase.SUCCEEDED)
    await two.brought_to(SECOND, Phase.SUCCEEDED)
    two.store.meanwhile = two.start_second
    assert await two.reconciled(SWEEP) == timedelta(0)
    await two.reconciled(SWEEP)
    assert await two.started_sweeps() == [SECOND]
    assert "That exceeds a budget: the forecast is 10 GPU-h" in dict(two.slack.ephemeral_messages)[OWNER]


async def test_worker_that_dies_between_check_and_save_holds_up_no_other_sweep(two):
    two.clients.config = PERSON

    async def dies():
        raise WorkerCrash

    two.store.meanwhile = dies
    with pytest.raises(WorkerCrash):
        await two.reconciled(SWEEP)
    await two.start_second()
    assert await two.started_sweeps() == [SECOND]
    await two.reconciled(SWEEP)
    assert await two.started_sweeps() == [SECOND]


@pytest.mark.parametrize(
    ("config", "phase"),
    [(PERSON, Phase.RUNNING), pytest.param(CONFIG, Phase.PAUSED, marks=pytest.mark.features("pause"))],
)
async def test_command_that_no_limit_concerns_needs_no_check(two, config, phase):
    """A drain, and without limits a resume."""
    await two.brought_to(SWEEP, phase)
    two.clients.config = config
    before = two.store.checks
    await two.reconciled(SWEEP)
    assert two.store.checks == before
    assert (await two.store.get(SWEEP)).phase is Phase.RUNNING
