"""Read and write JSON that is shared with other versions of Sweepbot: during an update, both run.

A field is written only if it differs from its default, so an older version reads everything in which a new
field isn't used. What it can't read completely it must leave to the newer version: a save would drop the new
field. Any other change (a field renamed, removed, or with another meaning) is a new schema with a migration.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic.dataclasses import dataclass
from pydantic_core import from_json, to_json

from k8s.api.errors import SweepbotError

Stored = TypeVar("Stored")
Fields = dict[str, Any]
Migration = Callable[[Fields], Fields]

# Types of pydantic's errors about a field or a value of an enumeration that this version doesn't know.
UNKNOWN = {"unexpected_keyword_argument", "enum"}


class NewerFormatError(SweepbotError, ValueError):
    """Stored by a newer Sweepbot, which runs beside this one during an update, or ran before a downgrade."""


@dataclass(frozen=True)
class _Header:
    schema: int = 1
    id: str = ""


_HEADER: TypeAdapter[_Header] = TypeAdapter(_Header)


class StoredFormat(Generic[Stored]):
    """The stored form of a dataclass, which must have a field `schema`.

    Args:
        what: name of the thing in errors.
        migrations: the first one turns the fields of schema 1 into those of schema 2, and so on.
    """

    def __init__(self, kind: type[Stored], what: str, migrations: Sequence[Migration] = ()) -> None:
        self._kind, self._what, self._migrations = kind, what, migrations
        self.schema = len(migrations) + 1

    @cached_property
    def _adapter(self) -> TypeAdapter[Stored]:
        """Made when it is first used: that of a record takes 20 ms, and not every process reads records."""
        return strict_adapter(self._kind)

    def dump(self, value: Stored) -> bytes:
        fields = self._adapter.dump_json(value, exclude_defaults=True, exclude={"schema"})
        return b'{"schema":%d,%b' % (self.schema, fields[1:])

    def load(self, text: str | bytes) -> Stored:
        """Return the value, migrated. Raises NewerFormatError, or ValueError if the text is damaged."""
        header = _HEADER.validate_json(text)
        what = f"{self._what} {header.id}".rstrip()
        if header.schema > self.schema:
            raise NewerFormatError(_newer(what, f"schema {header.schema}; this version reads {self.schema}"))
        if header.schema < self.schema:
            text = to_json(self._migrated(from_json(text), header.schema))
        return parse(self._adapter, text, what)

    def _migrated(self, fields: Fields, schema: int) -> Fields:
        for migrate in self._migrations[schema - 1 :]:
            fields = migrate(fields)
        return {**fields, "schema": self.schema}


def strict_adapter(kind: type[Stored]) -> TypeAdapter[Stored]:
    """Return an adapter that rejects unknown fields, for `parse`. It is built when it is first used."""
    return TypeAdapter(with_config(ConfigDict(extra="forbid", defer_build=True))(kind))


def late_adapter(kind: type[Stored]) -> TypeAdapter[Stored]:
    """Return an adapter of a dataclass that is built when it is first used: one takes milliseconds."""
    own: ConfigDict = getattr(kind, "__pydantic_config__", ConfigDict())  # `with_config` replaces it
    return TypeAdapter(with_config({**own, "defer_build": True})(kind))


def parse(adapter: TypeAdapter[Stored], text: str | bytes, what: str) -> Stored:
    """Raise NewerFormatError for an unknown field or value, ValueError for other errors."""
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        unknown = next((each for each in error.errors() if each["type"] in UNKNOWN), None)
        if unknown is None:
            raise
        where = ".".join(map(str, unknown["loc"]))
        raise NewerFormatError(_newer(what, f"unknown {where}")) from None


def cached(adapter: TypeAdapter[Stored], text: str | bytes | None) -> Stored | None:
    """Return what can be computed again; None if it is missing, or in another version's format."""
    try:
        return adapter.validate_json(text) if text else None
    except ValidationError:
        return None


def _newer(what: str, why: str) -> str:
    return f"{what} was stored by a newer Sweepbot ({why}); it waits for that version"
