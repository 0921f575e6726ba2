"""Build a container's inputs: volumes as directories, variables, and the command line.

A pod that needs what no pod of Sweepbot needs (a disk, a part of a ConfigMap, `envFrom`) waits forever, and
its events name it.
"""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.store import Store
from local.kubernetes.node.hostnames import resolved


class NotReady(Exception):  # noqa: N818 - reads as a sentence where it is raised
    """A referenced object doesn't exist yet; the kubelet retries."""


def make_volumes(store: Store, pod: Object, folder: Path) -> dict[str, Path]:
    """Return a directory for each volume, by name. Raises NotReady."""
    made = {}
    for volume in pod["spec"].get("volumes", []):
        if "persistentVolumeClaim" in volume:
            made[volume["name"]] = _disk(store, pod, volume, folder.parents[1])
            continue
        made[volume["name"]] = place = folder / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        try:
            for name, text in _content(store, pod, volume).items():
                (place / name).write_text(text)
        except NotReady as error:
            text = f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'
            raise NotReady(text) from error
    return made


def _disk(store: Store, pod: Object, volume: Object, nodes: Path) -> Path:
    """Return the directory of a claim's volume, which outlives the pod."""
    claim = _found(store, pod, "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
    place = nodes / "volumes" / str(claim["metadata"]["uid"])
    place.mkdir(parents=True, exist_ok=True)
    return place


def _content(store: Store, pod: Object, volume: Object) -> dict[str, str]:
    """Return a volume's initial files: text by name."""
    kind = next((key for key in volume if key != "name"), "volume without a source")
    source: Object = volume.get(kind, {})
    if kind == "emptyDir":
        return {}
    if kind == "downwardAPI":
        return {item["path"]: _field(pod, item["fieldRef"]["fieldPath"]) for item in source["items"]}
    if kind == "configMap" and source.keys() == {"name"}:
        data: dict[str, str] = _found(store, pod, "ConfigMap", source["name"]).get("data", {})
        return data
    if kind == "secret" and source.keys() == {"secretName", "items"}:
        return {
            item["path"]: _secret(store, pod, source["secretName"], item["key"]) for item in source["items"]
        }
    raise NotReady(f"the local nodes mount no {kind} in this way")


def _found(store: Store, pod: Object, kind: str, name: str) -> Object:
    found = store.get(kind, pod["metadata"]["namespace"], name)
    if found is None:
        raise NotReady(f'{kind.lower()} "{name}" not found')
    return found


def _secret(store: Store, pod: Object, name: str, key: str) -> str:
    data = _found(store, pod, "Secret", name).get("data", {})
    if key not in data:
        raise NotReady(f"couldn't find key {key} in Secret {pod['metadata']['namespace']}/{name}")
    return base64.b64decode(data[key]).decode()


def mounts(container: Object, volumes: Mapping[str, Path], termination_log: Path) -> dict[str, Path]:
    """Return the real paths by mount path. /dev/shm is this machine's own."""
    found = {container["terminationMessagePath"]: termination_log}
    for mount in container.get("volumeMounts", []):
        if mount["mountPath"] != "/dev/shm":  # noqa: S108 - a name inside of containers
            found[mount["mountPath"].rstrip("/")] = volumes[mount["name"]] / mount.get("subPath", "")
    return found


def variables(store: Store, pod: Object, container: Object) -> dict[str, str]:
    """Return the container's variables; later ones can use earlier ones. Raises NotReady."""
    if "envFrom" in container:
        raise NotReady("the local nodes know no envFrom")
    result: dict[str, str] = {}
    for entry in container.get("env", []):
        source = entry.get("valueFrom")
        value = _from(store, pod, source) if source else expand(entry.get("value", ""), result)
        if value is not None:
            result[entry["name"]] = resolved(store, pod, value)
    return result


def _from(store: Store, pod: Object, source: Object) -> str | None:
    """Return the value; None if an optional Secret or key isn't there."""
    if "fieldRef" in source:
        return _field(pod, source["fieldRef"]["fieldPath"])
    if "secretKeyRef" in source:
        key = source["secretKeyRef"]
        try:
            return _secret(store, pod, key["name"], key["key"])
        except NotReady:
            if key.get("optional"):
                return None
            raise
    raise NotReady(f"the local nodes know no {', '.join(source)}")


def _field(pod: Object, path: str) -> str:
    """Resolve `metadata.name`, `spec.nodeName`, or `metadata.labels['x']`; "" if unknown."""
    match = re.fullmatch(r"([\w.]+)(?:\['(.*)'\])?", path)
    keys = [*match[1].split("."), *([match[2]] if match[2] else [])] if match else []
    value: Any = pod
    for key in keys:
        value = value.get(key, "") if isinstance(value, dict) else ""
    return str(value)


def expand(text: str, known: Mapping[str, str]) -> str:
    """Expand `$(NAME)` if known; `$$` is an escaped dollar sign."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] is None else known.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


def command_line(container: Object, image: Object, known: Mapping[str, str]) -> list[str]:
    """Return the command line: command and args replace Entrypoint and Cmd; a command alone drops Cmd."""
    command = [expand(word, known) for word in container.get("command", [])]
    args = [expand(word, known) for word in container.get("args", [])]
    if command:
        return command + args
    return list(image.get("Entrypoint") or []) + (args or list(image.get("Cmd") or []))
