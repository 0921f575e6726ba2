"""The durable record in the cluster: claimed first, closed with the sweep, trusted when Redis forgets."""

from dataclasses import replace

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.platform.slack.client import SlackBusyError
from bot.platform.storage import sweep_configmap
from bot.sweep.sweeps.durable_record import recover
from k8s.api.errors import ApiError, UnreachableError
from tests.bot.factories import ADMIN, OWNER, a_sweep
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

WHERE = ("ConfigMap", "sweeps", f"sweep-{SWEEP}")


@pytest.fixture
async def simulation(redis):
    async with SimulatedSweep(redis, Clock(None), endless=True, image=True).started() as simulation:
        yield simulation


async def rounds(simulation, count):
    for _ in range(count):
        await simulation.round()


async def cancel(simulation, user=OWNER):
    await simulation.store.add_command(SWEEP, Command(action=Action.CANCEL, user=user, user_name="ada"))


async def forget_and_resync(simulation):
    """Redis loses everything; the resync wakes what the cluster calls unfinished."""
    await simulation.redis.flushall()
    await recover(replace(simulation.clients, cluster=simulation.cluster))
    while lease := await simulation.clients.queue.get(wait=0):
        await simulation.clients.queue.done(lease)
        await rounds(simulation, 12)


def state(simulation):
    return simulation.kubernetes.get(*WHERE)["metadata"]["labels"][sweep_configmap.STATE_LABEL]


def slack_is_busy(simulation):
    async def busy(*_):
        raise SlackBusyError(30)

    simulation.slack.open_thread = busy


def answer_of_create_is_lost(simulation):
    """The call takes effect, but its response is lost."""
    create = simulation.cluster.create

    async def lost(manifest):
        await create(manifest)
        simulation.cluster.create = create
        raise UnreachableError("the API server does not answer")

    simulation.cluster.create = lost


async def test_cancel_while_slack_is_busy_closes_the_record_and_never_trains(simulation):
    slack_is_busy(simulation)
    await rounds(simulation, 3)
    await cancel(simulation)
    await rounds(simulation, 3)
    assert ((await simulation.record()).phase, state(simulation)) == (Phase.CANCELLED, "ended")
    del simulation.slack.open_thread
    await forget_and_resync(simulation)
    assert simulation.kubernetes.list("Experiment") == []


async def test_cancel_after_a_claim_whose_answer_was_lost_closes_the_record(simulation):
    answer_of_create_is_lost(simulation)
    await rounds(simulation, 1)
    await cancel(simulation)
    await rounds(simulation, 3)
    assert ((await simulation.record()).phase, state(simulation)) == (Phase.CANCELLED, "ended")
    await forget_and_resync(simulation)
    assert simulation.kubernetes.list("Experiment") == []


async def test_claim_that_arrives_after_the_end_finds_the_name_taken(simulation):
    async def away(*_):
        raise UnreachableError("the API server does not answer")

    create, simulation.cluster.create = simulation.cluster.create, away
    await rounds(simulation, 1)
    late = sweep_configmap.config_map(await simulation.record())
    await cancel(simulation)
    simulation.cluster.create = create
    await rounds(simulation, 3)
    with pytest.raises(ApiError, match="already exists"):
        await simulation.cluster.create(late)
    assert state(simulation) == "ended"


async def test_record_left_active_by_a_paused_worker_is_closed_by_the_resync(simulation):
    await rounds(simulation, 8)
    late = sweep_configmap.config_map(await simulation.record())
    await cancel(simulation)
    await rounds(simulation, 6)
    assert (await simulation.record()).phase is Phase.CANCELLED
    simulation.kubernetes.patch(*WHERE, late)
    assert state(simulation) == "active"
    await recover(replace(simulation.clients, cluster=simulation.cluster))
    assert (await simulation.clients.queue.get(wait=0)).item.key == SWEEP
    await rounds(simulation, 1)
    assert state(simulation) == "ended"


async def test_sweep_is_claimed_while_git_does_not_respond(simulation):
    async def away(*_):
        raise UnreachableError("git.example does not answer")

    resolve, simulation.git.resolve = simulation.git.resolve, away
    await rounds(simulation, 1)
    simulation.git.resolve = resolve
    await forget_and_resync(simulation)
    assert (await simulation.record()).phase in {Phase.PENDING, Phase.RUNNING}


async def test_restored_sweep_reports_that_commands_may_be_lost(simulation):
    await rounds(simulation, 8)
    await simulation.redis.flushall()
    await rounds(simulation, 3)
    assert [text for text in simulation.slack.posted if "Redis lost its data" in text] == [
        simulation.slack.posted[-1]
    ]
    await simulation.redis.flushall()
    await cancel(simulation)
    await rounds(simulation, 6)
    await simulation.redis.flushall()
    await rounds(simulation, 2)
    assert sum("Redis lost its data" in text for text in simulation.slack.posted) == 2, (
        "an ended one loses nothing"
    )


async def test_request_repeated_after_a_loss_continues_the_sweep(simulation):
    await rounds(simulation, 8)
    before = await simulation.record()
    await simulation.redis.flushall()
    again = a_sweep(request_id="trigger-1")
    await simulation.store.create(again, [SWEEP], "trigger-1")
    await rounds(simulation, 2)
    assert ((await simulation.record()).phase, (await simulation.record()).thread) == (
        before.phase,
        before.thread,
    )


@pytest.mark.parametrize("status", [403, 413])
async def test_record_that_the_cluster_rejects_with_its_plan_ends_the_sweep_with_a_message(
    simulation, status
):
    async def refused(*_, **__):
        raise ApiError(status, "", "no room for this ConfigMap")

    simulation.cluster.merge = refused
    await rounds(simulation, 4)
    [(user, text)] = simulation.slack.ephemeral_messages
    assert (user, "no room for this ConfigMap" in text) == (OWNER, True)
    assert (await simulation.record()).phase is Phase.REFUSED


@pytest.mark.parametrize(("user", "reported"), [(OWNER, [OWNER]), (ADMIN, [OWNER, ADMIN])])
async def test_sweep_cancelled_before_its_thread_opened_notifies_owner_and_canceller(
    simulation, user, reported
):
    slack_is_busy(simulation)
    await rounds(simulation, 2)
    await cancel(simulation, user)
    await rounds(simulation, 3)
    assert [to for to, _ in simulation.slack.ephemeral_messages] == reported
    assert all("Cancelled" in text and SWEEP in text for _, text in simulation.slack.ephemeral_messages)


async def test_invalid_name_reaches_no_api_path(simulation):
    asked = []
    get, forged = simulation.cluster.get, "../../x"

    async def spy(ref):
        asked.append(ref.name)
        return await get(ref)

    simulation.cluster.get = spy
    await simulation.store.add_command(forged, Command(action=Action.CANCEL, user=OWNER, user_name="ada"))
    for _ in range(2):
        await simulation.store.count_comparison()
    await simulation.round(item=forged)
    assert asked == []
    assert "No sweep named" in simulation.slack.ephemeral_messages[0][1]
