"""What a container is started with: volumes as folders, variables, command line.

Volumes are ConfigMaps and empty folders, variables are texts and fields of the pod: a pod that wants others
waits for ever, and its events say for what.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.kubernetes.kinds import Object
from local.kubernetes.store import Store


class NotReady(Exception):  # noqa: N818 - reads as a sentence where it is raised
    """What a pod names and is not there yet; the kubelet tries again."""


def make_volumes(store: Store, pod: Object, folder: Path) -> dict[str, Path]:
    """A folder for each volume, by the volume's name. Raises NotReady."""
    made = {}
    for volume in pod["spec"].get("volumes", []):
        made[volume["name"]] = place = folder / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        try:
            for name, text in _content(store, pod, volume).items():
                (place / name).write_text(text)
        except NotReady as error:
            text = f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'
            raise NotReady(text) from error
    return made


def _content(store: Store, pod: Object, volume: Object) -> dict[str, str]:
    if "emptyDir" in volume:
        return {}
    if volume.keys() != {"name", "configMap"} or volume["configMap"].keys() != {"name"}:
        raise NotReady("the local nodes mount whole ConfigMaps and empty folders only")
    name = volume["configMap"]["name"]
    found = store.get("ConfigMap", pod["metadata"]["namespace"], name)
    if found is None:
        raise NotReady(f'configmap "{name}" not found')
    data: dict[str, str] = found.get("data", {})
    return data


def mounts(container: Object, volumes: Mapping[str, Path], termination_log: Path) -> dict[str, Path]:
    """Where the container's paths really lie. /dev/shm is this machine's own."""
    found = {container["terminationMessagePath"]: termination_log}
    for mount in container.get("volumeMounts", []):
        if mount["mountPath"] != "/dev/shm":  # noqa: S108 - a name inside of containers
            found[mount["mountPath"].rstrip("/")] = volumes[mount["name"]] / mount.get("subPath", "")
    return found


def variables(pod: Object, container: Object) -> dict[str, str]:
    """The container's own variables; a later one may use those before it. Raises NotReady."""
    if "envFrom" in container:
        raise NotReady("the local nodes know no envFrom")
    result: dict[str, str] = {}
    for entry in container.get("env", []):
        source = entry.get("valueFrom")
        if source and source.keys() != {"fieldRef"}:
            raise NotReady(f"the local nodes know no {', '.join(source)}")
        value = _field(pod, source["fieldRef"]["fieldPath"]) if source else entry.get("value", "")
        result[entry["name"]] = value if source else expand(value, result)
    return result


def _field(pod: Object, path: str) -> str:
    """`metadata.name`, `spec.nodeName`, `metadata.labels['x']`; the unknown is empty."""
    match = re.fullmatch(r"([\w.]+)(?:\['(.*)'\])?", path)
    keys = [*match[1].split("."), *([match[2]] if match[2] else [])] if match else []
    value: Any = pod
    for key in keys:
        value = value.get(key, "") if isinstance(value, dict) else ""
    return str(value)


def expand(text: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` if known, else as it stands; `$$` is one dollar and shields what follows."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] is None else known.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


def command_line(container: Object, image: Object, known: Mapping[str, str]) -> list[str]:
    """The container's command and args replace the image's Entrypoint and Cmd; a command alone drops Cmd."""
    command = [expand(word, known) for word in container.get("command", [])]
    args = [expand(word, known) for word in container.get("args", [])]
    if command:
        return command + args
    return list(image.get("Entrypoint") or []) + (args or list(image.get("Cmd") or []))
