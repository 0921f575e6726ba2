"""Redis loses everything, or a process dies, between two steps of a request."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.platform.storage import sweep_configmap
from bot.platform.storage.sweeps import StaleRecordError
from bot.sweep.sweeps.durable_record import recover
from k8s.api.errors import UnreachableError
from tests.bot.factories import NOW, OWNER, a_sweep
from tests.handlers.factories import a_context
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep, WorkerCrash
from tests.scenarios.test_unconfirmed import CANCEL, restarted, rounds

DRAIN = Command(action=Action.DRAIN, user=OWNER, user_name="ada")
PAUSE = Command(action=Action.PAUSE, user=OWNER, user_name="ada")


@pytest.fixture(autouse=True)
def patient_slack(monkeypatch):
    """On a busy machine Redis can take longer than Slack waits."""
    monkeypatch.setattr("handlers.context.ACK_TIMEOUT", 200)


@pytest.fixture
async def simulation(redis):
    async with SimulatedSweep(redis, Clock(None), endless=True, image=True).started() as simulation:
        yield simulation


@pytest.fixture
def context(simulation):
    return a_context(simulation.redis, store=simulation.store, queue=simulation.clients.queue)


def once(target, method, *, before=None, after=None):
    """Run `before` or `after` around the next call of the method."""
    call = getattr(target, method)

    async def interrupted(*args, **kwargs):
        setattr(target, method, call)
        if before:
            await before()
        answer = await call(*args, **kwargs)
        if after:
            await after()
        return answer

    setattr(target, method, interrupted)


def unknown(simulation):
    return [text for _, text in simulation.slack.ephemeral_messages if "No sweep named" in text]


async def died():
    raise WorkerCrash


@pytest.mark.parametrize("restored", ["after the answer", "before the answer"])
@pytest.mark.parametrize("action", [Action.RERUN, Action.PROMOTE])
async def test_rerun_that_is_lost_between_its_start_and_its_answer_starts_again(redis, action, restored):
    async with SimulatedSweep(redis, Clock(None), image=True).started() as simulation:
        await rounds(simulation, 14)
        assert (await simulation.record()).phase is Phase.SUCCEEDED
        context = a_context(redis, store=simulation.store, queue=simulation.clients.queue)
        changes = "seeds=3" if action is Action.PROMOTE else ""
        again = Command(action=action, user=OWNER, user_name="ada", request_id="T9", changes=changes)
        await context.send(SWEEP, again)

        async def lost():
            await redis.flushall()
            if restored == "before the answer":
                await context.unconfirmed.restore_lost()

        once(simulation.slack, "post_ephemeral", before=lost)
        await simulation.round()
        after = restarted(context)
        for _ in range(2):
            await after.unconfirmed.restore_lost()
            await simulation.round()
        [new] = await simulation.store.active()
        assert (await simulation.store.get(new)).request_id == "T9"


async def test_command_to_a_sweep_that_serve_has_yet_to_restore_waits_for_it(simulation, context):
    await context.unconfirmed.add_sweep(await simulation.record())
    await simulation.redis.flushall()
    await context.send(SWEEP, CANCEL)
    await simulation.round()
    assert await simulation.store.commands(SWEEP) == [CANCEL]
    await context.unconfirmed.restore_lost()
    await rounds(simulation, 2)
    assert ((await simulation.record()).phase, unknown(simulation)) == (Phase.CANCELLED, [])


@pytest.mark.parametrize("lost", ["before the lease", "under the lease"])
async def test_sweep_restored_while_its_worker_looks_for_it_is_not_unknown(simulation, context, lost):
    """Its `serve` is late: another one has compared its own requests twice."""
    await context.unconfirmed.add_sweep(await simulation.record())
    other = a_context(simulation.redis, store=simulation.store, queue=simulation.clients.queue)

    async def flushed():
        await simulation.redis.flushall()
        for _ in range(2):
            await other.unconfirmed.restore_lost()

    async def restored():
        if lost == "before the lease":
            await context.unconfirmed.restore_lost()
        await context.send(SWEEP, CANCEL)

    if lost == "before the lease":
        await flushed()
    else:
        once(simulation.store, "with_commands", before=flushed)
    once(simulation.store, "commands", before=restored)
    await simulation.round()
    await context.unconfirmed.restore_lost()
    await rounds(simulation, 2)
    assert ((await simulation.record()).phase, unknown(simulation)) == (Phase.CANCELLED, [])


async def test_command_given_again_while_serve_compares_stays_unconfirmed(simulation, context):
    await context.send(SWEEP, PAUSE)
    await simulation.store.remove_commands(SWEEP, [PAUSE])
    once(simulation.store, "request_states", after=partial(context.send, SWEEP, PAUSE))
    await context.unconfirmed.restore_lost()
    await simulation.redis.flushall()
    await restarted(context).unconfirmed.restore_lost()
    assert await simulation.store.commands(SWEEP) == [PAUSE]


async def test_command_stored_while_serve_compares_is_stored_once(simulation, context):
    once(simulation.store, "versions", before=partial(context.send, SWEEP, DRAIN))
    await context.unconfirmed.restore_lost()
    assert await simulation.store.commands(SWEEP) == [DRAIN]


async def test_request_that_slack_repeated_to_a_second_serve_is_restored_once(simulation, context):
    second = a_context(simulation.redis, store=simulation.store, queue=simulation.clients.queue)
    for each in (context, second):
        await each.send(SWEEP, DRAIN, once="Ev1")
    assert len(second.unconfirmed._open) == 1
    await simulation.redis.flushall()
    once(simulation.store, "request_states", after=second.unconfirmed.restore_lost)
    await context.unconfirmed.restore_lost()
    assert await simulation.store.commands(SWEEP) == [DRAIN]


async def test_lost_commands_are_restored_in_their_order_before_those_since(simulation, context):
    resume = Command(action=Action.RESUME, user=OWNER, user_name="ada")
    for number, command in enumerate([DRAIN, PAUSE]):
        context.unconfirmed._now = lambda number=number: NOW + timedelta(seconds=number)
        await context.send(SWEEP, command)
    await simulation.redis.flushall()
    await context.send(SWEEP, resume)
    await context.unconfirmed.restore_lost()
    assert await simulation.store.commands(SWEEP) == [DRAIN, PAUSE, resume]


async def test_sweep_renamed_just_before_the_loss_is_restored_under_its_new_name(simulation, context):
    older = a_sweep(id=SWEEP, request_id="older", phase=Phase.SUCCEEDED)
    simulation.kubernetes.create(sweep_configmap.config_map(older))
    await context.unconfirmed.add_sweep(await simulation.record())
    await simulation.round()
    [renamed] = await simulation.store.active()
    await context.unconfirmed.restore_lost()
    await simulation.redis.flushall()
    after = restarted(context)
    await after.unconfirmed.restore_lost()
    assert await simulation.store.active() == {renamed}
    await simulation.round(item=renamed)
    await after.unconfirmed.restore_lost()
    assert after.unconfirmed._open == {}


async def test_command_whose_worker_died_before_it_acted_is_restored(simulation, context):
    await rounds(simulation, 8)
    await context.send(SWEEP, DRAIN)
    once(simulation.store, "remove_requests", after=died)
    await simulation.round()
    assert await simulation.store.commands(SWEEP) == []
    await context.unconfirmed.restore_lost()
    await simulation.redis.flushall()
    await context.unconfirmed.restore_lost()
    assert await simulation.store.commands(SWEEP) == [DRAIN]
    await rounds(simulation, 2)
    queue = context.queue
    await queue.done(await queue.get(wait=0))
    await context.unconfirmed.restore_lost()
    assert context.unconfirmed._open == {}


async def test_cancel_lost_while_serve_compares_is_restored(simulation, context):
    """The sweep is back from its ConfigMap, which has no cancel yet."""

    async def away(*_, **__):
        raise UnreachableError("the API server does not answer")

    async def lost():
        await simulation.redis.flushall()
        await recover(replace(simulation.clients, cluster=simulation.cluster))

    await rounds(simulation, 8)
    merge, simulation.cluster.merge = simulation.cluster.merge, away
    await context.send(SWEEP, CANCEL)
    await simulation.round()
    simulation.cluster.merge = merge
    once(simulation.store, "request_states", after=lost)
    for _ in range(2):
        await context.unconfirmed.restore_lost()
    await rounds(simulation, 8)
    assert (await simulation.record()).phase is Phase.CANCELLED


async def test_late_worker_removes_no_equal_command_that_was_given_since(simulation, context):
    """It is suspended after its save; another one handles the command, and users give two more."""
    await rounds(simulation, 8)
    await context.send(SWEEP, PAUSE)

    async def suspended():
        await simulation.redis.delete("life:lease:worker")
        await simulation.store.remove_commands(SWEEP, [PAUSE])
        await context.send(SWEEP, PAUSE)

    once(simulation.store, "remove_commands", before=suspended)
    with pytest.raises(StaleRecordError):
        await simulation.round()
    assert await simulation.store.commands(SWEEP) == [PAUSE]


async def test_unreadable_file_of_a_process_that_died_hides_no_other(simulation, context):
    await context.unconfirmed.add_sweep(await simulation.record())
    folder = context.unconfirmed._folder
    (folder / "z.unconfirmed").mkdir()  # sorted last
    await simulation.redis.flushall()
    after = restarted(context)
    for _ in range(2):
        await after.unconfirmed.restore_lost()
    assert await simulation.store.active() == {SWEEP}
    assert "Is a directory" in after.unconfirmed._unread
