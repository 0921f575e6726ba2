"""The durable record in the cluster: claimed first, closed with the sweep, trusted when Redis forgets."""

from dataclasses import replace

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.slack.client import SlackBusyError
from bot.storage import sweep_configmap
from bot.sweeps.informer import SweepInformer
from k8s.errors import ApiError, UnreachableError
from tests.bot.factories import ADMIN, OWNER, a_sweep
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

WHERE = ("ConfigMap", "sweeps", f"sweep-{SWEEP}")


@pytest.fixture
async def life(redis):
    async with SimulatedSweep(redis, Clock(None), endless=True, image=True).started() as life:
        yield life


async def rounds(life, count):
    for _ in range(count):
        await life.round()


async def cancel(life, user=OWNER):
    await life.store.add_command(SWEEP, Command(action=Action.CANCEL, user=user, user_name="ada"))


async def forget_and_resync(life):
    """Redis loses everything; the resync wakes what the cluster calls unfinished."""
    await life.redis.flushall()
    await SweepInformer(life.redis, replace(life.clients, cluster=life.cluster))._wake_unfinished()
    while lease := await life.clients.queue.get(wait=0):
        await life.clients.queue.done(lease)
        await rounds(life, 12)


def state(life):
    return life.kubernetes.get(*WHERE)["metadata"]["labels"][sweep_configmap.STATE_LABEL]


def slack_is_busy(life):
    async def busy(*_):
        raise SlackBusyError(30)

    life.slack.open_thread = busy


def answer_of_create_is_lost(life):
    """The call takes effect, but nobody hears so."""
    create = life.cluster.create

    async def lost(manifest):
        await create(manifest)
        life.cluster.create = create
        raise UnreachableError("the API server does not answer")

    life.cluster.create = lost


async def test_cancel_while_slack_is_busy_closes_the_record_and_never_trains(life):
    slack_is_busy(life)
    await rounds(life, 3)
    await cancel(life)
    await rounds(life, 3)
    assert ((await life.record()).phase, state(life)) == (Phase.CANCELLED, "ended")
    del life.slack.open_thread
    await forget_and_resync(life)
    assert life.kubernetes.list("Experiment") == []


async def test_cancel_after_a_claim_whose_answer_was_lost_closes_the_record(life):
    answer_of_create_is_lost(life)
    await rounds(life, 1)
    await cancel(life)
    await rounds(life, 3)
    assert ((await life.record()).phase, state(life)) == (Phase.CANCELLED, "ended")
    await forget_and_resync(life)
    assert life.kubernetes.list("Experiment") == []


async def test_claim_that_arrives_after_the_end_finds_the_name_taken(life):
    async def away(*_):
        raise UnreachableError("the API server does not answer")

    create, life.cluster.create = life.cluster.create, away
    await rounds(life, 1)
    late = sweep_configmap.config_map(await life.record())
    await cancel(life)
    life.cluster.create = create
    await rounds(life, 3)
    with pytest.raises(ApiError, match="already exists"):
        await life.cluster.create(late)
    assert state(life) == "ended"


async def test_record_left_active_by_a_paused_worker_is_closed_by_the_resync(life):
    await rounds(life, 8)
    late = sweep_configmap.config_map(await life.record())
    await cancel(life)
    await rounds(life, 6)
    assert (await life.record()).phase is Phase.CANCELLED
    life.kubernetes.patch(*WHERE, late)
    assert state(life) == "active"
    await SweepInformer(life.redis, replace(life.clients, cluster=life.cluster))._wake_unfinished()
    assert (await life.clients.queue.get(wait=0)).item.key == SWEEP
    await rounds(life, 1)
    assert state(life) == "ended"


async def test_sweep_is_claimed_while_git_does_not_respond(life):
    async def away(*_):
        raise UnreachableError("git.example does not answer")

    resolve, life.git.resolve = life.git.resolve, away
    await rounds(life, 1)
    life.git.resolve = resolve
    await forget_and_resync(life)
    assert (await life.record()).phase in {Phase.PENDING, Phase.RUNNING}


async def test_restored_sweep_reports_that_commands_may_be_lost(life):
    await rounds(life, 8)
    await life.redis.flushall()
    await rounds(life, 3)
    assert [text for text in life.slack.said if "Redis lost its data" in text] == [life.slack.said[-1]]
    await life.redis.flushall()
    await cancel(life)
    await rounds(life, 6)
    await life.redis.flushall()
    await rounds(life, 2)
    assert sum("Redis lost its data" in text for text in life.slack.said) == 2, "an ended one loses nothing"


async def test_request_repeated_after_a_loss_continues_the_sweep(life):
    await rounds(life, 8)
    before = await life.record()
    await life.redis.flushall()
    again = a_sweep(request_id="trigger-1")
    await life.store.create(lambda _: again, [SWEEP], "trigger-1")
    await rounds(life, 2)
    assert ((await life.record()).phase, (await life.record()).thread) == (before.phase, before.thread)


@pytest.mark.parametrize("status", [403, 413])
async def test_record_that_the_cluster_rejects_with_its_plan_ends_the_sweep_with_a_message(life, status):
    async def refused(*_, **__):
        raise ApiError(status, "", "no room for this ConfigMap")

    life.cluster.merge = refused
    await rounds(life, 4)
    [(user, text)] = life.slack.whispers
    assert (user, "no room for this ConfigMap" in text) == (OWNER, True)
    assert (await life.record()).phase is Phase.REFUSED


@pytest.mark.parametrize(("user", "told"), [(OWNER, [OWNER]), (ADMIN, [OWNER, ADMIN])])
async def test_sweep_cancelled_before_its_thread_opened_notifies_owner_and_canceller(life, user, told):
    slack_is_busy(life)
    await rounds(life, 2)
    await cancel(life, user)
    await rounds(life, 3)
    assert [to for to, _ in life.slack.whispers] == told
    assert all("Cancelled" in text and SWEEP in text for _, text in life.slack.whispers)


async def test_invalid_name_reaches_no_api_path(life):
    asked = []
    get, forged = life.cluster.get, "../../x"

    async def spy(ref):
        asked.append(ref.name)
        return await get(ref)

    life.cluster.get = spy
    await life.store.add_command(forged, Command(action=Action.CANCEL, user=OWNER, user_name="ada"))
    await life.round(item=forged)
    assert asked == []
    assert "No sweep named" in life.slack.whispers[0][1]
