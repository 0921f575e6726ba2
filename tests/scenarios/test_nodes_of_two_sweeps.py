"""Two sweeps with several nodes per trial, without a queue: neither starts half of a trial."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action, Command
from bot.core.pace import CapacityRequest
from bot.core.record import Phase
from bot.storage.free_capacity import CapacityStore
from k8s.objects import GPU, SWEEP_LABEL
from local.kubernetes import store as kubernetes
from tests.bot.factories import NOW, OWNER, REQUEST, a_sweep
from tests.scenarios.auto_sweep import AutoSweep
from tests.scenarios.sweep_in_memory import SPACE, SWEEP

SECOND = "lr-calm-fox"
WAITING = "Waiting for 3 nodes with 8 free GPUs each, because another sweep runs trials on several nodes."


class TwoSweeps(AutoSweep):
    """Each trial has a worker on each of three nodes. `nodes`: with 8 GPUs each."""

    def __init__(self, redis, *, nodes):
        request = replace(REQUEST, parallel=1, gpus=8, nodes=3, gate=False)
        super().__init__(redis, gpus=8, space=SPACE)
        self.scenario["sweep"] = {"request": request}
        self.second = a_sweep(request_id="trigger-2", request=request)
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]

    async def start_second(self):
        await self.store.create(lambda i: replace(self.second, id=i), [SECOND], "trigger-2")

    async def both(self, rounds=1):
        for _ in range(rounds):
            for sweep in (SWEEP, SECOND):
                await self.round(item=sweep)
            assert len(self.half_started()) < 2, "each has nodes that the other one needs"

    async def until_both(self, holds, rounds=60):
        for _ in range(rounds):
            if holds():
                return
            await self.both()
        raise AssertionError(self.slack.posted)

    def trials_of(self, sweep):
        trials = self.kubernetes.list("Trial")
        return [t for t in trials if t["metadata"]["name"].startswith(sweep)]

    def workers(self, sweep):
        """Return the nodes of the unfinished workers; "" has none."""
        pods = self.kubernetes.list("Pod", None, {SWEEP_LABEL: sweep})
        alive = [pod for pod in pods if pod["status"]["phase"] in {"Pending", "Running"}]
        return [pod["spec"].get("nodeName", "") for pod in alive]

    def half_started(self):
        return [each for each in (SWEEP, SECOND) if len({*self.workers(each)} - {""}) in {1, 2}]

    async def _time_passes(self):
        """Bind in turns, as a scheduler does with pods that are created together."""
        free = set(self.nodes) - {pod["spec"].get("nodeName") for pod in self._alive()}
        waiting = [pod for pod in self._alive() if not pod["spec"].get("nodeName") and self._size(pod)]
        for pod in sorted(waiting, key=lambda each: each["metadata"]["name"][::-1]):
            if free:
                self.kubernetes.patch(*kubernetes.place(pod), {"spec": {"nodeName": free.pop()}})
        await super()._time_passes()

    def _alive(self):
        pods = self.kubernetes.list("Pod")
        return [pod for pod in pods if pod["status"]["phase"] in {"Pending", "Running"}]

    def used(self):
        return self.gpus  # only `_time_passes` above binds


@pytest.fixture
async def four(redis):
    story = TwoSweeps(redis, nodes=4)
    async with story.started():
        for name in story.nodes[1:]:
            story.add_node(name, 8)
        await story.until(lambda: len(story.running()) == 3)
        await story.start_second()
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
    for _ in range(30):
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
    command = Command(action=Action.CANCEL, user=OWNER, user_name="ada")
    await four.store.add_command(SECOND, command)
    await four.both(3)
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


async def test_start_that_is_decided_again_needs_a_newer_measurement_of_others(redis):
    store, request = CapacityStore(redis), a_start(at=NOW)
    await store.register(request)
    later = NOW + timedelta(minutes=1)  # the experiment's creation has failed until now
    await store.register(replace(request, started=False, expects=0, at=later))
    await store.register(replace(request, at=later))
    assert await store.starts() == {SWEEP: later}


async def test_start_is_dated_again_when_its_request_has_expired(redis):
    store, request = CapacityStore(redis), a_start(at=NOW)
    await store.register(request)
    await store.register(replace(request, at=NOW + timedelta(minutes=9)))
    assert await store.starts() == {SWEEP: NOW}
    later = NOW + timedelta(minutes=20)  # measurements since then didn't include it
    await store.register(replace(request, at=later))
    assert await store.starts() == {SWEEP: later}


def a_start(at):
    return CapacityRequest(
        sweep=SWEEP,
        namespace="sweeps",
        queue="",
        gpus=8,
        resource=GPU,
        pods=3,
        pod={},
        expects=3,
        started=True,
        auto=False,
        at=at,
    )


async def test_of_two_sweeps_that_decide_at_once_one_starts(redis):
    story = TwoSweeps(redis, nodes=4)
    async with story.started():
        for name in story.nodes[1:]:
            story.add_node(name, 8)
        await story.start_second()
        await story.both(12)
        assert sorted(len(story.trials_of(each)) for each in (SWEEP, SECOND)) == [0, 1]


async def test_second_sweep_of_a_worker_that_died_in_its_turn_starts_later(four):
    four.endings = 1000
    await CapacityStore(four.redis).take_turn("another sweep", "nodes")
    await four.until_both(lambda: four.last.phase.final)
    await four.both(4)
    assert not four.trials_of(SECOND)
    await CapacityStore(four.redis).end_turn("nodes")  # Redis does it after TURN
    await four.until_both(lambda: four.trials_of(SECOND))


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
