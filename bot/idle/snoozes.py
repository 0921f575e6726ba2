"""Which idle GPUs are to be kept, and who said so: one ConfigMap, which outlives Redis."""

from collections.abc import Mapping
from datetime import datetime

from pydantic import TypeAdapter

from bot.idle.alerts import Snooze
from k8s.objects import MANAGED_BY, Manifest, Ref

_KEEPS: TypeAdapter[dict[str, Snooze]] = TypeAdapter(dict[str, Snooze])


def ref(namespace: str) -> Ref:
    return Ref("ConfigMap", namespace, "sweepbot-keeps")


def config_map(namespace: str, snoozed: Mapping[str, Snooze], now: datetime) -> Manifest:
    """Without those that are over."""
    valid = {key: keep for key, keep in snoozed.items() if keep.until > now}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": ref(namespace).name,
            "namespace": namespace,
            "labels": {MANAGED_BY: "sweepbot"},
        },
        "data": {"keeps": _KEEPS.dump_json(valid).decode()},
    }


def read(manifest: Manifest | None) -> dict[str, Snooze]:
    """Raises ValueError for what is not ours."""
    return _KEEPS.validate_json(manifest["data"]["keeps"]) if manifest else {}
