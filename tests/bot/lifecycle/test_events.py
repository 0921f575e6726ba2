"""The events of builds and ends, and the reasons for an end."""

from dataclasses import replace

import pytest

from bot.core.events import Event, EventKind, Progress, Result
from bot.core.record import Phase
from bot.core.request import Notify
from bot.health.diagnosis import Diagnosis
from bot.launch.plan import plan
from bot.lifecycle.events import (
    build_failed,
    build_finished,
    build_started,
    end_events,
    failure_reason,
    success_reason,
    to_owner,
)
from bot.lifecycle.observation import BuildSeen, Observation
from k8s.jobs import Job, JobState
from k8s.katib.status import Experiment, ExperimentState
from tests.bot.builds.projects import PROJECT, WITH_TORCH
from tests.bot.factories import ADMIN, ORDER, OWNER, SETTINGS, SOURCE, a_sweep

FILES = {"pyproject.toml": PROJECT, "uv.lock": WITH_TORCH}
FRAMEWORKS, DEPENDENCIES, CODE = plan(replace(ORDER, source=replace(SOURCE, files=FILES)), SETTINGS).builds


def a_build(build, state=None, seconds=None, **facts):
    job = Job(name=build.ref.name, uid=f"u-{build.role}", state=state, seconds=seconds) if state else None
    return BuildSeen(build=build, job=job, **facts)


def started(*builds):
    return build_started(Observation(builds=builds))


def test_build_started_lists_missing_and_reused_images():
    there = a_build(FRAMEWORKS, there=True)
    missing = a_build(DEPENDENCIES, there=False), a_build(CODE, JobState.ACTIVE)
    text = "dependencies and code; ML frameworks reused"
    assert started(there, *missing) == Event(kind=EventKind.BUILD_STARTED, text=text)
    assert started(missing[0]) == Event(kind=EventKind.BUILD_STARTED, text="dependencies")


def test_build_started_by_other_sweeps_is_joined():
    running = a_build(DEPENDENCIES, JobState.ACTIVE)
    assert started(a_build(FRAMEWORKS, there=True), running).kind is EventKind.BUILD_JOINED
    assert started(a_build(FRAMEWORKS, there=True)).kind is EventKind.BUILD_STARTED


def test_build_failed_names_the_cause_and_the_log():
    trouble = Diagnosis(key="build", text="RUN failed", detail="no such file")
    failed = a_build(CODE, JobState.FAILED, trouble=trouble, pod="p", container="c")
    cause = {"text": "RUN failed", "detail": "no such file", "pod": "p", "container": "c"}
    assert build_failed(failed) == Event(kind=EventKind.BUILD_FAILED, **cause)
    unknown = Event(kind=EventKind.BUILD_FAILED, pod="p", container="c")
    assert build_failed(replace(failed, trouble=None)) == unknown
    assert build_failed(replace(failed, job=None)) == build_failed(failed)


def test_build_that_completed_without_an_image_needs_no_log():
    text = (
        "The build succeeded, but its pod didn't report the image's digest, or the registry doesn't have the "
    )
    done = a_build(CODE, JobState.COMPLETE, pod="p")
    assert build_failed(done) == Event(kind=EventKind.BUILD_FAILED, text=f"{text}image.")


def test_build_finished_lists_reused_and_built_images_with_their_times():
    uids = {build.ref.name: f"u-{build.role}" for build in (DEPENDENCIES, CODE)}
    digests = {build.tag: "sha256:a" for build in (FRAMEWORKS, DEPENDENCIES)}
    sweep = a_sweep(Phase.BUILDING, build_uids=uids, digests=digests)
    builds = (
        a_build(FRAMEWORKS, JobState.COMPLETE, 99.0),
        a_build(DEPENDENCIES, JobState.COMPLETE, 61.4),
        a_build(CODE, JobState.COMPLETE),
    )
    text = "ML frameworks reused, dependencies built in 61 s, code built"
    assert build_finished(sweep, Observation(builds=builds)) == Event(kind=EventKind.BUILD_DONE, text=text)
    own = replace(sweep, digests={})
    assert build_finished(own, Observation(builds=builds)).text == "dependencies built in 61 s, code built"
    reused = Event(kind=EventKind.BUILD_REUSED)
    assert build_finished(replace(sweep, build_uids={}), Observation(builds=builds)) == reused


def experiment(reason, message=""):
    return Experiment(state=ExperimentState.SUCCEEDED, raw={}, reason=reason, message=message)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ExperimentGoalReached", "target reached"),
        ("SweepbotDrained", "drained after 3 trials"),
        ("ExperimentMaxTrialsReached", "3 trials done (1 failed)"),
    ],
)
def test_success_reason_follows_katibs(reason, expected):
    sweep = a_sweep(Phase.RUNNING, progress=Progress(succeeded=2, failed=1))
    assert success_reason(sweep, experiment(reason)) == expected


@pytest.mark.parametrize(
    ("reason", "failed", "message", "expected"),
    [
        ("ExperimentFailed", 2, "", "2 trials failed"),
        ("", 1, "x", "1 trial failed"),
        ("ExperimentFailed", 0, "", "Katib ended the experiment: no reason given"),
        ("SuggestionFailed", 1, "no answer", "Katib ended the experiment: no answer"),
    ],
)
def test_failure_reason_names_trials_or_katib(reason, failed, message, expected):
    assert failure_reason(experiment(reason, message), Progress(failed=failed)) == expected


def test_to_owner_is_ephemeral_only_without_a_thread():
    event = Event(kind=EventKind.RESTORED)
    private = replace(event, to_user=OWNER, response_url="https://hooks/1")
    assert to_owner(a_sweep(Phase.BUILDING), event) == event
    assert to_owner(a_sweep(Phase.RECEIVED), event) == private


BEST = Result(trial="t1", value=0.5, parameters={})


@pytest.mark.parametrize("ending", [Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED])
def test_end_events_go_to_the_thread(ending):
    sweep = a_sweep(Phase.STOPPING, reason="4 trials done", progress=Progress(best=BEST))
    event = Event(kind=EventKind(ending.value), text="4 trials done", result=BEST)
    assert end_events(sweep, ending) == (event,)
    assert end_events(replace(sweep, cancelled_by=ADMIN), ending) == (event,)


def test_end_events_of_a_sweep_with_trials_include_its_results():
    sweep = a_sweep(Phase.STOPPING, submitted=True)
    kinds = [event.kind for event in end_events(sweep, Phase.FAILED)]
    assert kinds == [EventKind.FAILED, EventKind.RESULTS, EventKind.RESULT_FILES]


def test_end_events_with_notify_dm_go_to_the_owner_too():
    sweep = a_sweep(Phase.STOPPING)
    sweep = replace(sweep, request=replace(sweep.request, notify=Notify.DM))
    assert [event.to_user for event in end_events(sweep, Phase.FAILED)] == ["", OWNER]
    *_, table, files = end_events(replace(sweep, submitted=True), Phase.FAILED)  # the files can wait
    assert (table.kind, files.kind) == (EventKind.RESULTS, EventKind.RESULT_FILES)


def test_end_events_without_a_thread_go_to_owner_and_canceller():
    sweep = a_sweep(Phase.STOPPING, thread=None, cancelled_by=ADMIN)
    ends = [(event.to_user, event.response_url) for event in end_events(sweep, Phase.CANCELLED)]
    assert ends == [(OWNER, "https://hooks/1"), (ADMIN, "")]
    own = end_events(replace(sweep, cancelled_by=OWNER), Phase.CANCELLED)
    assert [event.to_user for event in own] == [OWNER]
    assert [event.to_user for event in end_events(replace(sweep, cancelled_by=None), Phase.FAILED)] == [OWNER]
