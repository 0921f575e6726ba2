"""Convert sweep records to ConfigMaps, which outlive Redis and Katib's objects: one per sweep."""

from bot.core.record import SweepRecord, dump, load
from k8s.names import label_value
from k8s.objects import MANAGED_BY, SWEEP_LABEL, Manifest, Ref

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
        "data": {"schema": str(sweep.schema), "record": dump(sweep)},
    }


def is_retired(manifest: Manifest) -> bool:
    return bool(manifest["metadata"].get("labels", {}).get(STATE_LABEL) == "retired")


def own(manifest: Manifest, sweep: SweepRecord) -> SweepRecord | None:
    """Return the record in this ConfigMap; None if it is of another sweep with the same name."""
    try:
        found = read(manifest)
    except (KeyError, ValueError):  # emptied, or of a newer Sweepbot
        return None
    return found if found.request_id == sweep.request_id else None


def read(manifest: Manifest) -> SweepRecord:
    """Return the record in a ConfigMap. Raises KeyError and ValueError if it is unreadable or newer."""
    return load(manifest["data"]["record"])
