"""Convert sweep records to ConfigMaps, which outlive Redis and Katib's objects: one per sweep."""

import logging
from dataclasses import replace

from pydantic_core import from_json, to_json

from bot.core.record import FORMAT, SweepRecord, dump, load
from bot.core.stored_format import NewerFormatError
from k8s import objects
from k8s.objects import OWNER_LABEL, SWEEP_LABEL, Manifest, Ref, label_value

log = logging.getLogger(__name__)

# Label selectors for the ConfigMaps of unfinished sweeps, and of finished ones.
STATE_LABEL = "sweepbot/state"
UNFINISHED = f"{SWEEP_LABEL},{STATE_LABEL}=active"
ENDED = f"{STATE_LABEL}=ended"
MAX_RECORD = 900_000  # bytes; Kubernetes limits a ConfigMap to 1 MiB
# The patch that empties the ConfigMap of a deleted sweep. The name stays taken: MLflow has runs under it.
RETIRED: Manifest = {
    "metadata": {"labels": {STATE_LABEL: "retired", SWEEP_LABEL: None}},
    "data": {"schema": None, "record": None},
}


def ref(namespace: str, sweep_id: str) -> Ref:
    return Ref("ConfigMap", namespace, f"sweep-{sweep_id}")


def config_map(sweep: SweepRecord) -> Manifest:
    """Return the ConfigMap, below 1 MiB: only early stopping of over 1,500 trials comes near it."""
    labels = {
        SWEEP_LABEL: sweep.id,
        STATE_LABEL: "ended" if sweep.phase.final else "active",
        OWNER_LABEL: label_value(sweep.requester.user),
    }
    data = {"schema": str(FORMAT.schema), "record": _record(sweep)}
    return objects.config_map(ref(sweep.namespace, sweep.id), data, labels)


def _record(sweep: SweepRecord) -> str:
    text = dump(sweep)
    while len(text.encode()) > MAX_RECORD and sweep.attempt_features:
        sweep = _smaller(sweep)
        text = dump(sweep)
    return text


def _smaller(sweep: SweepRecord) -> SweepRecord:
    """Leave out the largest field of what features remember about this attempt: they do without it."""
    states = {name: from_json(text) for name, text in sweep.attempt_features.items()}
    sizes = {
        (name, field): len(to_json(value)) for name, state in states.items() for field, value in state.items()
    }
    name, field = max(sizes, key=lambda part: sizes[part])
    del states[name][field]
    left = {name: to_json(state).decode() for name, state in states.items() if state}
    return replace(sweep, attempt_features=left)


def is_retired(manifest: Manifest) -> bool:
    return bool(manifest["metadata"].get("labels", {}).get(STATE_LABEL) == "retired")


def own(manifest: Manifest, sweep: SweepRecord) -> SweepRecord | None:
    """Return the record in this ConfigMap; None if it is of another sweep with the same name.

    Raises NewerFormatError.
    """
    found = restorable(manifest)
    return found if found and found.request_id == sweep.request_id else None


def restorable(manifest: Manifest | None) -> SweepRecord | None:
    """Return the record to restore; None if the sweep was deleted, or its record is damaged.

    Raises NewerFormatError.
    """
    if manifest is None or is_retired(manifest):
        return None
    try:
        return read(manifest)
    except NewerFormatError:
        raise
    except (KeyError, ValueError):
        log.exception("unreadable record in ConfigMap %s", manifest["metadata"]["name"])
        return None


def read(manifest: Manifest) -> SweepRecord:
    """Return the record in a ConfigMap. Raises KeyError or ValueError; NewerFormatError is one."""
    return load(manifest["data"]["record"])
