"""Stories in which something outside fails, lives on from before, or refuses: the thread reads right."""

from dataclasses import replace

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.storage import sweep_configmap
from k8s.errors import ApiError, UnreachableError
from tests.bot.factories import ADMIN, OWNER, PLAN, a_sweep
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep


@pytest.fixture
async def life(redis):
    async with SimulatedSweep(redis, Clock(None), endless=True).started() as life:
        yield life


async def rounds(life, count, failures=0):
    for _ in range(count):
        await life.round(failures)


async def cancel(life, user=OWNER):
    await life.store.add_command(SWEEP, Command(action=Action.CANCEL, user=user, user_name="ada"))


async def has_its_image(life):
    await life.has(PLAN.image_repository, PLAN.image_tag)


async def test_unreachable_registry_is_reported_once_and_cancel_works(life):
    async def down(*_):
        raise UnreachableError("registry:5000 does not answer")

    life.registry.digest = down
    await rounds(life, 6, failures=6)
    assert [text for text in life.slack.said if "registry:5000 does not answer" in text] == life.slack.said
    assert len(life.slack.said) == 1
    await cancel(life)
    await rounds(life, 3)
    assert (await life.record()).phase is Phase.CANCELLED
    assert life.texts()[-1].startswith(":no_entry_sign: Cancelled")


async def test_cancel_clicked_twice_is_answered_once_and_empties_the_mailbox(life):
    await has_its_image(life)
    await rounds(life, 8)
    for _ in range(2):
        await cancel(life)
        await rounds(life, 1)
    assert await life.store.commands(SWEEP) == []
    await rounds(life, 6)
    await cancel(life)
    await rounds(life, 1)
    assert (await life.store.commands(SWEEP), life.slack.whispers) == ([], [])


async def test_cancel_by_a_second_user_names_the_first(life):
    await has_its_image(life)
    await rounds(life, 8)
    await cancel(life)
    await rounds(life, 1)
    assert (await life.record()).phase is Phase.STOPPING
    await cancel(life, ADMIN)
    await rounds(life, 1)
    [(user, answer)] = life.slack.whispers
    assert (user, f"<@{OWNER}>" in answer, "already cancelled" in answer) == (ADMIN, True, True)
    entries = [(entry.user, bool(entry.refused)) for entry in (await life.record()).audit_log[-2:]]
    assert entries == [(OWNER, False), (ADMIN, True)]
    assert await life.store.commands(SWEEP) == []
    await rounds(life, 6)
    assert (life.last.phase, life.last.cancelled_by, len(life.slack.whispers)) == (Phase.CANCELLED, OWNER, 1)


async def test_unreachable_git_host_is_reported_ephemerally(life):
    async def down(*_):
        raise UnreachableError("git.example does not answer")

    there, life.git.resolve = life.git.resolve, down
    await rounds(life, 3, failures=6)
    [(user, text)] = life.slack.whispers
    assert (user, "git.example does not answer" in text) == (OWNER, True)
    life.git.resolve = there
    await rounds(life, 4)
    assert life.slack.said
    assert not any("is over" in said for said in life.slack.said), "no trouble stood in the thread"


@pytest.mark.parametrize("retired", [False, True])
async def test_name_of_an_older_sweep_is_not_reused(life, retired):
    """Redis has forgotten it; its results are in MLflow, and in the cluster its record, or only its name."""
    older = a_sweep(Phase.SUCCEEDED, request_id="long-ago", submitted=True)
    life.kubernetes.create(sweep_configmap.config_map(older))
    where = ("ConfigMap", "sweeps", f"sweep-{SWEEP}")
    if retired:
        life.kubernetes.patch(*where, sweep_configmap.RETIRED)
    kept = life.kubernetes.get(*where)
    await rounds(life, 4)
    assert life.kubernetes.get(*where) == kept
    assert (await life.record()).phase is Phase.REFUSED
    [other] = await life.store.active()
    assert other != SWEEP
    assert other.startswith("lr-")
    assert life.slack.whispers == []


async def test_older_experiment_of_the_same_name_is_not_adopted(life):
    older = replace(PLAN, experiment={**PLAN.experiment, "metadata": {**PLAN.experiment["metadata"]}})
    older.experiment["metadata"]["annotations"] = {"sweepbot/delivery": "long-ago"}
    await has_its_image(life)
    life.kubernetes.create(older.experiment)
    await rounds(life, 8)
    assert (await life.record()).phase is Phase.FAILED
    assert "already exists" in life.slack.said[-1]


async def test_rejected_record_is_reported_and_leaves_nothing(life):
    async def forbidden(manifest):
        raise ApiError(403, "Forbidden", 'configmaps is forbidden: User "sweepbot" cannot create')

    life.cluster.create = forbidden
    await rounds(life, 5)
    [(user, text)] = life.slack.whispers
    assert (user, "configmaps is forbidden" in text) == (OWNER, True)
    assert (await life.record()).phase is Phase.REFUSED


@pytest.mark.parametrize("error", [NotInChannelError("C1"), MessageRejectedError("invalid_blocks")])
async def test_sweep_whose_channel_was_deleted_continues_silently(life, error):
    await rounds(life, 4)

    async def refused(*_, **__):
        raise error

    life.slack.reply = life.slack.update = refused
    await cancel(life)
    await rounds(life, 6)
    record = await life.record()
    assert (record.phase, record.outbox) == (Phase.CANCELLED, ())


async def test_emptied_redis_loses_no_sweep_and_repeats_no_end(life):
    await has_its_image(life)
    await rounds(life, 8)
    assert (await life.record()).phase in {Phase.PENDING, Phase.RUNNING}
    await life.redis.flushall()
    await cancel(life)
    await rounds(life, 8)
    assert (await life.record()).phase is Phase.CANCELLED
    said = list(life.slack.said)
    await life.redis.flushall()
    await rounds(life, 3)
    assert life.slack.said == said


async def test_command_for_a_sweep_that_never_existed_is_answered(life):
    await life.store.add_command("lr-no-such", Command(action=Action.CANCEL, user=OWNER, user_name="ada"))
    await life.round(item="lr-no-such")
    assert "No sweep named `lr-no-such`" in life.slack.whispers[0][1]


async def test_api_server_outage_is_reported_once_and_so_is_its_end(life):
    await has_its_image(life)
    await rounds(life, 8)
    there = dict(vars(life.cluster))

    async def away(*_, **__):
        raise UnreachableError("the API server does not answer")

    for name in ("get", "list", "create", "merge", "delete"):
        setattr(life.cluster, name, away)
    for cache in life.clients.caches:
        cache.complete = False  # the watches break with their server
    before = len(life.slack.said)
    for failures in range(8):
        await life.round(failures)
    vars(life.cluster).clear()
    vars(life.cluster).update(there)
    for cache in life.clients.caches:
        cache.complete = True
    await rounds(life, 3)
    new = life.slack.said[before:]
    assert len(new) == 2
    assert "hit an error. Sweepbot keeps retrying" in new[0]
    assert "continues" in new[1]
    await cancel(life)
    await rounds(life, 6)
    assert (await life.record()).phase is Phase.CANCELLED


async def test_deleted_build_job_is_created_again_silently(life):
    await rounds(life, 6)
    [build] = [j for j in life.kubernetes.list("Job", "sweeps") if j["metadata"]["name"].startswith("build")]
    said = list(life.slack.said)
    life.kubernetes.delete("Job", "sweeps", build["metadata"]["name"])
    await rounds(life, 3)
    [again] = [j for j in life.kubernetes.list("Job", "sweeps") if j["metadata"]["name"].startswith("build")]
    assert again["metadata"]["uid"] != build["metadata"]["uid"]
    assert life.slack.said == said


async def test_deleted_experiment_ends_the_sweep_and_releases_its_gpus(life):
    await has_its_image(life)
    await rounds(life, 8)
    assert life.gpus_held()
    life.kubernetes.delete("Experiment", "sweeps", SWEEP)
    await rounds(life, 6)
    assert (await life.record()).phase is Phase.FAILED
    assert "the Katib experiment was deleted" in life.slack.said[-1]
    assert life.gpus_held() == []


async def test_deleted_trial_job_is_created_again_by_katib_and_the_sweep_succeeds(life):
    await has_its_image(life)
    await rounds(life, 8)
    job = life.kubernetes.list("Job", "sweeps")[0]["metadata"]
    life.kubernetes.delete("Job", "sweeps", job["name"])
    await rounds(life, 2)
    assert life.kubernetes.get("Job", "sweeps", job["name"])["metadata"]["uid"] != job["uid"]
    life.story["endless"] = False
    await rounds(life, 16)
    assert (await life.record()).phase is Phase.SUCCEEDED


async def test_deleted_record_is_stored_again(life):
    await has_its_image(life)
    await rounds(life, 4)
    life.kubernetes.delete("ConfigMap", "sweeps", f"sweep-{SWEEP}")
    await rounds(life, 5)
    kept = sweep_configmap.read(life.kubernetes.get("ConfigMap", "sweeps", f"sweep-{SWEEP}"))
    assert kept.phase is (await life.record()).phase


async def test_same_command_twice_in_a_second_is_two_sweeps_and_one_build(life):
    second = a_sweep(request_id="trigger-2")
    await life.store.create(lambda i: replace(second, id=i), ["lr-calm-fox"], "trigger-2")
    for _ in range(8):
        await life.round()
        await life.round(item="lr-calm-fox")
    builds = [j for j in life.kubernetes.list("Job", "sweeps") if j["metadata"]["name"].startswith("build")]
    assert len(builds) == 1
    assert sum("another sweep's build" in text for text in life.slack.said) == 1


async def test_job_that_replaced_the_observed_one_is_kept(life):
    """Deletions name the uid that was seen: of the same name there may be another by then."""
    await has_its_image(life)
    await rounds(life, 8)
    job = life.kubernetes.list("Job", "sweeps")[0]
    where, delete = ("Job", "sweeps", job["metadata"]["name"]), life.cluster.delete
    kept = {key: job["metadata"][key] for key in ("name", "namespace", "labels")}

    left = []

    async def too_late(ref, **how):
        if ref.name != kept["name"]:
            return await delete(ref, **how)
        life.kubernetes.delete(*where, propagation="Background")
        labels = {"labels": {"sweepbot/sweep": SWEEP}}
        template = job["spec"]["template"] | {"metadata": labels}
        spec = {"backoffLimit": 0, "template": template}
        life.kubernetes.create(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": kept | labels, "spec": spec}
        )
        done = await delete(ref, **how)
        left.append(life.kubernetes.get(*where))
        life.cluster.delete = delete
        return done

    life.cluster.delete = too_late
    await life.store.add_command(
        SWEEP, Command(action=Action.KILL, user=OWNER, user_name="ada", trial=kept["name"])
    )
    await rounds(life, 3)
    assert [there["metadata"]["uid"] != job["metadata"]["uid"] for there in left] == [True]
    assert "deletionTimestamp" not in left[0]["metadata"]
