"""The changes to the cluster that each phase requires."""

import json
from dataclasses import replace

import pytest

from bot.core.plan import Role
from bot.core.record import Building, Phase
from bot.platform.registry.images import ImageRef
from bot.sweep.decisions.required_changes import RequiredChanges, required_changes
from bot.sweep.launch.plan import plan
from bot.sweep.model.observation import BuildSeen, Observation
from bot.sweep.results import run_tags
from k8s.engine import ExperimentState, Trial, TrialState
from k8s.jobs import Job, JobState
from k8s.kaniko import with_base
from k8s.katib.status import read_experiment, read_trial
from k8s.pods import Pod
from tests.bot.factories import NOW, ORDER, OWNER, PLAN, SETTINGS, SOURCE, a_sweep
from tests.bot.sweep.builds.projects import PROJECT, WITH_TORCH
from tests.bot.sweep.model.observations import LABELS, a_pod, after

FILES = {"pyproject.toml": PROJECT, "uv.lock": WITH_TORCH}
COMPOSED = plan(replace(ORDER, source=replace(SOURCE, files=FILES)), SETTINGS)
FRAMEWORKS, DEPENDENCIES, CODE = COMPOSED.builds
COUNTS = {"maxTrialCount": 4, "parallelTrialCount": 2, "maxFailedTrialCount": 2}
META = {"resourceVersion": "7", "labels": LABELS}
RAW = {"metadata": META, "spec": COUNTS, "status": {"conditions": []}}
OPEN = read_experiment(RAW)
CLOSED = replace(OPEN, state=ExperimentState.FAILED)


def a_trial(name, state=TrialState.LIVE):
    killed = state is TrialState.KILLED
    return Trial(name=name, state=state, parameters={}, value=None, killed=killed, raw=RAW)


def a_job(name, uid="", state=JobState.ACTIVE):
    return Job(name=name, uid=uid or f"u-{name}", state=state)


def changes(sweep, **seen):
    return required_changes(sweep, Observation(**seen), NOW)


def composing(*digests):
    """Return what a sweep of three builds requires; a digest means there, "" absent, None not checked."""
    seen = zip(COMPOSED.builds, digests, strict=True)
    builds = tuple(BuildSeen(build=b, there=d if d is None else bool(d), digest=d or "") for b, d in seen)
    return changes(a_sweep(Phase.BUILDING, plan=COMPOSED), builds=builds)


def test_building_starts_continues_and_composes_once_all_parts_exist():
    assert (FRAMEWORKS.role, DEPENDENCIES.needs, CODE.needs) == (Role.FRAMEWORKS, FRAMEWORKS.tag, "")
    assert composing("", "", "") == RequiredChanges(create=(FRAMEWORKS.job, CODE.job))
    job = with_base(DEPENDENCIES.job, FRAMEWORKS.tag, "sha256:f")
    assert composing("sha256:f", "", "sha256:c") == RequiredChanges(create=(job,))
    whole = ImageRef(COMPOSED.image_repository, COMPOSED.image_tag)
    below = ImageRef(DEPENDENCIES.repository, "sha256:d")
    above = ImageRef(CODE.repository, "sha256:c")
    assert composing("sha256:f", "sha256:d", "sha256:c") == RequiredChanges(compose=(whole, below, above))
    assert composing(None, None, None) == RequiredChanges()
    assert changes(a_sweep(Phase.BUILDING)) == RequiredChanges()
    absent, building = (BuildSeen(build=CODE, there=False),), a_sweep(Phase.BUILDING, plan=COMPOSED)
    assert changes(building, builds=absent).create == (CODE.job,)
    assert changes(building, builds=absent, digest="sha256:a") == RequiredChanges(), "it has its image"


@pytest.mark.parametrize("role", [Role.DEPENDENCIES, Role.CODE])
def test_building_without_both_parts_composes_nothing(role):
    one = COMPOSED.build(role)
    sweep = a_sweep(Phase.BUILDING, plan=replace(COMPOSED, builds=(one,)))
    assert changes(sweep, builds=(BuildSeen(build=one, there=True, digest="sha256:d"),)) == RequiredChanges()


@pytest.mark.parametrize("phase", [Phase.RECEIVED, Phase.OPENING, Phase.REFUSED])
def test_phase_without_objects_requires_nothing(phase):
    assert changes(a_sweep(phase), experiment=OPEN, jobs=(a_job("t1"),)) == RequiredChanges()
    assert changes(a_sweep(Phase.RUNNING, plan=None), experiment=OPEN) == RequiredChanges()


@pytest.mark.parametrize(
    ("sweep", "seen"),
    [
        ({"image": "i"}, {"experiment": OPEN}),
        ({"image": None}, {}),
        ({"image": "i", "submitted": True}, {}),
        ({"image": "i"}, {"start_blocked": True}),
    ],
)
def test_experiment_is_created_only_if_absent(sweep, seen):
    assert changes(a_sweep(Phase.PENDING, **sweep), **seen).create == ()
    assert len(changes(a_sweep(Phase.PENDING, image="i")).create) == 1


def test_draining_completes_an_open_experiment_only():
    draining = a_sweep(Phase.RUNNING, submitted=True, draining="drained")
    [patch] = changes(draining, experiment=OPEN).patch
    assert (patch.ref, patch.subresource) == (PLAN.experiment_ref, "status")
    [condition] = patch.body["status"]["conditions"]
    assert (condition["type"], condition["message"]) == ("Succeeded", "Sweepbot: drained")
    assert changes(draining, experiment=CLOSED) == RequiredChanges()
    assert changes(draining) == RequiredChanges()
    assert changes(draining, experiment=OPEN, start_blocked=True) == RequiredChanges()
    held = replace(draining, phase=Phase.HELD)
    assert changes(held, experiment=OPEN) == RequiredChanges()


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING])
def test_running_deletes_jobs_of_stopped_trials_only(phase):
    trials = (a_trial("t1"), a_trial("t2", TrialState.KILLED), a_trial("t3"))
    jobs = (a_job("t1"), a_job("t2"), a_job("t3"), a_job("t5", state=JobState.COMPLETE))
    sweep = a_sweep(phase, submitted=True, to_kill={"t1": OWNER})
    found = changes(sweep, experiment=OPEN, trials=trials, jobs=jobs)
    assert [(d.ref.kind, d.ref.namespace, d.ref.name, d.uid) for d in found.delete] == [
        ("Job", "sweeps", name, f"u-{name}") for name in ("t1", "t2")
    ]
    [kill] = found.patch
    assert (kill.ref.kind, kill.ref.name, kill.subresource) == ("Trial", "t1", "status")
    assert kill.body["status"]["conditions"][0]["message"] == "Sweepbot: stopped by request"


@pytest.mark.parametrize("phase", [Phase.STOPPING, Phase.CANCELLED, Phase.FAILED, Phase.SUCCEEDED])
def test_ending_says_why_in_the_experiment_and_its_trials(phase):
    sweep = a_sweep(phase, reason="cancelled", ending=Phase.CANCELLED, image="i")
    [end] = changes(sweep, experiment=OPEN, trials=(a_trial("t1"),), jobs=(a_job("t1"),)).patch
    assert end.body["status"]["conditions"][-1]["message"] == "Sweepbot: cancelled"
    [kill] = changes(sweep, experiment=CLOSED, trials=(a_trial("t1"),)).patch
    assert kill.ref.kind == "Trial"
    assert kill.body["status"]["conditions"][0]["message"] == "Sweepbot: cancelled"
    [left] = changes(sweep, jobs=(a_job("t1"),)).delete
    assert left.uid == "u-t1"


def test_trials_that_never_got_a_node_are_not_counted_as_stopped():
    sweep = a_sweep(Phase.STOPPING, submitted=True, ending=Phase.CANCELLED)
    names = ("ran", "again", "pulls", "waits", "queued")
    facts = {"experiment": CLOSED, "trials": tuple(map(a_trial, names)), "ran": frozenset(names[:2])}
    found = changes(sweep, pods=(a_pod("pulls"), a_pod("waits", node="")), **facts)
    reasons = {kill.ref.name: kill.body["status"]["conditions"][0]["reason"] for kill in found.patch}
    assert reasons == dict.fromkeys(names[:3], "TrialKilled") | dict.fromkeys(names[3:], "SweepbotNotStarted")
    killed = [kill.body | {"metadata": {"name": kill.ref.name}} for kill in found.patch]
    ended = after(
        sweep, experiment=CLOSED, trials=tuple(read_trial(each, {"loss": "min"}) for each in killed)
    )
    assert (ended.progress.killed, ended.progress.finished) == (3, 3)


def test_builds_that_no_sweep_needs_are_deleted():
    (made,) = PLAN.builds
    sweep = a_sweep(Phase.STOPPING, ending=Phase.CANCELLED)
    mine = BuildSeen(build=made, job=a_job(made.ref.name, "b1"))
    [delete] = changes(sweep, builds=(mine,)).delete
    assert (delete.ref, delete.uid, delete.build) == (made.ref, "b1", True)
    assert changes(sweep, builds=(replace(mine, shared=True),)).delete == ()
    done = replace(mine, job=a_job(made.ref.name, "b1", JobState.COMPLETE))
    pod = Pod(name="b1-x", job=made.ref.name, node="n1", finished=False)
    assert changes(sweep, builds=(replace(done, alive=(pod,)),)).delete == (), "it is being deleted"
    assert changes(replace(sweep, image="i"), builds=(mine,)).delete == ()
    failed = BuildSeen(build=made, job=a_job(made.ref.name, "b1", JobState.FAILED), there=False)
    sweep = a_sweep(Phase.BUILDING)
    assert [d.uid for d in changes(sweep, builds=(failed,)).delete] == ["b1"]
    assert (
        changes(replace(sweep, building=Building(uids={made.ref.name: "b1"})), builds=(failed,)).delete == ()
    )
    there = replace(failed, there=True, digest="sha256:a")
    assert changes(sweep, builds=(there,)).delete == ()


def test_experiment_is_submitted_once_with_image_links_and_tags():
    sweep = a_sweep(Phase.PENDING, image="registry:5000/x@sha256:ab")
    (made,) = required_changes(sweep, Observation(), NOW).create
    pod = made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry:5000/x@sha256:ab"
    submitted = after(sweep, experiment=OPEN)
    assert submitted.submitted
    assert required_changes(submitted, Observation(), NOW) == RequiredChanges()
    links = {"permalink": "https://slack/p1", "results_url": "https://mlflow/#/1"}
    [made] = changes(a_sweep(Phase.PENDING, image="r/i@sha256:12", **links)).create
    annotations = made["metadata"]["annotations"]
    assert (annotations["sweepbot/thread"], annotations["sweepbot/mlflow"]) == tuple(links.values())
    assert annotations["sweepbot/branch"] == "main"
    [training] = made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"]
    [tags] = [json.loads(e["value"]) for e in training["env"] if e["name"] == run_tags.VARIABLE]
    assert (tags[run_tags.IMAGE], tags[run_tags.THREAD]) == ("r/i@sha256:12", "https://slack/p1")
    assert tags[run_tags.SWEEP] == "lr-brave-otter"
