"""`trials:` in the configuration: what the pods of all trials need on this cluster. Pure."""

import re

from bot.config.yaml_reader import Node
from k8s.katib.spec import USER, PodShape, Volume

KEYS = ("runtime_class", "nodes", "tolerations", "cpu", "memory", "volumes", "grace_seconds", "user")
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
QUANTITY = re.compile(r"\d+(\.\d+)?(m|[kMGT]i?)?")
TOLERATION = ("key", "operator", "value", "effect")
LONGEST_GRACE = 24 * 3600  # seconds; the trial's GPUs stay allocated for so long
HIGHEST_USER = 2**31 - 1
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def read_trials(node: Node | None) -> PodShape:
    keys = node.mapping(KEYS) if node else {}
    return PodShape(
        runtime_class=_name(keys.get("runtime_class"), "a RuntimeClass"),
        nodes=_texts(keys.get("nodes")),
        tolerations=tuple(_toleration(each) for each in _list(keys.get("tolerations"))),
        cpu=_quantity(keys.get("cpu"), "4 or 500m"),
        memory=_quantity(keys.get("memory"), "32Gi"),
        volumes=tuple(_volume(each) for each in _list(keys.get("volumes"))),
        grace_seconds=read_grace(keys.get("grace_seconds"), LONGEST_GRACE),
        user=_user(keys.get("user")),
    )


def _user(node: Node | None) -> int:
    """Return the user id that trainings run as; 0 leaves it to the image."""
    user = node.whole() if node else USER
    if node and not 0 <= user <= HIGHEST_USER:
        node.wrong(f"must be from 0 (the image's user, root for most) to {HIGHEST_USER}; got {user}")
    return user


def read_grace(node: Node | None, most: int) -> int | None:
    """Return how many seconds a trial may take to end after SIGTERM; None if nothing is said.

    0 would take a pod off the API while its training still holds the GPUs.
    """
    if node is None:
        return None
    before, grace = len(node.complaints), node.whole()
    if len(node.complaints) == before and not 1 <= grace <= most:
        limit = "" if most == LONGEST_GRACE else " (limits.grace_seconds)"
        node.wrong(f"must be from 1 to {most} seconds{limit}; got {grace}")
    return grace


def _name(node: Node | None, what: str) -> str:
    name = node.text() if node else ""
    if node and name and not NAME.fullmatch(name):
        node.wrong(f"must be the name of {what}")
    return name


def _texts(node: Node | None) -> dict[str, str]:
    """Labels of nodes: `true` and `1` are texts there."""
    found = node.mapping() if node else {}
    for value in found.values():
        if isinstance(value.value, dict | list):
            value.wrong("must be text")
    return {key: value.raw for key, value in found.items()}


def _toleration(node: Node) -> dict[str, str]:
    found = {key: value.raw for key, value in node.mapping(TOLERATION).items()}
    operator = found.get("operator", "Equal")
    if operator not in {"Exists", "Equal"}:
        node.wrong("operator must be Exists or Equal")
    if operator == "Exists" and "value" in found:
        node.wrong("has a value, which Exists does not look at")
    if "effect" in found and found["effect"] not in EFFECTS:
        node.wrong(f"effect must be one of {', '.join(EFFECTS)}")
    return found


def _quantity(node: Node | None, example: str) -> str:
    if node and not QUANTITY.fullmatch(node.raw):
        node.wrong(f'"{node.raw}" is not a quantity such as {example}')
    return node.raw if node else ""


def _volume(node: Node) -> Volume:
    keys = node.mapping(("claim", "at", "read_only"), must=("claim", "at"))
    at = keys["at"].text() if "at" in keys else "/data"
    if not re.fullmatch(r"/[^:]*[^:/]", at):
        keys["at"].wrong("must be a folder's whole path, such as /data")
    return Volume(
        claim=_name(keys.get("claim"), "a PersistentVolumeClaim"),
        at=at,
        read_only=keys["read_only"].flag() if "read_only" in keys else False,
    )


def _list(node: Node | None) -> list[Node]:
    return node.items() if node else []
