"""Decode built-in kinds by the types in the official client's models.

As in Go, a wrong type refuses the whole object, an unknown field is dropped and reported, null means absent.
Custom resources of Katib keep whatever they are given; only their metadata has a type. Others have a schema
(structural.py).
"""

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kubernetes.aio.client import models

from local.kubernetes.apiserver import structural
from local.kubernetes.apiserver.kinds import Kind, Object, Refused, bad_request, clone

MODELS = {
    "Event": "CoreV1Event",
    "HorizontalPodAutoscaler": "V2HorizontalPodAutoscaler",
    "ResourceClaim": "ResourceV1ResourceClaim",
}
GO = {"str": "string", "bytes": "string", "datetime": "string", "bool": "bool", "float": "float64"}
JSON = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
INT64 = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerationSeconds", "generation")
QUANTITIES = ("limits", "requests", "capacity", "allocatable")
QUANTITY = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
ACCEPTED: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float)}


@dataclass
class Decoding:
    """Decode one object by its model; `unknown` collects unknown fields' paths."""

    kind: Kind
    unknown: list[str] = field(default_factory=list)
    name: str = ""

    def read(self, obj: Object) -> Object:
        if structural.is_pruned(self.kind):
            self.name = (obj.get("metadata") or {}).get("name", "")
            pruned: Object = self._value(obj, self.kind.name, "", "")
            return pruned
        if not self.kind.is_custom:
            read: Object = self._value(obj, MODELS.get(self.kind.name, f"V1{self.kind.name}"), "", "")
            return read
        meta = self._value(obj.get("metadata") or {}, "V1ObjectMeta", "metadata", "")
        return {**clone({k: v for k, v in obj.items() if k != "metadata"}), "metadata": meta}

    def _value(self, value: Any, wanted: str, path: str, owner: str) -> Any:
        shape, inner = _shape(wanted)
        if shape:
            self._expect(isinstance(value, list if shape == "List" else dict), value, wanted, path, owner)
        if shape == "List":
            named = self._is_structural(path)
            below = [f"{path}[{at}]" if named else path for at in range(len(value))]
            return [self._value(item, inner, at, owner) for item, at in zip(value, below, strict=True)]
        if shape == "Dict":
            return self._map(value, inner, path, owner)
        if shape:
            return self._struct(value, wanted, path)
        if wanted == "object":
            return clone(value)
        self._expect(type(value) in ACCEPTED.get(wanted, (str,)), value, wanted, path, owner)
        return value

    def _struct(self, value: Object, model: str, path: str) -> Object:
        types, owner = _types(model) or {}, _go_name(model)
        below = {key: f"{path}.{key}".removeprefix(".") for key in value}
        self.unknown += [below[key] for key in value if key not in types]
        required = structural.REQUIRED.get(model, ()) if self._is_structural(path) else ()
        for absent in (key for key in required if value.get(key) is None):
            raise structural.missing(self.kind, self.name, f"{path}.{absent}")
        return {
            key: self._value(item, types[key], below[key], owner)
            for key, item in value.items()
            if key in types and item is not None
        }

    def _map(self, value: Object, wanted: str, path: str, owner: str) -> Object:
        if wanted == "str" and path.rpartition(".")[2] in QUANTITIES:
            return {key: self._quantity(item) for key, item in value.items()}
        named = self._is_structural(path)
        below = {key: f"{path}.{key}" if named else path for key in value}
        return {key: self._value(item, wanted, below[key], owner) for key, item in value.items()}

    def _is_structural(self, path: str) -> bool:
        """Return whether a schema types the field; metadata has the same types everywhere."""
        return structural.is_pruned(self.kind) and not path.startswith("metadata")

    def _quantity(self, value: object) -> str:
        if isinstance(value, bool) or not QUANTITY.match(str(value)):
            raise self.refused(f"quantities must match the regular expression '{QUANTITY.pattern}'")
        return str(value)

    def _expect(self, fits: bool, value: Any, wanted: str, path: str, owner: str) -> None:
        if not fits and self._is_structural(path):
            raise structural.wrong_type(self.kind, self.name, path, wanted, value)
        if not fits:
            where = f"Go struct field {owner}.{path} of type {_go_type(wanted, path)}"
            raise self.refused(f"json: cannot unmarshal {JSON.get(type(value), 'null')} into {where}")

    def refused(self, why: str) -> Refused:
        name = self.kind.name
        return bad_request(f'{name} in version "{self.kind.version}" cannot be handled as a {name}: {why}')


@cache
def _shape(wanted: str) -> tuple[str, str]:
    """Return "List", "Dict", or "Struct" with the type of what is in it; "" for anything else."""
    outer, _, inner = wanted.partition("[")
    if outer in ("List", "Dict"):
        return outer, inner.removesuffix("]").removeprefix("str, " if outer == "Dict" else "")
    return ("Struct", wanted) if _types(wanted) is not None else ("", "")


@cache
def _types(model: str) -> dict[str, str] | None:
    """Return the types of a model's fields by their JSON names; None if there is no such model."""
    if model in structural.FIELDS:
        return structural.FIELDS[model]
    cls = getattr(models, model, None)
    return cls and {json: cls.openapi_types[name] for name, json in cls.attribute_map.items()}


@cache
def _go_name(model: str) -> str:
    return re.sub(r"^(Core)?V1", "", model)


def _go_type(wanted: str, path: str) -> str:
    if wanted == "int":
        return "int64" if path.rpartition(".")[2] in INT64 else "int32"
    if wanted.startswith("List["):
        return f"[]{_go_type(wanted[5:-1], path)}"
    if wanted.startswith("Dict["):
        return f"map[string]{_go_type(wanted[10:-1], path)}"
    return GO.get(wanted, f"v1.{_go_name(wanted)}")
