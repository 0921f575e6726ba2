"""The record that outlives Redis and Katib's objects: one ConfigMap per sweep, in its namespace."""

from bot.core.record import SweepRecord, dump, load
from k8s.names import label_value
from k8s.objects import MANAGED_BY, SWEEP_LABEL, Manifest, Ref

# Select the ConfigMaps of sweeps that have not ended, and of those that have.
STATE_LABEL = "sweepbot/state"
UNFINISHED = f"{SWEEP_LABEL},{STATE_LABEL}=active"
ENDED = f"{STATE_LABEL}=ended"
# What stays of a sweep that has left the cluster: its name, under which MLflow has its runs.
RETIRED: Manifest = {
    "metadata": {"labels": {STATE_LABEL: "retired", SWEEP_LABEL: None}},
    "data": {"schema": None, "record": None},
}


def ref(namespace: str, sweep_id: str) -> Ref:
    return Ref("ConfigMap", namespace, f"sweep-{sweep_id}")


def config_map(sweep: SweepRecord) -> Manifest:
    """Smaller than 1 MiB by far: a record holds one experiment manifest and no logs but the untold ones."""
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
    """What this ConfigMap holds of just this sweep; None if it belongs to another one of the same name."""
    try:
        held = read(manifest)
    except (KeyError, ValueError):  # retired, or of a newer Sweepbot
        return None
    return held if held.request_id == sweep.request_id else None


def read(manifest: Manifest) -> SweepRecord:
    """Raises ValueError for what is not a record, or is one of a newer Sweepbot."""
    return load(manifest["data"]["record"])
