"""Convert sweep records to ConfigMaps, which outlive Redis and Katib's objects: one per sweep."""

import logging
from dataclasses import replace

from bot.core.record import FORMAT, SweepRecord, dump, load
from bot.core.stored_format import NewerFormatError
from k8s import objects
from k8s.names import label_value
from k8s.objects import OWNER_LABEL, SWEEP_LABEL, Manifest, Ref

log = logging.getLogger(__name__)

# Label selectors for the ConfigMaps of unfinished sweeps, and of finished ones.
STATE_LABEL = "sweepbot/state"
UNFINISHED = f"{SWEEP_LABEL},{STATE_LABEL}=active"
ENDED = f"{STATE_LABEL}=ended"
MAX_RECORD = 900_000  # bytes; Kubernetes limits a ConfigMap to 1 MiB
# What a copy that is too large leaves out, the most easily replaced first: the values at rungs are read again
# from MLflow or the logs; without those of stopped trials, their results have no value.
LEFT_OUT = ("rungs", "ended_early")
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
    for field in LEFT_OUT:
        if len(text.encode()) > MAX_RECORD:
            sweep = replace(sweep, **{field: {}})  # type: ignore[arg-type]
            text = dump(sweep)
    return text


def is_retired(manifest: Manifest) -> bool:
    return bool(manifest["metadata"].get("labels", {}).get(STATE_LABEL) == "retired")


def own(manifest: Manifest, sweep: SweepRecord) -> SweepRecord | None:
    """Return the record in this ConfigMap; None if it is of another sweep with the same name.

    Raises NewerFormatError.
    """
    try:
        found = read(manifest)
    except NewerFormatError:
        raise
    except (KeyError, ValueError):  # emptied
        return None
    return found if found.request_id == sweep.request_id else None


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
