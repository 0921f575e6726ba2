"""The texts of builds and ends, and the reasons for an end."""

from dataclasses import replace

import pytest

from bot.core.events import Event, Progress, Result
from bot.core.record import Building, Phase
from bot.core.request import Notify
from bot.core.space import Goal
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.sweep.launch.plan import plan
from bot.sweep.lifecycle import texts
from bot.sweep.lifecycle.trials import ended, follow_results
from bot.sweep.model.observation import BuildSeen, Observation
from bot.sweep.model.texts import TOLD_IN_CHANNEL, to_owner
from k8s.engine import TrialState
from k8s.jobs import Job, JobState
from k8s.katib.status import read_experiment
from tests.bot.factories import ADMIN, NOW, ORDER, OWNER, PLAN, REQUEST, SETTINGS, SOURCE, a_sweep
from tests.bot.sweep.builds.projects import PROJECT, WITH_TORCH
from tests.bot.sweep.model.observations import OPEN, RAW, RUNNING, a_trial, after
from tests.cases import cases

FILES = {"pyproject.toml": PROJECT, "uv.lock": WITH_TORCH}
COMPOSED = plan(replace(ORDER, source=replace(SOURCE, files=FILES)), SETTINGS)
FRAMEWORKS, DEPENDENCIES, CODE = COMPOSED.builds
BUILDING = a_sweep(Phase.BUILDING, plan=COMPOSED)
UIDS = {build.ref.name: f"u-{build.role}" for build in (DEPENDENCIES, CODE)}
OURS = replace(BUILDING, building=Building(started=NOW, uids=UIDS))


def a_build(build, state=None, seconds=None, **facts):
    job = Job(name=build.ref.name, uid=f"u-{build.role}", state=state, seconds=seconds) if state else None
    return BuildSeen(build=build, job=job, **facts)


def reported(sweep, *builds, **seen):
    """Return the only event of a reconcile that observed these builds."""
    [event] = after(sweep, builds=builds, **seen).outbox
    return event


def step(sweep, *builds, **seen):
    """Return the image's step in the parent message; a build posts nothing."""
    found = after(sweep, builds=builds, **seen)
    assert found.outbox == ()
    return found.steps["image"]


MISSING, THERE = a_build(DEPENDENCIES, there=False), a_build(FRAMEWORKS, there=True)


@pytest.mark.parametrize(
    ("builds", "text"),
    [
        (
            (THERE, MISSING, a_build(CODE, JobState.ACTIVE)),
            "○ Building from `uv.lock`: dependencies and code; ML frameworks reused",
        ),
        ((MISSING,), "○ Building from `uv.lock`: dependencies"),
        (
            (THERE, a_build(DEPENDENCIES, JobState.ACTIVE)),
            "○ Waiting for another sweep's build (dependencies; ML frameworks reused)",
        ),
        ((THERE,), "○ Building from `uv.lock`: ML frameworks reused"),
    ],
)
def test_start_of_a_build_lists_missing_and_reused_images(builds, text):
    assert step(BUILDING, *builds) == text


def test_end_of_a_build_names_images_and_times_or_the_cause():
    digests = {build.tag: "sha256:a" for build in (FRAMEWORKS, DEPENDENCIES)}
    known = replace(OURS, building=replace(OURS.building, digests=digests))
    builds = (
        a_build(FRAMEWORKS, JobState.COMPLETE, 99.0),
        a_build(DEPENDENCIES, JobState.COMPLETE, 61.4),
        a_build(CODE, JobState.COMPLETE),
    )
    text = "ML frameworks reused, dependencies built in 61 s, code built"
    assert step(known, *builds, digest="sha256:a") == f"✓ Image: {text}"
    assert step(OURS, *builds, digest="sha256:a") == "✓ Image: dependencies built in 61 s, code built"
    assert step(BUILDING, *builds, digest="sha256:a") == "✓ Image reused from the registry"
    one = a_sweep(Phase.BUILDING)
    [made] = PLAN.builds
    assert step(one, a_build(made, there=False)) == f"○ Building image {PLAN.recipe}"
    ours = replace(one, building=Building(started=NOW, uids={made.ref.name: f"u-{made.role}"}))
    assert step(ours, a_build(made, JobState.COMPLETE, 3.2), digest="sha256:a") == "✓ Image built in 3 s"
    trouble = Diagnosis(key="build", text="RUN failed.", detail="no such file")
    failed = a_build(CODE, JobState.FAILED, trouble=trouble, pod="p", container="c", there=False)
    text = ":x: Image build failed for `01234567`."
    event = Event(kind="build_failed", text=text, pod="p", container="c")
    log = f"{text} RUN failed. Last lines of the log:\n```\nno such file\n```"
    assert reported(OURS, failed) == replace(event, text=log)
    assert reported(OURS, replace(failed, trouble=None)) == event
    why = (
        "The build succeeded, but its pod didn't report the image's digest, or the registry doesn't have the"
    )
    done = a_build(CODE, JobState.COMPLETE, pod="p", there=False)
    assert reported(OURS, done) == Event(kind="build_failed", text=f"{text} {why} image.")


@pytest.mark.parametrize(
    ("state", "reason", "message", "trials", "expected"),
    [
        ("Succeeded", "ExperimentGoalReached", "", "ss", "target reached"),
        ("Succeeded", "SweepbotDrained", "", "ssf", "drained after 3 trials"),
        ("Succeeded", "ExperimentMaxTrialsReached", "", "ssf", "3 trials done (1 failed)"),
        ("Failed", "ExperimentFailed", "", "ff", "2 trials failed"),
        ("Failed", "", "x", "f", "1 trial failed"),
        ("Failed", "ExperimentFailed", "", "", "Katib ended the experiment: no reason given"),
        ("Failed", "SuggestionFailed", "no answer", "f", "Katib ended the experiment: no answer"),
    ],
)
def test_reason_for_the_end_follows_katibs(state, reason, message, trials, expected):
    states = {"s": TrialState.SUCCEEDED, "f": TrialState.FAILED}
    end = {"type": state, "status": "True", "reason": reason, "message": message}
    experiment = read_experiment({**RAW, "status": {"conditions": [end]}})
    seen = tuple(a_trial(f"t{number}", states[each]) for number, each in enumerate(trials))
    assert after(RUNNING, experiment=experiment, trials=seen).reason == expected
    caused = after(replace(RUNNING, cause="ValueError: no"), experiment=experiment, trials=seen)
    assert caused.reason == ("ValueError: no" if expected.endswith("failed") else expected)


PARAMETERS = {"lr": "0.0028079050224114393", "width": "128", "seed": "12345678.9"}
BEST = Result(trial="t1", value=0.03125, parameters=PARAMETERS)
COMMAND = (
    "Best: `val_loss` *0.03125* with `lr=0.00280791 width=128 seed=12345678.9` (trial `t1`). Train with "
    "these values:\n```\npython train.py --lr=0.0028079050224114393 --width=128 --seed=12345678.9\n```"
)
NAME, REASON, TWO = "*lr-brave-otter*", "4 trials &lt;done&gt;", "2 trials done (2 failed)"
FREE = f":no_entry_sign: {NAME} · Cancelled. All pods are gone and the GPUs are free."
KEPT = "Finished trials keep their results in Katib and MLflow."
NO_GPUS = replace(PLAN, gpus=0)
LOUD = a_sweep(Phase.STOPPING, reason="4 trials <done>", progress=Progress(best=BEST))
DONE = replace(LOUD, request=replace(REQUEST, notify=Notify.NONE))


@cases(
    ("sweep", "ending", "text", "loud"),
    [
        (
            DONE,
            "succeeded",
            f":white_check_mark: {NAME} · Finished: 4 trials &lt;done&gt;. Much. {COMMAND}",
            False,
        ),
        (DONE, "failed", f":x: {NAME} · 4 trials &lt;done&gt;\nMuch. {COMMAND}", False),
        (
            replace(DONE, progress=Progress(failed=2)),
            "failed",
            f":x: {NAME} · {REASON}\n{TWO}. Much.",
            False,
        ),
        (DONE, "cancelled", f"{FREE} Much. {COMMAND}", False),
        (replace(DONE, submitted=True), "cancelled", f"{FREE} Much. {COMMAND}", False),
        (
            replace(DONE, submitted=True, progress=Progress(best=BEST, succeeded=1)),
            "cancelled",
            f"{FREE} {KEPT} Much. {COMMAND}",
            False,
        ),
        (LOUD, "failed", f":x: <@{OWNER}> {NAME} · 4 trials &lt;done&gt;\nMuch. {COMMAND}", True),
        (
            replace(LOUD, cancelled_by=ADMIN, progress=Progress()),
            "cancelled",
            f"{FREE.replace(' ', f' <@{OWNER}> ', 1)} Much.",
            True,
        ),
        (replace(LOUD, cancelled_by=OWNER, progress=Progress()), "cancelled", f"{FREE} Much.", False),
        (replace(DONE, plan=NO_GPUS), "cancelled", f"{FREE.replace('GPU', 'CPU')} Much. {COMMAND}", False),
    ],
)
def test_end_says_why_and_how_to_train_the_best_trial(sweep, ending, text, loud):
    event, *files = ended(sweep, Phase(ending), NOW, "Much").outbox
    assert event == Event(kind=texts.RESULTS if sweep.submitted else ending, text=text, loud=loud)
    assert files == ([texts.RESULT_FILES] if sweep.submitted else [])


@pytest.mark.parametrize(("failed", "key", "loud"), [(1, True, False), (1, False, True), (2, True, True)])
def test_end_by_one_failed_trial_notifies_once(failed, key, loud):
    """The message about the trial came just before, and mentions the owner."""
    told = (TOLD_IN_CHANNEL,) if key else ()
    changes = {"reason": "OutOfMemoryError", "cause": "OutOfMemoryError", "sent_keys": told}
    [event] = ended(replace(LOUD, progress=Progress(failed=failed), **changes), Phase.FAILED, NOW).outbox
    assert event.loud is loud
    assert (f"<@{OWNER}>" in event.text) is loud
    assert "OutOfMemoryError" in event.text
    assert "OutOfMemoryError" not in event.shown


def test_end_goes_to_the_owner_too_if_asked_for_or_without_a_thread():
    sweep = replace(DONE, progress=Progress(), request=replace(REQUEST, notify=Notify.DM))
    thread, direct = ended(sweep, Phase.FAILED, NOW).outbox
    assert (thread.to_user, direct.to_user, direct.response_url) == ("", OWNER, "")
    assert direct.text == ":x: *lr-brave-otter* in <#C1> · 4 trials &lt;done&gt;"
    [_, direct] = ended(replace(sweep, permalink="https://s/p1"), Phase.FAILED, NOW).outbox
    assert direct.text == ":x: *<https://s/p1|lr-brave-otter>* in <#C1> · 4 trials &lt;done&gt;"
    sweep = a_sweep(Phase.STOPPING, thread=None, cancelled_by=ADMIN)
    text = f":no_entry_sign: *lr-brave-otter* in <#C1> · Cancelled by <@{ADMIN}> before anything ran."
    ends = ended(sweep, Phase.CANCELLED, NOW).outbox
    assert [(each.to_user, each.response_url, each.text) for each in ends] == [
        (OWNER, "https://hooks/1", text),
        (ADMIN, "", text),
    ]
    for alone, ending in ((OWNER, Phase.CANCELLED), (None, Phase.FAILED)):
        [event] = ended(replace(sweep, cancelled_by=alone), ending, NOW).outbox
        assert event.to_user == OWNER
    event = Event(kind="restored")
    private = replace(event, to_user=OWNER, response_url="https://hooks/1")
    assert to_owner(a_sweep(Phase.BUILDING), event) == event
    assert to_owner(a_sweep(Phase.RECEIVED), event) == private


def test_objective_that_no_trial_has_is_reported_once():
    space = replace(PLAN.space, additional=("latency",), goals={"latency": Goal.MINIMIZE})
    sweep = a_sweep(Phase.RUNNING, submitted=True, plan=replace(PLAN, space=space))
    done = a_trial("t1", TrialState.SUCCEEDED, 0.5)
    seen = Observation(experiment=OPEN, trials=(done, a_trial("t2")))
    told = follow_results(sweep, seen, NOW)
    [event] = told.outbox
    assert event.text.startswith(
        f":warning: <@{OWNER}> Trial `t1` finished without a finite value of `latency`. The search learns"
    )
    assert follow_results(told, seen, NOW).outbox == told.outbox
    both = replace(seen, trials=(done, replace(done, name="t3", more={"latency": 1.0})))
    assert follow_results(sweep, both, NOW).outbox == ()
    assert follow_results(sweep, Observation(experiment=OPEN, trials=(a_trial("t2"),)), NOW).outbox == ()
