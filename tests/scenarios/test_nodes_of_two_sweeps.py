"""Two sweeps with several nodes per trial, without a queue: neither starts half of a trial."""

from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from bot.platform.storage.free_capacity import CapacityStore
from bot.sweep.answers.messages import listing
from bot.sweep.features.nodes.decide import NodesState
from bot.sweep.features.pause.decide import PauseState
from bot.sweep.lifecycle.trouble import report_trouble
from bot.sweep.sweeps.reconciler import report_quarantine
from k8s.api.errors import ApiError
from k8s.objects import GPU
from tests.bot.factories import CONFIG
from tests.scenarios.sweep_in_memory import SPACE, SWEEP
from tests.scenarios.two_sweeps import SECOND, TwoSweeps

THIRD = "lr-eager-gnu"


def waiting_for(*ahead):
    return f"Waiting for 3 nodes with 8 free GPUs each. Sweeps ahead: {', '.join(ahead)}."


WAITING = waiting_for(f"{SWEEP} (running)")


@asynccontextmanager
async def busy(story):
    """The first sweep's trial runs on three of four nodes, and a second sweep is created."""
    async with story.started():
        for name in story.nodes[1:]:
            story.add_node(name, 8)
        await story.until(lambda: len(story.running()) == 3)
        await story.start_another()
        yield story


@pytest.fixture
async def four(redis):
    async with busy(TwoSweeps(redis, nodes=4)) as story:
        yield story


async def test_second_sweep_starts_when_the_first_one_has_ended(four):
    await four.until_both(lambda: any(WAITING in text for text in four.slack.posted))
    await four.both(4)
    assert four.kubernetes.get("Experiment", "sweeps", SECOND) is None
    assert WAITING in four.slack.parents[-1].blocks[0]["text"]["text"]
    four.endings = 1000
    await four.until_both(lambda: four.trials_of(SECOND))
    assert four.last.phase in {Phase.STOPPING, Phase.SUCCEEDED}
    assert len(four.trials_of(SWEEP)) == 3, "all trials of the first one came before"
    for _ in range(18):
        await four.both()
    assert (await four.store.get(SECOND)).phase is Phase.SUCCEEDED
    assert len([text for text in four.slack.posted if WAITING in text]) == 1


async def test_second_sweep_starts_beside_the_first_one_when_its_nodes_are_free(four):
    await four.both(6)
    assert four.workers(SECOND) == []
    for name in ("n5", "n6"):
        four.nodes.append(name)
        four.add_node(name, 8)
    await four.until_both(lambda: len({*four.workers(SECOND)} - {""}) == 3)
    assert len({*four.workers(SWEEP)} - {""}) == 3


async def test_nodes_of_a_sweep_between_two_trials_are_not_free(four):
    for name in ("n5", "n6"):
        four.nodes.append(name)
        four.add_node(name, 8)
    four.other_pod("other", 8)  # takes one of the six nodes
    await four.both(3)
    for _ in range(2):  # each ends a trial of the first sweep, in one round
        four.endings = 3
        await four.both(2)
        assert not four.workers(SECOND)


async def test_waiting_sweep_can_be_cancelled_and_leaves_nothing(four):
    await four.both(6)
    await four.asks(Action.CANCEL, SECOND)
    await four.both(2)
    assert (await four.store.get(SECOND)).phase is Phase.CANCELLED
    assert four.kubernetes.get("Experiment", "sweeps", SECOND) is None
    store = CapacityStore(four.redis)
    assert [one.sweep for one in await store.requests(four.time)] == [SWEEP]


@pytest.mark.parametrize("first_one_returns_after", [12, 3])
async def test_second_sweep_waits_after_a_pause_of_all_workers(four, first_one_returns_after):
    """The second one is handled first, while the first one is between two trials."""
    four.endings = 3
    await four.both()
    four.time += timedelta(minutes=11)
    four.add_node("n5", 8)
    for number in range(12):
        await four.round(item=SECOND)
        if number >= first_one_returns_after:
            await four.round()
        assert len(four.workers(SWEEP)) == 0 or not four.workers(SECOND)
        assert four.kubernetes.get("Experiment", "sweeps", SECOND) is None


async def test_of_two_sweeps_that_decide_at_once_one_starts(redis):
    story = TwoSweeps(redis, nodes=4)
    async with story.started():
        for name in story.nodes[1:]:
            story.add_node(name, 8)
        await story.start_another()
        await story.both(12)
        assert sorted(len(story.trials_of(each)) for each in (SWEEP, SECOND)) == [0, 1]


async def test_sweep_ahead_is_starting_until_its_first_trial_runs(redis):
    story = TwoSweeps(redis, nodes=1)
    async with story.started():
        await story.until(lambda: story.trials_of(SWEEP))
        await story.start_another()
        await story.both(4)
        assert waiting_for(f"{SWEEP} (starting)") in story.parent_of(SECOND)
        for name in ("n2", "n3"):
            story.nodes.append(name)
            story.add_node(name, 8)
        await story.until_both(lambda: WAITING in story.parent_of(SECOND))
        assert story.runs(SWEEP)


async def test_sweep_waits_while_another_worker_decides_and_starts_after_its_death(redis):
    story = TwoSweeps(redis, nodes=4)
    async with story.started():
        await CapacityStore(redis).lock_starts(SECOND)
        await story.both(8)
        assert story.trials_of(SWEEP) == []
        assert "Checking for free nodes." in story.parent_of(SWEEP)
        await CapacityStore(redis).unlock_starts(SECOND)  # Redis does it after START_LOCK
        await story.until_both(lambda: story.trials_of(SWEEP))


async def test_single_sweep_never_waits_and_is_not_measured(redis):
    story = TwoSweeps(redis, nodes=1)
    async with story.started():
        await story.until(lambda: story.kubernetes.get("Experiment", "sweeps", SWEEP))
        assert not any("Waiting for" in text for text in story.slack.posted)
        calls = []
        listed = story.cluster.list

        async def recorded(kind, *args, **kwargs):
            calls.append(kind)
            return await listed(kind, *args, **kwargs)

        story.cluster.list = recorded
        await story.rounds(5)
        assert "Node" not in calls


async def test_resumed_sweep_waits_for_one_that_started_meanwhile_and_can_be_paused_again(four):
    await four.asks(Action.PAUSE_NOW)
    await four.until_both(lambda: four.runs(SECOND))
    await four.asks(Action.RESUME)
    await four.both(4)
    assert (four.last.phase, four.workers(SWEEP)) == (Phase.RUNNING, [])
    assert four.last.of(NodesState).wait == waiting_for(f"{SECOND} (running)")
    shown = f":hourglass_flowing_sand: *{SWEEP}* · Waiting for nodes"
    assert f"{shown}\n" in four.parent_of(SWEEP)
    assert "lr-brave-otter>* · Waiting for nodes · 1 of 3 trials" in listing(await four.store.listed())
    await four.asks(Action.DRAIN)
    assert "is waiting for nodes" in four.slack.ephemeral_messages[-1][1]
    await four.asks(Action.PAUSE)
    await four.both(2)
    assert (four.last.phase, four.last.of(NodesState).wait) == (Phase.PAUSED, "")
    four.endings = 1000
    await four.until_both(lambda: not four.workers(SECOND))
    assert four.workers(SWEEP) == []
    await four.asks(Action.RESUME)
    await four.until_both(lambda: four.last.phase.final)
    assert four.last.phase is Phase.SUCCEEDED
    assert len([text for text in four.slack.posted if waiting_for(f"{SECOND} (running)") in text]) == 1


async def test_nodes_of_a_pausing_sweep_are_kept_for_its_resume_until_it_is_paused(four):
    await four.asks(Action.PAUSE)
    await four.both(2)
    four.endings = 3
    await four.round(item=SECOND)  # the first one's last trial ends, which only its own worker reports
    for _ in range(3):
        await four.round(item=SECOND)
    assert (four.last.phase, four.workers(SWEEP), four.workers(SECOND)) == (Phase.RUNNING, [], [])
    await four.asks(Action.RESUME)
    await four.until_both(lambda: four.runs(SWEEP))
    assert four.workers(SECOND) == []


async def test_second_sweep_starts_once_the_first_one_is_paused(four):
    await four.asks(Action.PAUSE)
    await four.both(2)
    four.endings = 3
    await four.until_both(lambda: four.runs(SECOND))
    assert four.last.phase is Phase.PAUSED


async def test_wait_of_a_resumed_sweep_does_not_count_toward_max_hours(redis):
    space = SPACE.replace("max: 3,", "max: 3, max_hours: 1,")
    async with busy(TwoSweeps(redis, nodes=4, space=space)) as story:
        await story.asks(Action.PAUSE_NOW)
        await story.until_both(lambda: story.runs(SECOND))
        before = (await story.record()).deadline - story.last.of(PauseState).at
        await story.asks(Action.RESUME)
        story.time += timedelta(hours=5)
        await story.both(2)
        assert not story.last.draining
        await story.asks(Action.PAUSE)
        await story.both(2)
        await story.asks(Action.RESUME)
        await story.both(2)
        resumed, waiting = story.time, story.last
        for name in ("n5", "n6"):
            story.nodes.append(name)
            story.add_node(name, 8)
        await story.until_both(lambda: story.runs(SWEEP))
        assert story.runs(SECOND)
        assert story.last.deadline - resumed > before - timedelta(minutes=1)
        async with story.leased(SWEEP) as lease:
            older = replace(waiting, version=story.last.version)
            await story.store.save(older, lease)  # as after a failover of Redis to an older replica
        await story.both()
        assert story.last.of(NodesState).wait == "", "its trial runs"


@pytest.mark.features("extension")
async def test_extended_sweep_waits_for_one_that_started_meanwhile(redis):
    space = SPACE.replace("[a, b, c]", "[a, b, c, d, e]")
    async with busy(TwoSweeps(redis, nodes=4, space=space)) as story:
        story.endings = 9
        await story.until_both(lambda: story.runs(SECOND) and story.last.phase is Phase.SUCCEEDED)
        await story.asks(Action.EXTEND, trials=5)
        await story.both(4)
        assert (story.workers(SWEEP), len(story.trials_of(SWEEP))) == ([], 3)
        assert story.last.of(NodesState).wait == waiting_for(f"{SECOND} (running)")
        story.endings = 1000
        await story.until_both(lambda: story.last.phase is Phase.SUCCEEDED)
        assert len(story.trials_of(SWEEP)) == 5


async def test_waiting_sweeps_start_in_the_order_in_which_they_began_to_wait(four):
    """Also if Redis loses it."""
    await four.both(6)
    await four.start_another(THIRD)
    four.sweeps = [THIRD, SECOND, SWEEP]  # the latest is handled first
    await four.both(4)
    both = waiting_for(f"{SWEEP} (running)", f"{SECOND} (waiting)").replace(", lr-calm", " and lr-calm")
    assert (await four.store.get(THIRD)).of(NodesState).wait == both
    await four.restore(SWEEP, SECOND, THIRD)
    four.endings = 9
    await four.until_both(lambda: four.trials_of(SECOND) or four.trials_of(THIRD))
    assert four.trials_of(THIRD) == []
    four.endings = 1000
    await four.until_both(lambda: four.trials_of(THIRD))
    assert (await four.store.get(SECOND)).phase in {Phase.STOPPING, Phase.SUCCEEDED}


async def test_smaller_sweep_does_not_take_the_nodes_that_an_earlier_one_waits_for(four):
    await four.both(6)
    four.request = replace(four.request, nodes=2)
    await four.start_another(THIRD)
    await four.both(2)
    four.nodes.append("n5")
    four.add_node("n5", 8)  # enough for the third beside the first, but the second comes before it
    await four.both(8)
    assert (four.trials_of(SECOND), four.trials_of(THIRD)) == ([], [])
    for name in ("n6", "n7", "n8"):
        four.nodes.append(name)
        four.add_node(name, 8)
    await four.until_both(lambda: four.trials_of(SECOND))
    assert four.trials_of(THIRD) == [], "the free nodes are measured again first"
    assert (await four.store.get(THIRD)).of(NodesState).wait.startswith("Waiting for 2 nodes")
    await four.redis.delete(f"capacity:main:growth:{GPU}")  # Redis does it after GROWTH_LOCK
    await four.until_both(lambda: four.trials_of(THIRD))


async def test_waiting_sweep_does_not_start_when_redis_loses_the_other_one(four):
    await four.both(6)
    await four.restore(SECOND)
    for _ in range(12):
        await four.round(item=SECOND)
        assert four.trials_of(SECOND) == []
    assert (await four.store.get(SECOND)).of(NodesState).wait == WAITING
    await four.both(4)  # restores the first one
    four.endings = 1000
    await four.until_both(lambda: four.trials_of(SECOND))
    assert len(four.trials_of(SWEEP)) == 3


async def test_waiting_sweep_starts_when_the_experiment_of_a_quarantined_one_has_ended(four):
    await four.both(6)
    async with four.leased(SWEEP) as lease:
        await report_quarantine(lease, four.clients)
    four.sweeps = [SECOND]
    await four.both(6)
    assert four.trials_of(SECOND) == [], "the first one's trials still run"
    four.endings = 1000
    await four.until_both(lambda: four.trials_of(SECOND))


async def test_waiting_sweep_whose_reconciles_keep_failing_holds_up_no_other(four):
    await four.both(6)
    await four.start_another(THIRD)
    await four.both(4)
    async with four.leased(SECOND) as lease:  # its namespace can't be read anymore
        failing = report_trouble(await four.store.get(SECOND), "forbidden (403)")
        await four.store.save(failing, lease)
    four.sweeps, four.endings = [THIRD, SWEEP], 1000
    await four.until_both(lambda: four.trials_of(THIRD))


@pytest.mark.parametrize(("cluster", "queue"), [("west", ""), ("", "gpus")])
async def test_sweep_waits_for_none_in_another_cluster_or_in_a_queue(four, cluster, queue):
    await four.both(6)
    async with four.leased(SWEEP) as lease:
        first = await four.store.get(SWEEP)
        elsewhere = replace(first, cluster=cluster or first.cluster, plan=replace(first.plan, queue=queue))
        await four.store.save(elsewhere, lease)
    four.sweeps = [SECOND]
    await four.until_both(lambda: four.trials_of(SECOND))


@pytest.mark.parametrize(("status", "starts"), [(403, True), (500, False)])
async def test_namespace_is_skipped_only_if_its_experiments_cannot_be_listed(redis, status, starts):
    story = TwoSweeps(redis, nodes=4)
    story.clients = replace(story.clients, config=replace(CONFIG, namespaces=("closed",)))
    listed = story.cluster.list

    async def answered(kind, namespace, **options):
        if namespace == "closed":
            raise ApiError(status, "", "")
        return await listed(kind, namespace, **options)

    story.cluster.list = answered
    async with story.started():
        await story.both(6)
        assert bool(story.trials_of(SWEEP)) is starts
