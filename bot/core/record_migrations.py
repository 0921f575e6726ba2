"""Migrations of stored records, on their fields as JSON has them."""

from html import escape
from typing import Any

Fields = dict[str, Any]

# Schema 1 had the fields of all features beside each other. By the new value's name: its fields' old names.
_PLAIN_PARTS = {
    "building": {
        "started": "build_started_at",
        "uids": "build_uids",
        "trouble": "build_trouble",
        "digests": "digests",
    },
    "outage": {"what": "unavailable", "since": "unplanned_since"},
    "shown": {"fingerprint": "shown", "at": "shown_at", "phase": "shown_phase"},
    "unreachable": {"since": "unseen_since", "reason": "unseen_reason"},
}
_FEATURES = {
    "pause": {
        "at": "paused_at",
        "by": "paused_by",
        "now": "pause_now",
        "phase": "paused_in",
        "resuming": "resuming",
    },
    "gate": {"hold": "hold"},
    "nodes": {"wait": "start_wait"},
    "extension": {"more": "more_trials", "why_not": "not_extendable"},
}
_OF_ONE_ATTEMPT = {
    "early_stopping": {
        "rungs": "rungs",
        "ending": "ending_early",
        "ended": "ended_early",
        "saved_gpu_hours": "saved_gpu_hours",
    },
    "health": {
        "shown": "health",
        "ts": "health_ts",
        "fingerprint": "health_shown",
        "examined": "examined",
        "alike": "alike",
    },
}
_QUEUE = ("labels", "value", "lifted", "held_by", "parked")
_MARKUP = {"not_allowed", "health"}  # kinds whose text schema 1 stored as mrkdwn
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def _apart(fields: Fields) -> Fields:
    """Give each feature, the build, and the parent message a value of their own."""
    drained, out_of_time = fields.pop("drained_by", None), fields.pop("out_of_time", False)
    gated, resuming = fields.pop("gated", False), fields.get("resuming", False)
    holds = {
        "pause": fields.get("paused_at"),
        "resume": resuming,
        "nodes": fields.get("start_wait"),
    }
    parts = {name: _taken(fields, keys) for name, keys in _PLAIN_PARTS.items()}
    features = {name: _taken(fields, keys) for name, keys in _FEATURES.items()}
    attempt = {name: _taken(fields, keys) for name, keys in _OF_ONE_ATTEMPT.items()}
    pace, queueing = fields.pop("pace", {}), fields.pop("queueing", {})
    plan = fields.get("plan") or {}
    features["auto_parallel"] = {key: value for key, value in pace.items() if key != "target"}
    features["queue"] = {key: queueing[key] for key in _QUEUE if key in queueing}
    attempt["interruptions"] = {
        key: value for key, value in queueing.items() if key not in (*_QUEUE, "priority")
    }
    if restarted := fields.pop("restarted", None):
        attempt["interruptions"]["restarted"] = restarted
    if plan:
        queue, priority = queueing.get("labels", {}).get(_QUEUE_LABEL), queueing.get("priority")
        plan |= {key: value for key, value in (("queue", queue), ("priority", priority)) if value}
    return {
        **fields,
        **{name: part for name, part in parts.items() if part},
        "features": {name: state for name, state in features.items() if state},
        "attempt_features": {name: state for name, state in attempt.items() if state},
        "holds": [name for name, is_held in holds.items() if is_held],
        "first_only": gated,
        "stopped_values": {
            name: stop["value"]
            for part in ("ending", "ended")
            for name, stop in attempt["early_stopping"].get(part, {}).items()
            if stop.get("value") is not None
        },
        "draining": "time limit reached" if out_of_time else "drained" if drained else "",
        "parallel_now": pace.get("target", 1),
        "failure": _failure(attempt["health"].get("shown") or {}),
        "outbox": [_event(event) for event in fields.get("outbox", ())],
    }


def _taken(fields: Fields, keys: dict[str, str]) -> Fields:
    return {new: fields.pop(old) for new, old in keys.items() if old in fields}


def _failure(health: Fields) -> str:
    """Return a lasting diagnosis with its fix."""
    if not health.get("lasting"):
        return ""
    fix = f" *Fix:* {health['fix']}" if health.get("fix") else ""
    return f"{health['text']}{fix}"


def _event(event: Fields) -> Fields:
    """Return a message that waits for Slack during the update. Schema 1 made its text when it was posted."""
    kind, text = str(event["kind"]), event.get("text", "")
    kept = ("pod", "container", "to_user", "response_url", "in_thread", "more")
    if kind not in {"results", "result_files", *_MARKUP}:
        what = kind.replace("_", " ").capitalize()
        trial = f" {event['trial']}" if event.get("trial") else ""
        best = event.get("result") or {}
        result = f"Best: {best['value']:.6g} ({best['trial']})." if best else ""
        parts = [f"{what}{trial}.", text, event.get("detail", ""), result]
        text = escape(" ".join(part for part in parts if part), quote=False)
    return {"kind": kind, "text": text, **{key: event[key] for key in kept if key in event}}


MIGRATIONS = (_apart,)
