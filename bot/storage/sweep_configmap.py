"""Convert sweep records to ConfigMaps, which outlive Redis and Katib's objects: one per sweep."""

import logging

from bot.core.record import FORMAT, SweepRecord, dump, load
from bot.core.stored_format import NewerFormatError
from k8s.names import label_value
from k8s.objects import MANAGED_BY, SWEEP_LABEL, Manifest, Ref

log = logging.getLogger(__name__)

# Label selectors for the ConfigMaps of unfinished sweeps, and of finished ones.
STATE_LABEL = "sweepbot/state"
UNFINISHED = f"{SWEEP_LABEL},{STATE_LABEL}=active"
ENDED = f"{STATE_LABEL}=ended"
# The patch that empties the ConfigMap of a deleted sweep. The name stays taken: MLflow has runs under it.
RETIRED: Manifest = {
    "metadata": {"labels": {STATE_LABEL: "retired", SWEEP_LABEL: None}},
    "data": {"schema": None, "record": None},
}


def ref(namespace: str, sweep_id: str) -> Ref:
    return Ref("ConfigMap", namespace, f"sweep-{sweep_id}")


def config_map(sweep: SweepRecord) -> Manifest:
    """Return the ConfigMap, well below 1 MiB: logs are in a record only until they are posted."""
    address = ref(sweep.namespace, sweep.id)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": address.name,
            "namespace": address.namespace,
            "labels": {
                MANAGED_BY: "sweepbot",
                SWEEP_LABEL: sweep.id,
                STATE_LABEL: "ended" if sweep.phase.final else "active",
                "sweepbot/owner": label_value(sweep.requester.user),
            },
        },
        "data": {"schema": str(FORMAT.schema), "record": dump(sweep)},
    }


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
