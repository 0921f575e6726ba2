"""Builds are read from the caches; what ends a sweep is read from the API server."""

from collections import Counter

import pytest

from bot.core.record import Phase
from k8s.objects import BUILD_LABEL
from tests.scenarios.counted_sweep import CountedSweep

FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}


@pytest.fixture
async def building(redis):
    """A sweep whose build runs, as the watches have reported it."""
    sweep = CountedSweep(redis, Counter(), endless=True)
    async with sweep.started():
        while not running_builds(sweep):
            await sweep.round()
        await sweep.round()
        assert (await sweep.record()).phase is Phase.BUILDING
        yield sweep


def running_builds(sweep):
    return [pod for pod in sweep.kubernetes.list("Pod") if pod["status"]["phase"] == "Running"]


def requests(calls):
    return {
        name: number for name, number in calls.items() if name.partition(".")[0] in {"cluster", "registry"}
    }


def job_cache(sweep):
    [cache] = [cache for cache in sweep.clients.caches if (cache.kind, cache.namespace) == ("Job", "sweeps")]
    return cache


async def test_reconcile_of_a_running_build_costs_no_request(building):
    assert requests(await building.reconciled()) == {}


async def test_reconcile_of_a_running_build_reads_directly_while_a_watch_is_interrupted(building):
    job_cache(building).complete = False
    assert requests(await building.reconciled()) == {"cluster.get": 1}


async def test_failed_build_in_a_cache_does_not_end_a_sweep_whose_build_runs(building):
    [job] = building.kubernetes.list("Job", "sweeps")
    assert BUILD_LABEL in job["metadata"]["labels"]
    job_cache(building).put({**job, "status": {"conditions": [FAILED]}})
    assert requests(await building.reconciled()) == {
        "cluster.get": 2,
        "cluster.list": 1,
    }  # image, Job, events
    assert (await building.record()).phase is Phase.BUILDING


async def test_failed_build_is_explained_from_one_log(building):
    building.scenario |= {"endless": False, "bad_build": "build"}
    while (await building.record()).phase is Phase.BUILDING:
        await building._time_passes()
        await building.settle()
        calls = await building.reconciled()
    assert calls["cluster.log"] == 2  # its end, which explains it, and the whole, which is attached
    assert len([text for text in building.slack.posted if "Image build failed" in text]) == 1
    while not (await building.record()).phase.final:
        await building._time_passes()
        await building.settle()
        await building.reconciled()
    [*_, end] = [each for each in building.slack.shown.values() if "Image build failed" in str(each)]
    cause = (await building.record()).reason
    assert (cause in end.text, cause in str(end.blocks)) == (True, False), "the reply about the build has it"
