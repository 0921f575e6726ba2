"""`inspect` on staged troubles: the first line names the cause, and the second one the fix."""

from datetime import timedelta

import pytest

from bot.core.errors import UnknownNameError
from bot.core.finding import broken
from bot.core.record import Phase
from bot.core.work_item import WorkItem
from k8s.api.errors import ApiError, UnreachableError
from tests.bot.operate.stage import ITEM, Refusing, Stage
from tests.bot.sweep.features.health import real_messages
from tests.scenarios.pod_faults import waits
from tests.scenarios.sweep_in_memory import SWEEP

FORBIDDEN = (
    'experiments.kubeflow.org is forbidden: User "system:serviceaccount:sweepbot:sweepbot-work" cannot list '
    'resource "experiments" in API group "kubeflow.org" in the namespace "sweeps"'
)


async def quarantined(stage):
    await stage.begun(3)
    await stage.queue.add(ITEM)
    for _ in range(5):
        lease = await stage.queue.get(wait=0)
        await stage.queue.fail(lease, permanent="KeyError: 'spec'")
        await stage.queue.add(ITEM)
    lease = await stage.queue.get(wait=0)
    assert lease.quarantined
    await stage.queue.done(lease)
    return await stage.lines()


async def api_server_refuses(stage):
    await stage.begun(3)
    return await stage.lines(Refusing(ApiError(403, "Forbidden", FORBIDDEN)))


async def api_server_is_down(stage):
    await stage.begun(3)
    return await stage.lines(Refusing(UnreachableError("Cannot connect to host 10.0.0.1:443")))


async def kueue_holds_the_trials(stage):
    stage.simulation.cluster.kueue = real_messages.NO_QUOTA
    await stage.begun(6)
    return await stage.lines()


async def build_without_a_pod(stage):
    await stage.begun(4)
    stage.simulation.ahead += timedelta(minutes=12)
    return await stage.lines()


async def image_cant_be_pulled(stage):
    stage.simulation.happens = waits("ImagePullBackOff", real_messages.PULL)
    await stage.begun(6)
    return await stage.lines()


async def redis_lost_the_record(stage):
    await stage.begun(5)
    await stage.redis.flushall()
    await stage.redis.set("sweepbot:resync", "worker-1")
    return await stage.lines()


async def channel_is_archived(stage):
    await stage.begun(5)
    await stage.error("slack", "is_archived")
    return await stage.lines()


async def bot_left_the_channel(stage):
    await stage.begun(5)
    await stage.error("slack", "not_in_channel")
    return await stage.lines()


async def git_host_is_down(stage):
    await stage.begun(0)
    await stage.failed("git", "git.example doesn't respond: Could not resolve host")
    return await stage.lines()


async def mlflow_is_down(stage):
    await stage.begun(5)
    await stage.save(results_url=None)
    stage.faults = (broken("MLflow", "502 Bad Gateway", "curl -i http://mlflow:5000/health"),)
    return await stage.lines()


async def finalizer_blocks_the_cleanup(stage):
    await stage.begun(6)
    experiment = stage.simulation.kubernetes.list("Experiment", "sweeps")[0]
    name = experiment["metadata"]["name"]
    stage.simulation._patch(experiment, {"metadata": {"finalizers": ["example.com/audit"]}})
    stage.simulation.kubernetes.delete("Experiment", "sweeps", name)
    await stage.save(phase=Phase.CANCELLED)
    stage.simulation.ahead += timedelta(minutes=12)
    return await stage.lines()


async def suggestion_service_crashes(stage):
    await stage.begun(6)
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}}
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    status = {"name": "suggestion", "state": waiting, "lastState": killed, "ready": False, "restartCount": 7}
    labels = {"sweepbot/sweep": SWEEP, "katib.kubeflow.org/experiment": SWEEP}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{SWEEP}-bayesian-7d9", "namespace": "sweeps", "labels": labels},
        "spec": {"containers": [{"name": "suggestion", "image": "katib"}]},
    }
    made = stage.simulation.kubernetes.create(pod)
    stage.simulation.kubernetes.set_status(
        made, {"phase": "Running", "containerStatuses": [status | {"image": "", "imageID": ""}]}
    )
    return await stage.lines()


async def search_is_lost(stage):
    await stage.begun(6)
    await stage.save(phase=Phase.RUNNING, sent_keys=(f"{'search_lost'}/1",))
    return await stage.lines()


async def no_worker_runs(stage):
    await stage.begun(4)
    await stage.redis.delete("sweepbot:resync")
    due = (stage.simulation.clients.now() - timedelta(minutes=12)).timestamp() * 1000
    await stage.redis.zadd("sweepbot:queue:ready", {SWEEP: due})
    return await stage.lines()


async def reconcile_hits_a_bug(stage):
    await stage.begun(4)
    await stage.failed("work", "KeyError: 'spec'")
    return await stage.lines()


TROUBLES = {
    quarantined: ("Quarantined for", "KeyError: 'spec'", f"sweepbot release {SWEEP}"),
    api_server_refuses: ("The API server rejects a request:", "is forbidden", "sweepbot doctor"),
    api_server_is_down: ("The API server isn't working:", "10.0.0.1:443", "/readyz"),
    kueue_holds_the_trials: ("Queued by Kueue", "", ""),
    build_without_a_pod: ("Build Job build-", "has had no pod for", "describe job build-"),
    image_cant_be_pulled: ("The node can't pull the image", "", ""),
    redis_lost_the_record: ("Redis lost the record; its ConfigMap has it", "", "sweepbot recover"),
    channel_is_archived: ("Slack rejects messages: the channel is archived", "is_archived", "Unarchive"),
    bot_left_the_channel: ("Slack rejects messages: the bot isn't in the channel", "", "/invite @sweepbot"),
    git_host_is_down: ("The git host doesn't respond:", "Could not resolve host", "git ls-remote"),
    mlflow_is_down: ("MLflow isn't working: 502 Bad Gateway.", "continues", "curl -i"),
    finalizer_blocks_the_cleanup: ("Cleanup waits for Experiment", "example.com/audit", "kubectl -n sweeps"),
    suggestion_service_crashes: ("Katib's suggestion service is crashing", "OOMKilled", "memory limit"),
    search_is_lost: ("Katib's suggestion service restarted", "no new trial starts", f"/sweep drain {SWEEP}"),
    no_worker_runs: ("No worker is running", "due for 12 min", "rollout restart"),
    reconcile_hits_a_bug: ("Failed 3 times in a row:", "KeyError", "kubectl -n sweepbot logs"),
}


def suspended(job):
    """As Kueue's webhook: only Jobs of trials."""
    if job["metadata"].get("name", "").startswith("build"):
        return job
    return {**job, "spec": {**job["spec"], "suspend": True}}


def without_job_controller(simulation):
    simulation.scenario["image"] = False
    simulation.controllers.start = lambda: None


BEFORE = {
    kueue_holds_the_trials: lambda one: one.kubernetes.admission("Job", suspended),
    build_without_a_pod: without_job_controller,
}


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda each: each.__name__)
async def test_inspect_names_the_cause_in_the_first_line(redis, trouble):
    cause, detail, fix = TROUBLES[trouble]
    stage = Stage(redis)
    BEFORE.get(trouble, lambda _: None)(stage.simulation)
    async with stage.simulation.started():
        first, second, *_ = await trouble(stage)
    assert first.startswith(f"{SWEEP}: {cause}"), "\n".join([first, second, *_])
    assert detail in first
    assert fix in second, second
    assert second.startswith("Fix: ") or not fix


async def test_inspect_of_a_healthy_sweep_says_what_it_waits_for(redis):
    stage = Stage(redis)
    async with stage.simulation.started():
        await stage.begun(0)
        [first, *rest] = await stage.lines()
        assert first == f"{SWEEP}: No trouble found: its branch and space file are being checked."
        assert "Workers    running" in rest


async def test_inspect_shows_hostile_text_on_one_line_without_control_characters(redis):
    stage = Stage(redis)
    async with stage.simulation.started():
        await stage.begun(0)
        await stage.failed("git", "fatal: \x1b]0;title\x07\x1b[2J\u202ereversed\nFix: rm -rf /" + "x" * 1000)
        lines = await stage.lines()
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) <= 400
    assert [line for line in lines if line.startswith("Fix: ")] == [lines[1]]
    assert "git ls-remote" in lines[1]


async def test_inspect_of_an_unknown_name_reads_no_object_by_it(redis):
    stage = Stage(redis)
    async with stage.simulation.started():
        await stage.begun(0)
        with pytest.raises(UnknownNameError, match=r"^\.\./\.\./secrets: Unknown sweep: "):
            await stage.run("inspect", "../../secrets", Refusing(AssertionError("read")))


async def test_inspect_of_a_job_shows_its_place_in_the_queue(redis):
    stage = Stage(redis)
    async with stage.simulation.started():
        await stage.queue.add_after(WorkItem.parse("digest:2026-11-21"), 60)
        lines = await stage.run("inspect", "digest:2026-11-21")
    assert any(line.startswith("Queue      delayed, next run in") for line in lines)
