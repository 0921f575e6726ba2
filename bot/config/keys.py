"""Tables of YAML keys: readers accept these keys, and the reference and the JSON Schemas list them. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]  # JSON Schema, draft 2020-12
OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")  # of a Secret, a claim: RFC 1123 subdomain
NAMESPACE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123 label

STRING: Schema = {"type": "string", "minLength": 1}
BOOLEAN: Schema = {"type": "boolean"}
SCALAR: Schema = {"type": ["string", "number", "boolean", "null"]}
MAPPING: Schema = {"type": "object"}
NAMED: Schema = {"type": "object", "additionalProperties": {}}  # a mapping whose keys are free names
LIST: Schema = {"type": "array"}


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key. `keys` are those below it: of a MAPPING, or of each entry of a NAMED mapping or a LIST."""

    meaning: str
    type: Schema
    default: str = ""  # as the reference shows it
    example: str = ""  # YAML
    required: bool = False
    keys: Mapping[str, "Key"] = field(default_factory=dict)
    alternative: Schema | None = None  # what an entry can be instead of a mapping with `keys`

    @property
    def schema(self) -> Schema:
        return self._nested() | {"description": self.meaning}

    def _nested(self) -> Schema:
        if not self.keys:
            return self.type
        inner = object_schema(self.keys)
        inner = {"anyOf": [self.alternative, inner]} if self.alternative else inner
        if self.type == LIST:
            return self.type | {"items": inner}
        return self.type | {"additionalProperties": inner} if "additionalProperties" in self.type else inner


Keys = Mapping[str, Key]


def object_schema(keys: Keys) -> Schema:
    """Return the schema of a mapping with these keys and no others."""
    required = [name for name, key in keys.items() if key.required]
    return {
        "type": "object",
        "properties": {name: key.schema for name, key in keys.items()},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def flat(keys: Keys, prefix: str = "") -> Iterator[tuple[str, Key]]:
    """Yield each key with its path: `limits.trials`, `repositories.NAME.url`, `digests[].hour`."""
    for name, key in keys.items():
        path = f"{prefix}{name}"
        yield path, key
        entry = "[]." if key.type == LIST else ".NAME." if "additionalProperties" in key.type else "."
        yield from flat(key.keys, path + entry)


def integer(least: int | None = None, most: int | None = None) -> Schema:
    return {"type": "integer"} | _bounds(least, most)


def number(least: float | None = None, most: float | None = None) -> Schema:
    return {"type": "number"} | _bounds(least, most)


def one_of(*values: str) -> Schema:
    return {"enum": list(values)}


def string(title: str, pattern: str) -> Schema:
    """Return the schema of a string that `pattern` matches as a whole; the reference shows the title."""
    return {"type": "string", "title": title, "pattern": f"^(?:{pattern})$"}


def named(key: re.Pattern[str]) -> Schema:
    """Return the schema of a mapping whose keys `key` matches as a whole."""
    return NAMED | {"propertyNames": {"pattern": f"^(?:{key.pattern})$"}}


def list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _bounds(least: float | None, most: float | None) -> Schema:
    found = {"minimum": least, "maximum": most}
    return {name: value for name, value in found.items() if value is not None}
