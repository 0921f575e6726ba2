"""The building phase: images are reused, joined, built, or fail the sweep."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.events import Event
from bot.core.plan import BranchImage
from bot.core.record import Building, Phase
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.sweep.decisions.required_changes import RequiredChanges, required_changes
from bot.sweep.lifecycle import texts
from bot.sweep.model.observation import Observation
from k8s.jobs import JobState
from tests.bot.factories import NOW, PLAN, a_sweep
from tests.bot.sweep.model.observations import LATER, MAKES, a_job, a_pod, after, building, kinds

JOB = a_job(MAKES.ref.name)
COMPLETE_JOB = replace(JOB, state=JobState.COMPLETE)
FAILED_JOB = replace(JOB, state=JobState.FAILED, message="BackoffLimitExceeded")
OWN_UID = {MAKES.ref.name: JOB.uid}


def test_building_uses_an_image_that_exists_at_once():
    sweep = a_sweep(Phase.BUILDING, plan=replace(PLAN, builds=()))
    steps = {"image": "✓ Prebuilt image"}
    assert after(sweep) == replace(
        sweep, phase=Phase.PENDING, since=LATER, image=PLAN.image_by_digest, steps=steps
    )
    assert after(replace(sweep, plan=None)) == replace(sweep, plan=None)
    sweep = after(a_sweep(Phase.BUILDING), digest="sha256:ab")
    assert (sweep.phase, sweep.image) == (Phase.PENDING, "registry:5000/sweepbot/digits@sha256:ab")
    assert sweep.steps["image"] == "✓ Image reused from the registry"
    seen = building(COMPLETE_JOB, there=True)
    assert required_changes(a_sweep(Phase.BUILDING), Observation(**seen), NOW) == RequiredChanges()


def test_building_builds_the_image_of_each_branch_before_it_submits():
    built = {name: getattr(PLAN, name) for name in ("commit", "subject", "recipe", "builds")}
    branches = tuple(BranchImage(label=b, branch=b, tag=b, **built) for b in ("main", "wider"))
    sweep = after(a_sweep(Phase.BUILDING, plan=replace(PLAN, branches=branches)), digest="sha256:a")
    assert (sweep.phase, sweep.plan.image_tag) == (Phase.BUILDING, "wider")
    sweep = after(sweep, digest="sha256:b")
    assert (sweep.phase, sweep.plan.image_tag) == (Phase.PENDING, "main")


def test_building_reports_its_start_once_and_remembers_jobs_and_parts():
    sweep = after(a_sweep(Phase.BUILDING), **building(there=False))
    assert sweep.building.started == LATER
    assert sweep.steps["image"].startswith("○ Building image")
    assert after(sweep, **building(there=False)) == sweep
    assert required_changes(sweep, Observation(**building(there=False)), NOW).create == (MAKES.job,)
    sweep = a_sweep(Phase.BUILDING, building=Building(started=NOW, uids={"other": "u-o"}))
    name = MAKES.ref.name
    assert after(sweep, **building(a_job(name))) == replace(
        sweep, building=replace(sweep.building, uids={"other": "u-o", name: f"u-{name}"})
    )
    done = building(a_job(name, JobState.COMPLETE), there=True, digest="sha256:a")
    assert after(sweep, **done) == replace(
        sweep, building=replace(sweep.building, digests={MAKES.tag: "sha256:a"})
    )
    sweep = after(a_sweep(Phase.BUILDING), **building(JOB))
    assert "another sweep's build" in sweep.steps["image"]
    assert sweep.building.uids == OWN_UID
    assert required_changes(sweep, Observation(**building(JOB)), NOW) == RequiredChanges()


WAITS = Diagnosis(key="queued", text="Kueue holds the build.", fix="Ask an admin.", detail="no quota")


def test_waiting_build_is_reported_once_per_cause_and_shown_while_it_waits():
    sweep = a_sweep(Phase.BUILDING, building=Building(started=NOW))
    job = a_job(MAKES.ref.name)
    waits = after(sweep, **building(job, trouble=WAITS))
    text = "Kueue holds the build. *Fix:* Ask an admin."
    shown = f":hourglass_flowing_sand: Build not started. {text}\n```\nno quota\n```"
    event = Event(kind="build_waiting", text=shown)
    assert (waits.building.trouble, waits.outbox) == (text, (event,))
    assert waits.sent_keys == ("build_waiting/queued",)
    assert after(waits, **building(job, trouble=WAITS)) == waits
    assert after(waits, **building(job)).building.trouble == ""
    runs = after(replace(waits, sent_keys=("a", *waits.sent_keys)), **building(job, started=True))
    assert (runs.building.trouble, runs.sent_keys, runs.outbox) == ("", ("a",), (event, texts.BUILD_RUNS))
    assert after(runs, **building(job, started=True)) == runs
    other = after(waits, **building(job, trouble=Diagnosis(key="mount", text="No volume.")))
    assert (other.building.trouble, len(other.outbox)) == ("No volume.", 2)
    done = building(a_job(MAKES.ref.name, JobState.COMPLETE), there=True, trouble=WAITS)
    assert after(sweep, **done).building.trouble == ""


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.COMPLETE])
def test_building_fails_only_with_its_own_job(state):
    failed = building(a_job(MAKES.ref.name, state), there=False)
    mine = a_sweep(
        Phase.BUILDING, building=Building(started=NOW, uids={MAKES.ref.name: f"u-{MAKES.ref.name}"})
    )
    ended = after(mine, **failed)
    assert (ended.phase, ended.ending, ended.reason) == (Phase.STOPPING, Phase.FAILED, "Image build failed")
    assert kinds(ended) == ["build_failed"]
    assert after(replace(mine, building=Building(uids={})), **failed).phase is Phase.BUILDING


def test_headline_of_a_failed_build_is_its_cause_and_the_thread_has_the_fix():
    text = "`RUN pip install x` failed. No matching package: x. *Fix:* Check its name."
    trouble = Diagnosis(key="build", text=text, cause="No matching package: x")
    failed = building(a_job(MAKES.ref.name, JobState.FAILED), there=False, trouble=trouble)
    ended = after(a_sweep(Phase.BUILDING, building=Building(started=NOW, uids=OWN_UID)), **failed)
    assert ended.reason == "Image build failed: No matching package: x"
    assert text in ended.outbox[0].text
    told = texts.ended(replace(ended, thread="1.1"), Phase.FAILED, "")
    assert told.text == ":x: <@UOWNER> *lr-brave-otter* · Image build failed: No matching package: x"
    assert told.shown == (
        ":x: <@UOWNER> *lr-brave-otter* · Image build failed. The cause and the log are in this thread."
    )


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.COMPLETE])
def test_building_deletes_and_repeats_a_build_that_ended_without_an_image(state):
    seen = building(replace(JOB, state=state), there=False)
    sweep = after(a_sweep(Phase.BUILDING), **seen)
    assert (sweep.phase, sweep.steps["image"][:10]) == (Phase.BUILDING, "○ Building")
    assert [d.uid for d in required_changes(sweep, Observation(**seen), NOW).delete] == [JOB.uid]


def test_stopping_deletes_a_build_unless_another_sweep_waits_for_it_and_waits_for_its_pod():
    sweep = a_sweep(Phase.STOPPING, ending=Phase.CANCELLED)
    seen, shared = building(JOB), building(JOB, shared=True)
    assert required_changes(sweep, Observation(**seen), NOW).delete[0].ref == MAKES.ref
    assert required_changes(sweep, Observation(**shared), NOW) == RequiredChanges()
    assert after(sweep, **seen).phase is Phase.STOPPING
    assert after(sweep, **shared).phase is Phase.CANCELLED
    sweep = a_sweep(Phase.STOPPING, ending=Phase.CANCELLED, since=NOW - timedelta(minutes=6))
    left = building(alive=(a_pod("build"),))
    assert required_changes(sweep, Observation(**left), NOW) == RequiredChanges()
    assert "build-x on n1" in after(sweep, **left).outbox[0].text
    assert after(sweep, **building()).phase is Phase.CANCELLED
