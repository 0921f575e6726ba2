"""A record of schema 1, with all of its fields set, as it is read by this version.

`schema-1.json` was stored by the last version with that schema; it stays as it is.
"""

import json
from copy import deepcopy
from dataclasses import fields, replace
from datetime import timedelta

from bot.core.commands import Action, AuditEntry
from bot.core.events import Event, Progress, Result
from bot.core.feature_state import encoded
from bot.core.record import Building, Outage, Phase, Shown, SweepRecord, Unreachable, dump, load
from bot.core.seeds import EarlierSeeds
from bot.sweep.feature_table import FEATURES
from tests.bot.factories import NOW, PLAN, a_sweep
from tests.cases import cases
from tests.releases.state import FOLDER

STORED = json.loads((FOLDER / "schema-1.json").read_text())
OLD_PLAN = replace(deepcopy(PLAN), recipe="from `Dockerfile`")
# A plan's objects stay as they were made.
for made in (OLD_PLAN.builds[0].job, OLD_PLAN.experiment["spec"]["trialTemplate"]["trialSpec"]):
    del made["spec"]["template"]["metadata"]["labels"][
        "sidecar.istio.io/inject"
    ]  # a plan's objects stay as made
AT = "2026-11-21T12:00:00Z"
STOP = {"step": 3, "value": 0.9, "cutoff": 0.1, "others": 2, "seconds": 60.0}
FEATURE_STATES = {
    "pause": {"at": AT, "by": "U9", "now": True, "phase": "running", "resuming": True},
    "gate": {"hold": "3 other trials didn't start."},
    "nodes": {"wait": "Waiting for 2 nodes."},
    "extension": {"more": 20, "why_not": "Katib only extends"},
    "auto_parallel": {"at": AT, "change": "grew", "gpus": 2, "who": "team nlp"},
    "queue": {
        "labels": {"kueue.x-k8s.io/queue-name": "urgent", "kueue.x-k8s.io/priority-class": "high-class"},
        "value": 100,
        "lifted": ["u2"],
        "held_by": "U7",
        "parked": ["u3"],
    },
}
ATTEMPT_STATES = {
    "interruptions": {
        "ran": ["t1"],
        "interrupted": {"t4": AT},
        "disrupted": {"u4": "t4"},
        "restarted": {"u5": "t5"},
    },
    "early_stopping": {
        "rungs": {"1": {"t1": 0.1}},
        "ending": {"t5": STOP},
        "ended": {"t6": STOP | {"value": 0.8}, "t7": STOP | {"value": None}},
        "saved_gpu_hours": 1.5,
    },
    "health": {
        "shown": STORED["health"],
        "ts": "1.2",
        "fingerprint": "f1",
        "examined": ["t2"],
        "alike": {"exit": ["t2", 1]},
    },
}
OUTBOX = (
    Event(
        kind="trial_failed",
        text="Trial failed t8. It &lt;failed&gt;. &lt;!channel&gt; &amp; more",
        more=1,
    ),
    Event(kind="build_failed", text="Build failed. RUN failed.", pod="p", container="c"),
    Event(
        kind="not_allowed",
        text="<@U7> already cancelled `x`.",
        to_user="U9",
        response_url="https://hooks/2",
        in_thread=True,
    ),
    Event(kind="better", text="Better. Best: 0.25 (lr-brave-otter-t1)."),
    Event(kind="results"),
)
PLAIN = {
    "cluster": "east",
    "unreachable": Unreachable(since=NOW, reason="its certificate expired"),
    "earlier_seeds": EarlierSeeds(sweep="lr-calm-owl", commit="c", image="i", values={"0": 0.5}),
    "permalink": "https://slack/p1",
    "image": "registry:5000/x@sha256:ab",
    "building": Building(
        started=NOW, uids={"build-1": "u1"}, trouble="Kueue holds the build.", digests={"tag": "sha256:d"}
    ),
    "outage": Outage(what="git doesn't answer", since=NOW),
    "submitted": True,
    "attempt": 2,
    "results_url": "https://mlflow/1",
    "progress": Progress(
        succeeded=1, best=Result(trial="lr-brave-otter-t1", value=0.25, parameters={"lr": "0.1"})
    ),
    "sent_keys": ("stuck",),
    "stopped_values": {"t5": 0.9, "t6": 0.8},
    "to_kill": {"t3": "U7"},
    "first_only": True,
    "holds": ("pause", "resume", "nodes"),
    "parallel_now": 3,
    "failure": "Exit code 1. *Fix:* Read the log.",
    "draining": "time limit reached",
    "extending": True,
    "ending": Phase.SUCCEEDED,
    "deadline": NOW + timedelta(hours=1),
    "reason": "first trial failed",
    "cancelled_by": "U7",
    "quarantined": True,
    "audit_log": (AuditEntry(at=NOW, user="U7", name="bo", action=Action.DRAIN),),
    "outbox": OUTBOX,
    "shown": Shown(fingerprint="f2", at=NOW, phase=Phase.RUNNING),
    "durable_phase": Phase.RUNNING,
    "version": 7,
}


def stored(**changes):
    """Return the stored record with some fields changed, or None: left out."""
    known = {key: value for key, value in (STORED | changes).items() if value is not None}
    return load(json.dumps(known))


def test_record_of_schema_1_arrives_whole():
    record = stored()
    assert {name: json.loads(text) for name, text in record.features.items()} == FEATURE_STATES
    assert {name: json.loads(text) for name, text in record.attempt_features.items()} == ATTEMPT_STATES
    plan = replace(OLD_PLAN, queue="urgent", priority="high")
    plain = replace(record, features={}, attempt_features={})
    assert plain == a_sweep(Phase.PAUSED, **PLAIN, plan=plan)
    assert load(dump(record)) == record


def test_states_of_schema_1_are_read_by_their_features():
    record = stored()
    for kind in (kind for feature in FEATURES for kind in feature.states):
        states = ATTEMPT_STATES if kind.of_one_attempt else FEATURE_STATES
        if kind.name in states:  # a newer feature isn't
            assert json.loads(encoded(record.of(kind))) == states[kind.name]


def test_story_of_schema_1_covers_every_field():
    always = {"id", "namespace", "request", "requester", "request_id", "phase", "created", "since", "plan"}
    made = {"thread", "features", "attempt_features", "schema"}
    made |= {"steps", "cause", "trials_now"}  # which schema 1 didn't have
    assert {each.name for each in fields(SweepRecord)} == always | made | PLAIN.keys()


@cases(
    ("changes", "field", "value"),
    [
        ({"out_of_time": None}, "draining", "drained"),
        ({"out_of_time": None, "drained_by": None}, "draining", ""),
        ({"paused_at": None}, "holds", ("resume", "nodes")),
        ({"resuming": None}, "holds", ("pause", "nodes")),
        ({"paused_at": None, "resuming": None}, "holds", ("nodes",)),
        ({"start_wait": None, "paused_at": None, "resuming": None}, "holds", ()),
        ({"gated": None}, "first_only", False),
        ({"pace": None}, "parallel_now", 1),
        ({"health": STORED["health"] | {"lasting": False}}, "failure", ""),
        ({"health": STORED["health"] | {"fix": ""}}, "failure", "Exit code 1."),
        ({"health": None}, "failure", ""),
        ({"unseen_since": None, "unseen_reason": None}, "unreachable", None),
        ({"queueing": None}, "plan", OLD_PLAN),
        ({"plan": None, "queueing": None}, "plan", None),
    ],
)
def test_record_of_schema_1_without_a_feature_has_its_defaults(changes, field, value):
    assert getattr(stored(**changes), field) == value
