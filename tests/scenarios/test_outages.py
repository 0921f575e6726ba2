"""Other systems fail, have old objects, or reject requests: the thread stays readable."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.storage import sweep_configmap
from k8s.api.errors import ApiError, UnreachableError
from k8s.objects import MANAGED_BY, SWEEP_LABEL, true_conditions
from tests.bot.factories import ADMIN, NOW, OWNER, PLAN, a_sweep
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep


@pytest.fixture
async def simulation(redis):
    async with SimulatedSweep(redis, Clock(None), endless=True).started() as simulation:
        yield simulation


async def rounds(simulation, count, failures=0):
    for _ in range(count):
        await simulation.round(failures)


async def cancel(simulation, user=OWNER):
    await simulation.store.add_command(SWEEP, Command(action=Action.CANCEL, user=user, user_name="ada"))


async def has_its_image(simulation):
    await simulation.has(PLAN.image_repository, PLAN.image_tag)


async def test_unreachable_registry_is_reported_once_and_cancel_works(simulation):
    async def down(*_):
        raise UnreachableError("registry:5000 does not answer")

    simulation.registry.digest = down
    await rounds(simulation, 6, failures=6)
    assert [
        text for text in simulation.slack.posted if "registry:5000 does not answer" in text
    ] == simulation.slack.posted
    assert len(simulation.slack.posted) == 1
    await cancel(simulation)
    await rounds(simulation, 3)
    assert (await simulation.record()).phase is Phase.CANCELLED
    assert "Cancelled. All pods are gone" in simulation.texts()[-1]


async def test_cancel_clicked_twice_is_answered_once_and_empties_the_mailbox(simulation):
    await has_its_image(simulation)
    await rounds(simulation, 8)
    for _ in range(2):
        await cancel(simulation)
        await rounds(simulation, 1)
    assert await simulation.store.commands(SWEEP) == []
    await rounds(simulation, 8)
    await cancel(simulation)
    await rounds(simulation, 1)
    assert (await simulation.store.commands(SWEEP), simulation.slack.ephemeral_messages) == ([], [])


async def test_cancel_by_a_second_user_names_the_first(simulation):
    await has_its_image(simulation)
    await rounds(simulation, 8)
    await cancel(simulation)
    await rounds(simulation, 1)
    assert (await simulation.record()).phase is Phase.STOPPING
    await cancel(simulation, ADMIN)
    await rounds(simulation, 1)
    [(user, answer)] = simulation.slack.ephemeral_messages
    assert (user, f"<@{OWNER}>" in answer, "already cancelled" in answer) == (ADMIN, True, True)
    entries = [(entry.user, bool(entry.refused)) for entry in (await simulation.record()).audit_log[-2:]]
    assert entries == [(OWNER, False), (ADMIN, True)]
    assert await simulation.store.commands(SWEEP) == []
    await rounds(simulation, 8)
    assert (
        simulation.last.phase,
        simulation.last.cancelled_by,
        len(simulation.slack.ephemeral_messages),
    ) == (Phase.CANCELLED, OWNER, 1)


@pytest.mark.parametrize("kinds", [("Trial",), ("Trial", "Job"), ("Trial", "Job", "Pod")])
async def test_cancel_stops_trials_that_lost_their_labels(simulation, kinds):
    """As by `kubectl label --all`. Katib creates the Job of a trial that isn't stopped again, without end."""
    await has_its_image(simulation)
    await rounds(simulation, 8)
    assert len(simulation.gpus_held()) == 2
    for kind in kinds:
        for obj in simulation.kubernetes.list(kind, "sweeps", {SWEEP_LABEL: SWEEP}):
            where = (kind, "sweeps", obj["metadata"]["name"])
            simulation.kubernetes.patch(*where, {"metadata": {"labels": {SWEEP_LABEL: None}}})
    await cancel(simulation)
    await rounds(simulation, 8)
    assert (simulation.last.phase, simulation.gpus_held()) == (Phase.CANCELLED, [])
    killed = [true_conditions(each) for each in simulation.kubernetes.list("Trial")]
    assert ["Killed" in each for each in killed] == [True, True]


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("Experiment", [SWEEP_LABEL]),
        ("Experiment", [SWEEP_LABEL, MANAGED_BY]),
        ("Trial", [SWEEP_LABEL]),
    ],
)
async def test_results_have_the_trials_without_labels_and_new_ones_get_them(redis, kind, labels):
    """Katib copies an experiment's labels to the trials that it creates."""
    async with SimulatedSweep(redis, Clock(None), image=True).started() as simulation:
        await rounds(simulation, 3)
        for obj in simulation.kubernetes.list(kind):
            patch = {"metadata": {"labels": dict.fromkeys(labels)}}
            simulation.kubernetes.patch(kind, "sweeps", obj["metadata"]["name"], patch)
        await rounds(simulation, 8)
        record, [experiment] = await simulation.record(), simulation.kubernetes.list("Experiment")
    assert (record.phase, record.progress.succeeded) == (Phase.SUCCEEDED, 3)
    assert {SWEEP_LABEL, MANAGED_BY} <= experiment["metadata"]["labels"].keys()


async def test_unreachable_git_host_is_reported_ephemerally(simulation):
    async def down(*_):
        raise UnreachableError("git.example does not answer")

    there, simulation.git.resolve = simulation.git.resolve, down
    await rounds(simulation, 3, failures=6)
    [(user, text)] = simulation.slack.ephemeral_messages
    assert (user, "git.example does not answer" in text) == (OWNER, True)
    simulation.git.resolve = there
    await rounds(simulation, 4)
    assert simulation.slack.parents
    assert not any("is over" in earlier for earlier in simulation.slack.posted), (
        "none was reported in the thread"
    )


@pytest.mark.parametrize("retired", [False, True])
async def test_name_of_an_older_sweep_is_not_reused(simulation, retired):
    """Redis has forgotten it; its results are in MLflow, and in the cluster its record, or only its name."""
    older = a_sweep(Phase.SUCCEEDED, request_id="long-ago", submitted=True)
    simulation.kubernetes.create(sweep_configmap.config_map(older))
    where = ("ConfigMap", "sweeps", f"sweep-{SWEEP}")
    if retired:
        simulation.kubernetes.patch(*where, sweep_configmap.RETIRED)
    kept = simulation.kubernetes.get(*where)
    await rounds(simulation, 4)
    assert simulation.kubernetes.get(*where) == kept
    assert (await simulation.record()).phase is Phase.REFUSED
    [other] = await simulation.store.active()
    assert other != SWEEP
    assert other.startswith("lr-")
    assert simulation.slack.ephemeral_messages == []


async def test_older_experiment_of_the_same_name_is_not_adopted(simulation):
    older = replace(PLAN, experiment={**PLAN.experiment, "metadata": {**PLAN.experiment["metadata"]}})
    older.experiment["metadata"]["annotations"] = {"sweepbot/delivery": "long-ago"}
    await has_its_image(simulation)
    simulation.kubernetes.create(older.experiment)
    await rounds(simulation, 8)
    assert (await simulation.record()).phase is Phase.FAILED
    assert "already exists" in simulation.slack.posted[-1]


async def test_rejected_record_is_reported_and_leaves_nothing(simulation):
    async def forbidden(manifest):
        raise ApiError(403, "Forbidden", "configmaps is forbidden: exceeded quota")

    simulation.cluster.create = forbidden
    await rounds(simulation, 5)
    [(user, text)] = simulation.slack.ephemeral_messages
    assert (user, "configmaps is forbidden" in text) == (OWNER, True)
    assert (await simulation.record()).phase is Phase.REFUSED


@pytest.mark.parametrize("kind", ["ConfigMap", "Job", "Experiment"])
@pytest.mark.parametrize("granted", [False, True])
async def test_rights_that_are_missing_for_a_moment_end_no_sweep(simulation, kind, granted):
    """An API server that has just started denies everything until it has read all roles."""
    create, now = simulation.cluster.create, [NOW]
    simulation.clients = replace(simulation.clients, now=lambda: now[0])

    async def denied(manifest):
        if manifest["kind"] == kind:
            raise ApiError(403, "Forbidden", 'x is forbidden: User "sweepbot" cannot create resource "x"')
        return await create(manifest)

    if kind == "Experiment":
        await has_its_image(simulation)
    simulation.cluster.create = denied
    await rounds(simulation, 12)
    assert (await simulation.record()).phase in {Phase.RECEIVED, Phase.BUILDING, Phase.PENDING}
    now[0] += timedelta(minutes=1 if granted else 3)
    if granted:
        simulation.cluster.create = create
    await rounds(simulation, 12)
    record = await simulation.record()
    assert record.phase in ({Phase.BUILDING, Phase.RUNNING} if granted else {Phase.REFUSED, Phase.FAILED})
    assert record.outage.since is None or not granted


@pytest.mark.parametrize("error", [NotInChannelError("C1"), MessageRejectedError("invalid_blocks")])
async def test_sweep_whose_channel_was_deleted_continues_silently(simulation, error):
    await rounds(simulation, 4)

    async def refused(*_, **__):
        raise error

    simulation.slack.reply = simulation.slack.update = refused
    await cancel(simulation)
    await rounds(simulation, 8)
    record = await simulation.record()
    assert (record.phase, record.outbox) == (Phase.CANCELLED, ())


async def test_emptied_redis_loses_no_sweep_and_repeats_no_end(simulation):
    await has_its_image(simulation)
    await rounds(simulation, 8)
    assert (await simulation.record()).phase in {Phase.PENDING, Phase.RUNNING}
    await simulation.redis.flushall()
    await cancel(simulation)
    await rounds(simulation, 8)
    assert (await simulation.record()).phase is Phase.CANCELLED
    earlier = list(simulation.slack.posted)
    await simulation.redis.flushall()
    await rounds(simulation, 3)
    assert simulation.slack.posted == earlier


async def test_command_for_a_sweep_that_never_existed_is_answered(simulation):
    await simulation.store.add_command(
        "lr-no-such", Command(action=Action.CANCEL, user=OWNER, user_name="ada")
    )
    for _ in range(2):
        await simulation.store.count_comparison()
    await simulation.round(item="lr-no-such")
    assert "No sweep named `lr-no-such`" in simulation.slack.ephemeral_messages[0][1]


async def test_api_server_outage_is_reported_once_and_so_is_its_end(simulation):
    await has_its_image(simulation)
    await rounds(simulation, 8)
    there = dict(vars(simulation.cluster))

    async def away(*_, **__):
        raise UnreachableError("the API server does not answer")

    for name in ("get", "list", "create", "merge", "delete"):
        setattr(simulation.cluster, name, away)
    for cache in simulation.clients.caches:
        cache.complete = False  # the watches break with their server
    before = len(simulation.slack.posted)
    for failures in range(8):
        await simulation.round(failures)
    vars(simulation.cluster).clear()
    vars(simulation.cluster).update(there)
    for cache in simulation.clients.caches:
        cache.complete = True
    await rounds(simulation, 3)
    new = simulation.slack.posted[before:]
    assert len(new) == 2
    assert "hit an error. Sweepbot keeps retrying" in new[0]
    assert "continues" in new[1]
    await cancel(simulation)
    await rounds(simulation, 8)
    assert (await simulation.record()).phase is Phase.CANCELLED


async def test_deleted_build_job_is_created_again_silently(simulation):
    await rounds(simulation, 8)
    [build] = [
        j for j in simulation.kubernetes.list("Job", "sweeps") if j["metadata"]["name"].startswith("build")
    ]
    earlier = list(simulation.slack.posted)
    simulation.kubernetes.delete("Job", "sweeps", build["metadata"]["name"])
    await rounds(simulation, 3)
    [again] = [
        j for j in simulation.kubernetes.list("Job", "sweeps") if j["metadata"]["name"].startswith("build")
    ]
    assert again["metadata"]["uid"] != build["metadata"]["uid"]
    assert simulation.slack.posted == earlier


async def test_deleted_experiment_ends_the_sweep_and_releases_its_gpus(simulation):
    await has_its_image(simulation)
    await rounds(simulation, 8)
    assert simulation.gpus_held()
    simulation.kubernetes.delete("Experiment", "sweeps", SWEEP)
    await rounds(simulation, 8)
    assert (await simulation.record()).phase is Phase.FAILED
    assert "The Katib experiment was deleted" in simulation.slack.posted[-1]
    assert simulation.gpus_held() == []
    assert (await simulation.record()).progress.running == 0


async def test_experiment_without_its_annotations_is_still_stopped(simulation):
    await has_its_image(simulation)
    await rounds(simulation, 8)
    simulation.kubernetes.patch("Experiment", "sweeps", SWEEP, {"metadata": {"annotations": None}})
    await rounds(simulation, 3)
    assert (await simulation.record()).phase is Phase.RUNNING
    await cancel(simulation)
    await rounds(simulation, 8)
    assert ((await simulation.record()).phase, simulation.gpus_held()) == (Phase.CANCELLED, [])


async def test_deleted_trial_job_is_created_again_by_katib_and_the_sweep_succeeds(simulation):
    await has_its_image(simulation)
    await rounds(simulation, 8)
    job = simulation.kubernetes.list("Job", "sweeps")[0]["metadata"]
    simulation.kubernetes.delete("Job", "sweeps", job["name"])
    await rounds(simulation, 2)
    assert simulation.kubernetes.get("Job", "sweeps", job["name"])["metadata"]["uid"] != job["uid"]
    simulation.scenario["endless"] = False
    await rounds(simulation, 16)
    assert (await simulation.record()).phase is Phase.SUCCEEDED


async def test_deleted_record_is_stored_again(simulation):
    await has_its_image(simulation)
    await rounds(simulation, 4)
    simulation.kubernetes.delete("ConfigMap", "sweeps", f"sweep-{SWEEP}")
    await rounds(simulation, 5)
    kept = sweep_configmap.read(simulation.kubernetes.get("ConfigMap", "sweeps", f"sweep-{SWEEP}"))
    assert kept.phase is (await simulation.record()).phase


async def test_same_command_twice_in_a_second_is_two_sweeps_and_one_build(simulation):
    second = a_sweep(request_id="trigger-2")
    await simulation.store.create(second, ["lr-calm-fox"], "trigger-2")
    steps = set()
    for _ in range(8):
        await simulation.round()
        await simulation.round(item="lr-calm-fox")
        steps.add((await simulation.store.get("lr-calm-fox")).steps.get("image", ""))
    builds = [
        j for j in simulation.kubernetes.list("Job", "sweeps") if j["metadata"]["name"].startswith("build")
    ]
    assert len(builds) == 1
    assert any("another sweep's build" in step for step in steps)


async def test_job_that_replaced_the_observed_one_is_kept(simulation):
    """Deletions contain the observed uid: another object can have the name by then."""
    await has_its_image(simulation)
    await rounds(simulation, 8)
    job = simulation.kubernetes.list("Job", "sweeps")[0]
    where, delete = ("Job", "sweeps", job["metadata"]["name"]), simulation.cluster.delete
    kept = {key: job["metadata"][key] for key in ("name", "namespace", "labels")}

    left = []

    async def too_late(ref, **how):
        if ref.name != kept["name"]:
            return await delete(ref, **how)
        simulation.kubernetes.delete(*where, propagation="Background")
        labels = {"labels": {"sweepbot/sweep": SWEEP}}
        template = job["spec"]["template"] | {"metadata": labels}
        spec = {"backoffLimit": 0, "template": template}
        simulation.kubernetes.create(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": kept | labels, "spec": spec}
        )
        done = await delete(ref, **how)
        left.append(simulation.kubernetes.get(*where))
        simulation.cluster.delete = delete
        return done

    simulation.cluster.delete = too_late
    await simulation.store.add_command(
        SWEEP, Command(action=Action.KILL, user=OWNER, user_name="ada", trial=kept["name"])
    )
    await rounds(simulation, 3)
    assert [there["metadata"]["uid"] != job["metadata"]["uid"] for there in left] == [True]
    assert "deletionTimestamp" not in left[0]["metadata"]
