"""Store snoozes in the ConfigMap `sweepbot-keeps`, which survives the loss of Redis."""

from collections.abc import Mapping
from datetime import datetime

from pydantic import TypeAdapter

from bot.idle.alerts import Snooze
from k8s import objects
from k8s.objects import Manifest, Ref

_SNOOZES: TypeAdapter[dict[str, Snooze]] = TypeAdapter(dict[str, Snooze])


def ref(namespace: str) -> Ref:
    return Ref("ConfigMap", namespace, "sweepbot-keeps")


def config_map(namespace: str, snoozes: Mapping[str, Snooze], now: datetime) -> Manifest:
    """Return the manifest of all snoozes that haven't expired."""
    valid = {key: snooze for key, snooze in snoozes.items() if snooze.until > now}
    return objects.config_map(ref(namespace), {"keeps": _SNOOZES.dump_json(valid).decode()})


def read(manifest: Manifest | None) -> dict[str, Snooze]:
    """Return the snoozes by allocation key. Raises KeyError or ValueError for a damaged ConfigMap."""
    return _SNOOZES.validate_json(manifest["data"]["keeps"]) if manifest else {}
