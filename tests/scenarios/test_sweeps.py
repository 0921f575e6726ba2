"""Whole sweeps with real processes, as a user in Slack sees them. All tests share one world."""

import asyncio
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from k8s.katib.spec import INACTIVE
from k8s.katib.training import COLLECTOR_VARIABLE
from k8s.objects import GPU
from local import image_pull
from local.world import NAMESPACE
from tests.scenarios.local_world import APART, Instance, Sweep, instance, shown, sweep_id, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ADA = "U01ADALOVEL"
SLOW = "FROM python:3.11-slim\nWORKDIR /app\nCOPY . .\nRUN sleep {seconds}\n"
AUTO = """\
command: python tiny.py
objective: {metric: loss, goal: minimize}
trials: {max: 8, parallel: 2, max_failed: 1}
parameters:
  width: {min: 1, max: 1000000}
  kind: [deep, flat]
  depth: {if: kind=deep, min: 1, max: 8}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="instance")
async def _lab(tmp_path_factory: pytest.TempPathFactory, mlflow_url: str) -> AsyncIterator[Instance]:
    async with instance(tmp_path_factory.mktemp("instance"), mlflow_url, APART) as made:
        yield made


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def gpus_are_free_at_the_end(instance: Instance) -> AsyncIterator[None]:
    """Of every story, however it ended."""
    yield
    await until(lambda: not instance.pods_alive(), "no pod is left", lambda: f"{instance.pods_alive()}")


async def test_sweep_ends_with_a_command_line_that_trains(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training takes a second, and the collector 12 to start, as with Katib's default resources."""
    monkeypatch.setattr(instance.here.katib.collectors, "start_seconds", 12)
    monkeypatch.setitem(image_pull.TRIAL, COLLECTOR_VARIABLE, "20")
    sweep = await instance.sweep('branch=main space=lr trials=2 cmd="python train.py --epochs=1"')
    end = await sweep.posts("Finished:", "2 trials done")
    assert "metrics collector" not in sweep.story()
    command = shlex.split(end.split("```")[1])
    assert command[:3] == ["python", "train.py", "--epochs=1"]
    command[0] = sys.executable
    training = await asyncio.create_subprocess_exec(
        *command, f"--tensorboard_dir={tmp_path}", cwd=instance.copy
    )
    assert await training.wait() == 0
    steps = ("built in", "✓ Submitted", "✓ First trial started")
    await sweep.shows("· Finished\n", "2 of 2 trials", "Best: ", *steps)
    assert len(sweep.thread()) <= 2  # the end with the table, and the files
    assert sweep.button() is None
    await _mlflow_knows(sweep, instance)


@pytest.mark.features("warm_start")
async def test_search_service_is_killed_after_every_third_call_and_the_search_continues(
    instance: Instance,
) -> None:
    instance.commit("Search by default", {"sweeps/auto.yaml": AUTO})
    sweep = await instance.sweep("branch=main space=auto")
    service, killed = instance.here.katib.search, [0]

    def is_over() -> bool:
        instance.check()
        if service.process and service.answered >= killed[-1] + 3:
            service.process.kill()
            killed.append(service.answered)
        return any("Finished:" in text for text in sweep.thread())

    await until(is_over, f"{sweep.id} has finished", sweep.story)
    assert len(killed) > 1
    await sweep.shows("· Finished\n", "8 of 8 trials", "Best: ")
    [experiment] = sweep.objects("Experiment")
    assert experiment["spec"]["algorithm"]["algorithmName"] == "sweepbot"
    tried = [each["spec"]["parameterAssignments"] for each in sweep.objects("Trial")]
    assert len({each[0]["value"] for each in tried}) == 8
    depths = {each[1]["value"]: each[2]["value"] for each in tried}
    assert depths["flat"] == INACTIVE
    assert 1 <= int(depths["deep"]) <= 8
    await _next_sweep_starts_from(sweep, instance)


async def _next_sweep_starts_from(earlier: Sweep, instance: Instance) -> None:
    """Its best point is the first one tried; wider is better, so both verdicts are possible."""
    [best] = re.findall(r"--width=(\d+)", await earlier.posts("Finished:"))
    sweep = await instance.sweep("branch=main space=auto trials=6 from=auto")
    await sweep.shows(f"Starts from the 2 best points of `{earlier.id}` (main @ ")
    end = await sweep.posts("Finished: 6 trials done", "The best trial ")
    led = re.findall(r"--width=(\d+)", end)[0] == best
    assert (f"took a point of `{earlier.id}`" if led else "is the search's own") in end
    tried = [each["spec"]["parameterAssignments"][0]["value"] for each in sweep.objects("Trial")]
    assert best in tried


async def _mlflow_knows(sweep: Sweep, instance: Instance) -> None:
    """The parent's link opens the experiment; its runs are named after trials and say whose they are."""
    [(server, experiment)] = re.findall(
        r"<(http://[^|/]+)/#/experiments/(\d+)/runs\S*\|Runs in MLflow", shown(sweep.parent())
    )
    async with aiohttp.ClientSession() as session:
        search = f"{server}/api/2.0/mlflow/runs/search"
        async with session.post(search, json={"experiment_ids": [experiment]}) as answer:
            runs = (await answer.json())["runs"]
    assert {run["info"]["run_name"] for run in runs} == {
        trial["metadata"]["name"] for trial in sweep.objects("Trial")
    }
    commit = instance.here.store.list("Experiment", "sweeps", {"sweepbot/sweep": sweep.id})[0]
    for run in runs:
        tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
        assert (tags["sweepbot.sweep"], tags["sweepbot.owner_id"]) == (sweep.id, ADA)
        assert tags["sweepbot.trial"] == run["info"]["run_name"]
        assert "@sha256:" in tags["sweepbot.image"]
        assert tags["sweepbot.thread"] in tags["mlflow.note.content"]
        assert tags["sweepbot.commit"] == commit["metadata"]["annotations"]["sweepbot/commit"]


async def test_second_sweep_of_a_commit_reuses_its_image(instance: Instance) -> None:
    first = await instance.sweep("branch=main space=tiny")
    await first.shows("First trial started")
    second = await instance.sweep("branch=main space=tiny")
    await second.shows("Image reused from the registry")
    await second.posts("Finished:", "2 trials done")


async def test_two_sweeps_of_one_commit_share_a_build(instance: Instance) -> None:
    commit = instance.commit("Build slowly", {"Dockerfile": SLOW.format(seconds=3)}, branch="shared-build")
    first = await instance.sweep("branch=shared-build space=tiny", "ada")
    await first.shows("○ Building")
    second = await instance.sweep("branch=shared-build space=tiny", "grace")
    await second.shows("another sweep's build")
    for sweep in (first, second):
        await sweep.shows("built in")
        await sweep.posts("Finished:")
    assert len(instance.builds(commit)) == 1


REFUSALS = {
    "branch=mian space=tiny": ["branch=mian doesn't exist in digits. Did you mean main?"],
    "branch=main space=tinny": ["`sweeps/tinny.yaml` isn't in digits at `main` (COMMIT). Did you mean tiny?"],
    "branch=main space=broken": [
        '`sweeps/broken.yaml@COMMIT:2` objective.goal: must be minimize or maximize; got "smallest"',
        "`sweeps/broken.yaml@COMMIT:3` trials.paralel: unknown key. Did you mean parallel?",
        "`sweeps/broken.yaml@COMMIT:5` parameters.width: min must be less than max; got min 8, max 1",
    ],
    "branch=main space=tiny gpus=8": [
        (
            "gpus=8 can't run on this cluster: a trial requests 8 GPUs, and the largest node (gpu-2) has "
            "2 GPUs. *Fix:* Use gpus=2, or ask an admin to declare an autoscaled pool under `pools` in the "
            "configuration."
        )
    ],
}


@pytest.mark.parametrize("command", REFUSALS)
async def test_invalid_request_is_reported_to_its_user_only(instance: Instance, command: str) -> None:
    before = posted(instance), made_for_sweeps(instance)
    reply = await instance.answer(command)
    reply = re.sub(r"127\.0\.0\.1:\d+", "HOST", re.sub(r"\b[0-9a-f]{8}\b", "COMMIT", reply))
    assert reply.partition(" didn't start.")[2].strip().splitlines() == REFUSALS[command]
    assert (posted(instance), made_for_sweeps(instance)) == before


def posted(instance: Instance) -> list[str]:
    """Return the channel's messages without their text: that of an earlier sweep can still be edited."""
    return [message["ts"] for message in instance.slack.messages("sweeps")]


def made_for_sweeps(instance: Instance) -> set[tuple[str, str]]:
    """Without the records, which are kept of refused sweeps, too."""
    return {(kind, name) for kind, name in of_sweeps(instance) if kind != "ConfigMap"}


def of_sweeps(instance: Instance) -> set[tuple[str, str]]:
    """All that sweeps and builds have in the cluster, by kind and name."""
    found = [
        obj
        for kind in ("ConfigMap", "Job", "Experiment")
        for obj in instance.here.store.list(kind, NAMESPACE)
    ]
    names = {(obj["kind"], obj["metadata"]["name"]) for obj in found}
    return {(kind, name) for kind, name in names if kind != "ConfigMap" or name.startswith("sweep-")}


async def test_unknown_option_opens_the_form_with_a_line_about_it(instance: Instance) -> None:
    assert await instance.types("branch=main space=tiny tint=red") == ""
    assert "Unknown option: `tint=`" in str(instance.slack.modals("ada")[-1]["blocks"][0])


async def test_channel_without_the_bot_gets_only_an_ephemeral_invitation(instance: Instance) -> None:
    reply = await instance.answer("branch=main space=tiny", channel="random")
    assert "/invite @sweepbot" in reply
    name = re.search("`([a-z-]+)` didn't start", reply)
    assert name
    assert instance.slack.messages("random") == []
    for kind in ("Job", "Experiment", "Pod"):
        assert instance.here.store.list(kind, "sweeps", {"sweepbot/sweep": name[1]}) == []


async def test_failed_first_trial_shows_the_end_of_its_log(instance: Instance) -> None:
    sweep = await instance.sweep("branch=main space=crash")
    cause = "ValueError: unknown optimizer 'adamw'; choose adam or sgd (train.py:102)"
    await sweep.posts(":warning:", f"failed: {cause}")
    await sweep.posts(":warning:", "*Fix:* ", "Last lines of the log", "unknown optimizer")
    end = await sweep.posts(":x:", f"*{sweep.id}* · {cause}".replace(f"*{sweep.id}*", f"|{sweep.id}>*"))
    assert "*Fix:*" not in end, "the thread has it already"
    await sweep.shows(":x:", f"*{sweep.id}* · {cause}", "1 failed", "✗ First trial failed")
    assert sweep.parent()["text"].startswith(f":x: {sweep.id}: {cause}")


async def test_gpus_that_fail_after_the_plan_are_reported_in_the_schedulers_words(instance: Instance) -> None:
    instance.commit("Build slowly", {"Dockerfile": SLOW.format(seconds=3)}, branch="failing-gpus")
    sweep = await instance.sweep("branch=failing-gpus gpus=2 space=tiny")
    await until(instance.pods_alive, "the build runs")
    with one_gpu_left(instance):
        reply = await sweep.posts("can't fit: it requests 2 GPUs, and the largest node has 1")
        assert "0/2 nodes are available: 2 Insufficient nvidia.com/gpu" in reply
        await sweep.click_cancel("ada")
        await sweep.posts(":no_entry_sign:", "GPUs are free")
        assert sweep.pods_alive() == []


@contextmanager
def one_gpu_left(instance: Instance) -> Iterator[None]:
    """The device plugin of each node reports one GPU as healthy."""
    store = instance.here.store
    nodes = store.list("Node")
    for node in nodes:
        allocatable = node["status"]["allocatable"] | {GPU: "1"}
        store.set_status(node, node["status"] | {"allocatable": allocatable})
    try:
        yield
    finally:
        for node in nodes:
            store.set_status(node, node["status"])


async def test_image_that_no_node_can_pull_is_reported(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        instance.here.kubelet, "node", replace(instance.here.kubelet.node, registry="elsewhere:5000")
    )
    sweep = await instance.sweep("branch=main space=tiny")
    reply = await sweep.posts("can't pull the image")
    assert "no such host" in reply
    await sweep.click_cancel("ada")
    await sweep.posts(":no_entry_sign:", "GPUs are free")


async def test_cancel_by_the_owner_releases_the_gpus_during_training(instance: Instance) -> None:
    sweep = await instance.sweep("branch=main space=held")
    await sweep.shows("First trial started")
    before = len(instance.slack.ephemerals("grace"))
    await sweep.click_cancel("grace")
    assert f"Only <@{ADA}>" in await instance.whispered("grace", before)
    assert sweep.pods_alive()
    confirm = sweep.button()["confirm"]
    assert "frees their GPUs" in confirm["text"]["text"]
    await sweep.click_cancel("ada")
    await sweep.posts(":no_entry_sign:", "GPUs are free")
    assert sweep.pods_alive() == []
    assert "Cancelled by *ada*" in await sweep.shows("Cancelled by")
    assert sweep.button() is None
    [experiment] = sweep.conditions("Experiment")
    assert "Running" not in experiment
    assert all("Killed" in trial for trial in sweep.conditions("Trial"))


async def test_sweep_is_cancelled_during_its_build(instance: Instance) -> None:
    commit = instance.commit("Build for ever", {"Dockerfile": SLOW.format(seconds=300)}, branch="slow-build")
    sweep = await instance.sweep("branch=slow-build space=tiny")
    await until(instance.pods_alive, "the build runs")
    await sweep.click_cancel("ada")
    await sweep.posts(":no_entry_sign:", "GPUs are free")
    assert instance.builds(commit) == []
    assert sweep.objects("Experiment") == []


async def test_command_delivered_twice_starts_one_sweep(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = instance.slack.sockets.deliver
    answers: list[Any] = []

    async def twice(kind: str, payload: dict[str, Any]) -> Any:
        answers.extend([await once(kind, payload), await once(kind, payload)])
        return answers[-1]

    monkeypatch.setattr(instance.slack.sockets, "deliver", twice)
    sweep = await instance.sweep("branch=main space=held")
    assert [sweep_id(answer["text"]) for answer in answers] == [sweep.id, sweep.id]
    await sweep.shows("First trial started")
    assert len(sweep.objects("Experiment")) == 1
    await sweep.click_cancel("ada")
    await sweep.posts(":no_entry_sign:", "GPUs are free")


async def test_killed_worker_is_replaced_during_a_build_and_a_run(instance: Instance) -> None:
    instance.commit("Build slowly", {"Dockerfile": SLOW.format(seconds=4)}, branch="patient-build")
    sweep = await instance.sweep("branch=patient-build space=held")
    await until(instance.pods_alive, "the build runs")
    await instance.kill_worker()
    await sweep.shows("First trial started")
    await instance.kill_worker()
    instance.hold.unlink()
    await sweep.posts("Finished:", "2 trials done")
    instance.hold.touch()
    assert len(sweep.thread()) <= len(set(sweep.thread())) + 2  # at most one message again for each death


async def test_emptied_redis_is_refilled_from_the_cluster(instance: Instance) -> None:
    sweep = await instance.sweep("branch=main space=held")
    await sweep.shows("First trial started")
    async with Redis.from_url(instance.here.env["REDIS_URL"]) as redis:
        await redis.flushall()
    instance.hold.unlink()
    await sweep.posts("Finished:", "2 trials done")
    instance.hold.touch()
    await sweep.shows("Finished")


async def test_sweep_that_no_worker_had_when_redis_was_emptied_is_restored(instance: Instance) -> None:
    """A sweep that was only acknowledged, and the cancel of one that runs."""
    running = await instance.sweep("branch=main space=held")
    await running.shows("First trial started")
    async with instance.without_worker():
        queued = await instance.sweep("branch=main space=tiny")
        await running.click_cancel("ada")
        async with Redis.from_url(instance.here.env["REDIS_URL"]) as redis:
            await redis.flushall()
    await queued.posts("Finished:")
    await running.posts(":no_entry_sign:", "GPUs are free")
    assert running.pods_alive() == []
