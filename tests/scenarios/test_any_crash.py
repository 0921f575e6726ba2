"""A worker may die at any call to the outside; the sweep ends the same way.

Each story is lived once calmly, and then again, dying after one of its calls took effect. The next call
never happens, so the moment before that one is the same moment. `make crashes` dies at every call of every
story, every night; `.ci/run` at every 24th, `make test` once in about a third of the stories, others in each
run: stories share most of their calls, so each kind of call has its crash in some story. A failure names the
call.

    CRASH_CALL=57 .venv/bin/pytest tests/scenarios/test_any_crash.py -k "crash_at_any_call and extended"

A worker that dies costs the sweep a round, in which the cluster continues. A training that crashes in that
round was never seen running, and no message says that it runs: that would be untrue by then. So the two cases
are stories of their own, and each has exactly the same messages wherever the worker dies.
"""

import os
import secrets
from dataclasses import replace

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from tests.bot.factories import REQUEST
from tests.scenarios.sweep_in_memory import SPACE, Clock, SimulatedSweep

TARGET = SPACE.replace("goal: minimize", "goal: minimize, target: 0.6")
EXTENDABLE = SPACE.replace("[a, b, c]", "[a, b, c, d, e]")
ONE_TRIAL = SPACE.replace("[a, b, c]", "[a]").replace("max: 3, parallel: 2", "max: 1")
READY = f"{SPACE}image: registry:5000/lab/ready\n"
PROJECT = '[project]\nname = "lr"\n'
UV = {"pyproject.toml": PROJECT, "uv.lock": "version = 1"}
TORCH = """
[[package]]
name = "lr"
source = { virtual = "." }
dependencies = [{ name = "torch" }]

[[package]]
name = "torch"
version = "2.7.1"
source = { registry = "https://pypi.org/simple" }
wheels = [{ url = "https://x/torch-2.7.1-cp311-cp311-manylinux_2_28_x86_64.whl", hash = "sha256:ab" }]
"""
FRAMEWORKS = {"pyproject.toml": PROJECT, "uv.lock": TORCH}
# What comes after is the same as in other stories, and each story is lived once for each of its calls.
ONLY_UNTIL_THE_FIRST_TRIAL = {"acts": {Action.CANCEL: Phase.PENDING}, "endless": "trainings"}
BRANCHES = {
    "sweep": {"request": replace(REQUEST, branch="main,wider")},
    "space": SPACE.replace("grid", "auto").replace("max: 3", "max: 32"),
    "search": True,
    "needs": ["branches"],
}
GATED = {"sweep": {"request": replace(REQUEST, gate=True)}, "needs": ["gate"]}
# `needs`: features of a sweep, with which the story goes.
STORIES = {
    "calm": {},
    "image there": {"image": True},
    "bad build": {"bad_build": "build-"},
    "two branches": BRANCHES | {"files": UV, "acts": {Action.CANCEL: Phase.PENDING}},
    "bad build of the second branch": BRANCHES | {"bad_build": "build-digits-765432"},
    "two branches cancelled in their builds": BRANCHES | {"acts": {Action.CANCEL: Phase.BUILDING}},
    "dependencies and code": {"files": UV} | ONLY_UNTIL_THE_FIRST_TRIAL,
    "bad code beside good dependencies": {"files": UV, "bad_build": "-code-"},
    "heavy packages first": {"files": FRAMEWORKS} | ONLY_UNTIL_THE_FIRST_TRIAL,
    "two builds cancelled": {"files": UV, "acts": {Action.CANCEL: Phase.BUILDING}, "endless": True},
    "a ready image": {"space": READY} | ONLY_UNTIL_THE_FIRST_TRIAL,
    "nothing to build from": {"files": {}},
    "trainings crash": {"crash": "seen", "image": True},
    "trainings crash before they are seen running": {"crash": "unseen", "image": True},
    "bad space": {"space": "objective: {}"},
    "not invited": {"invited": False},
    "cancelled before its thread": {"acts": {Action.CANCEL: Phase.OPENING}},
    "cancelled while building": {"acts": {Action.CANCEL: Phase.BUILDING}, "endless": True},
    "cancelled while proving": {"acts": {Action.CANCEL: Phase.PENDING}, "image": True, "endless": True},
    "cancelled while running": {"acts": {Action.CANCEL: Phase.RUNNING}, "image": True, "endless": True},
    "drained": {"acts": {Action.DRAIN: Phase.RUNNING}, "image": True, "patient": True},
    "one trial killed": {"acts": {Action.KILL: Phase.RUNNING}, "image": True, "patient": True},
    "target reached while others run": {"space": TARGET, "image": True, "one_ends": True},
    "asked": {"acts": {Action.LOGS: Phase.RUNNING, Action.RESULTS: Phase.SUCCEEDED}, "image": True},
    "extended": {
        "space": EXTENDABLE,
        "acts": {Action.EXTEND: Phase.SUCCEEDED},
        "image": True,
        "needs": ["extension"],
    },
    "gated": {"image": True} | GATED,
    "held, then all run": {"crash": "unseen", "acts": {Action.OPEN: Phase.HELD}, "image": True} | GATED,
    "paused, then resumed": {
        "space": EXTENDABLE,
        "acts": {Action.PAUSE: Phase.RUNNING, Action.RESUME: Phase.PAUSED},
        "image": True,
        "needs": ["pause"],
    },
    "paused now, then resumed": {
        "acts": {Action.PAUSE_NOW: Phase.RUNNING, Action.RESUME: Phase.PAUSED},
        "image": True,
        "patient": True,
        "needs": ["pause"],
    },
    "paused now, then cancelled": {
        "acts": {Action.PAUSE_NOW: Phase.RUNNING, Action.CANCEL: Phase.PAUSED},
        "image": True,
        "patient": True,
        "needs": ["pause"],
    },
    "several nodes, paused now, then resumed": {
        "sweep": {"request": replace(REQUEST, nodes=3)},
        "acts": {Action.PAUSE_NOW: Phase.RUNNING, Action.RESUME: Phase.PAUSED},
        "image": True,
        "patient": True,
        "needs": ["nodes", "pause"],
    },
    "several nodes, cancelled while running": {
        "sweep": {"request": replace(REQUEST, nodes=3)},
        "acts": {Action.CANCEL: Phase.RUNNING},
        "image": True,
        "endless": "trainings",
        "needs": ["nodes"],
    },
    "PyTorchJobs, cancelled while running": {
        "sweep": {"request": replace(REQUEST, nodes=3)},
        "acts": {Action.CANCEL: Phase.RUNNING},
        "image": True,
        "endless": "trainings",
        "pytorch": True,
        "needs": ["nodes"],
    },
    "TrainJobs, cancelled while running": {
        "sweep": {"request": replace(REQUEST, nodes=3)},
        "acts": {Action.CANCEL: Phase.RUNNING},
        "image": True,
        "endless": "trainings",
        "trainer": True,
        "needs": ["nodes"],
    },
    "several nodes, one drained": {
        "sweep": {"request": replace(REQUEST, nodes=3)},
        "space": ONE_TRIAL,
        "image": True,
        "drained": "later",
        "needs": ["nodes", "interruptions"],
    },
    "PyTorchJobs, one drained": {
        "sweep": {"request": replace(REQUEST, nodes=3)},
        "space": ONE_TRIAL,
        "image": True,
        "drained": "at once",
        "pytorch": True,
        "needs": ["nodes", "interruptions"],
    },
    "held, then cancelled": {"crash": "unseen", "acts": {Action.CANCEL: Phase.HELD}, "image": True} | GATED,
}
ENDS = {
    "calm": Phase.SUCCEEDED,
    "image there": Phase.SUCCEEDED,
    "bad build": Phase.FAILED,
    "bad build of the second branch": Phase.FAILED,
    "bad code beside good dependencies": Phase.FAILED,
    "nothing to build from": Phase.REFUSED,
    "trainings crash": Phase.FAILED,
    "trainings crash before they are seen running": Phase.FAILED,
    "bad space": Phase.REFUSED,
    "not invited": Phase.REFUSED,
    "drained": Phase.SUCCEEDED,
    "one trial killed": Phase.SUCCEEDED,
    "target reached while others run": Phase.SUCCEEDED,
    "asked": Phase.SUCCEEDED,
    "extended": Phase.SUCCEEDED,
    "gated": Phase.SUCCEEDED,
    "held, then all run": Phase.FAILED,
    "paused, then resumed": Phase.SUCCEEDED,
    "paused now, then resumed": Phase.SUCCEEDED,
    "several nodes, paused now, then resumed": Phase.SUCCEEDED,
    "several nodes, one drained": Phase.SUCCEEDED,
    "PyTorchJobs, one drained": Phase.SUCCEEDED,
}

BUILDS = {
    "calm": 1,
    "bad build": 1,
    "two branches": 3,
    "bad build of the second branch": 2,
    "dependencies and code": 2,
    "bad code beside good dependencies": 2,
    "heavy packages first": 3,
}

CALL, EVERY = os.environ.get("CRASH_CALL"), int(os.environ.get("CRASH_EVERY", "0"))
OFFSET = secrets.randbelow(EVERY or 1)


async def live(redis, story, dies_at=None):
    return await SimulatedSweep(redis, Clock(dies_at), **STORIES[story]).run()


@pytest.mark.features("health")
@pytest.mark.parametrize(
    ("story", "is_reported"),
    [("trainings crash", True), ("trainings crash before they are seen running", False)],
)
async def test_first_trial_is_reported_running_only_if_observed_running(redis, story, is_reported):
    life = await live(redis, story)
    shown = any("First trial started" in str(parent.blocks) for parent in life.slack.parents)
    assert shown is is_reported
    assert life.last.steps["first"] == "✗ First trial failed"


def crashes(story, calls):
    """The calls to die at."""
    if CALL:
        return [int(CALL)]
    if not EVERY:
        return [1 + secrets.randbelow(calls)] if secrets.randbelow(3) == 0 else []
    first = (OFFSET + list(STORIES).index(story)) % min(EVERY, calls)
    return range(1 + first, calls + 1, EVERY)


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(name, marks=pytest.mark.features(*story.get("needs", ())))
        for name, story in STORIES.items()
    ],
)
async def test_crash_at_any_call_changes_nothing_and_repeats_at_most_one_message(redis, story):
    calm = await live(redis, story)
    assert_ends_as_expected(calm, story)
    for dies_at in crashes(story, calm.clock.calls):
        hurt = await live(redis, story, dies_at)
        if hurt.clock.crash_at:  # chance decides the order of few calls: this life had fewer
            break
        where = f"died at call {dies_at} of {calm.clock.calls}: replay it with CRASH_CALL={dies_at}"
        assert (hurt.last.phase, hurt.last.outbox) == (calm.last.phase, ()), where
        assert hurt.objects() == calm.objects(), where
        assert hurt.gpus_held() == [], where
        assert list(dict.fromkeys(hurt.texts())) == list(dict.fromkeys(calm.texts())), where
        after, before = (
            len(hurt.texts()) + len(hurt.slack.ephemeral_messages),
            len(calm.texts()) + len(calm.slack.ephemeral_messages),
        )
        assert after <= before + 1, where
        assert hurt.clock.calls < 2 * calm.clock.calls, f"{where}: it never ends"
        assert [p.text for p in hurt.slack.parents[-1:]] == [p.text for p in calm.slack.parents[-1:]], where


def assert_ends_as_expected(life, story):
    assert life.clock.calls > 10
    assert life.last.phase is ENDS.get(story, Phase.CANCELLED)
    assert life.last.outbox == ()
    assert life.gpus_held() == []
    if life.last.attempt == 1:  # another experiment says again that it was submitted, and how it failed
        assert len(life.texts()) == len(set(life.texts()))
    builds = [name for kind, name, _ in life.objects() if kind == "Job" and name.startswith("build-")]
    assert len(builds) == BUILDS.get(story, 0)
