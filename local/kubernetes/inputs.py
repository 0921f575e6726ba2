"""What a container is started with: volumes as folders, variables, command line."""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.kubernetes.kinds import Object
from local.kubernetes.store import Store


class NotReady(Exception):  # noqa: N818 - reads as a sentence where it is raised
    """What a pod names and is not there yet; the kubelet tries again."""


def make_volumes(store: Store, pod: Object, folder: Path) -> dict[str, Path]:
    """A folder for each volume, by the volume's name. Raises NotReady for a missing ConfigMap or Secret."""
    made = {}
    for volume in pod["spec"].get("volumes", []):
        made[volume["name"]] = place = folder / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        for key, kind, field in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
            if source := volume.get(key):
                try:
                    _write(_data(store, pod, kind, source[field], source), source.get("items"), place)
                except NotReady as error:
                    text = f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'
                    raise NotReady(text) from error
    return made


def _write(data: Mapping[str, bytes], items: list[Object] | None, place: Path) -> None:
    for item in items or [{"key": key, "path": key} for key in data]:
        if item["key"] not in data:
            raise NotReady(f"references non-existent config key: {item['key']}")
        (place / item["path"]).parent.mkdir(parents=True, exist_ok=True)
        (place / item["path"]).write_bytes(data[item["key"]])


def _data(store: Store, pod: Object, kind: str, name: str, source: Object) -> dict[str, bytes]:
    found = store.get(kind, pod["metadata"]["namespace"], name)
    if found is None:
        if source.get("optional"):
            return {}
        raise NotReady(f'{kind.lower()} "{name}" not found')
    if kind == "ConfigMap":
        return {key: value.encode() for key, value in found.get("data", {}).items()}
    plain = {key: value.encode() for key, value in found.get("stringData", {}).items()}
    return {key: base64.b64decode(value) for key, value in found.get("data", {}).items()} | plain


def mounts(container: Object, volumes: Mapping[str, Path], termination_log: Path) -> dict[str, Path]:
    """Where the container's paths really lie. /dev/shm is this machine's own."""
    found = {container["terminationMessagePath"]: termination_log}
    for mount in container.get("volumeMounts", []):
        if mount["mountPath"] != "/dev/shm":  # noqa: S108 - a name inside of containers
            found[mount["mountPath"].rstrip("/")] = volumes[mount["name"]] / mount.get("subPath", "")
    return found


def variables(store: Store, pod: Object, container: Object) -> dict[str, str]:
    """The container's own variables; a later one may use those before it. Raises NotReady."""
    result: dict[str, str] = {}
    for entry in container.get("env", []):
        if source := entry.get("valueFrom"):
            value = _from(store, pod, source)
        else:
            value = expand(entry.get("value", ""), result)
        if value is not None:
            result[entry["name"]] = value
    return result


def _from(store: Store, pod: Object, source: Object) -> str | None:
    if reference := source.get("fieldRef"):
        return _field(pod, reference["fieldPath"])
    for key, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if reference := source.get(key):
            data = _data(store, pod, kind, reference["name"], reference)
            if reference["key"] in data:
                return data[reference["key"]].decode()
            if not reference.get("optional"):
                place = f"{pod['metadata']['namespace']}/{reference['name']}"
                raise NotReady(f"couldn't find key {reference['key']} in {kind} {place}")
    return None


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
