"""Stored JSON between versions: older forms are migrated, newer ones are left alone."""

import math
from dataclasses import dataclass
from enum import StrEnum

import pytest
from pydantic import ConfigDict

from bot.core.stored_format import NewerFormatError, StoredFormat, late_adapter, strict_adapter


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    size: int = 0


@dataclass(frozen=True)
class Thing:
    id: str
    colour: Colour = Colour.RED
    parts: tuple[Part, ...] = ()
    schema: int = 1


def in_parts(fields):
    """The first schema had one size and no parts."""
    return {"id": fields["id"], "parts": [{"size": fields["size"]}]}


def renamed(fields):
    return {**fields, "id": fields["id"].lower()}


FIRST = StoredFormat(Thing, "thing")
THIRD = StoredFormat(Thing, "thing", migrations=(in_parts, renamed))


@pytest.mark.parametrize("form", [FIRST, THIRD])
def test_dump_omits_unused_fields_and_names_its_schema(form):
    assert form.dump(Thing("a")) == b'{"schema":%d,"id":"a"}' % form.schema
    assert form.load(form.dump(Thing("a", parts=(Part(2),)))).parts == (Part(2),)


@pytest.mark.parametrize("stored", ['{"id":"A","size":3}', '{"schema":1,"id":"A","size":3}'])
def test_load_migrates_older_schemas_step_by_step(stored):
    found = THIRD.load(stored)
    assert (found.id, found.parts) == ("a", (Part(3),))
    assert THIRD.load(THIRD.dump(found)) == found


def test_load_migrates_only_the_missing_steps():
    assert THIRD.load('{"schema":2,"id":"A","parts":[]}').id == "a"


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ('{"schema":2,"id":"a","parts":"in another place"}', "schema 2; this version reads 1"),
        ('{"schema":1,"id":"a","starred":true}', "unknown starred"),
        ('{"schema":1,"id":"a","colour":"blue"}', "unknown colour"),
        ('{"schema":1,"id":"a","parts":[{"size":1,"shape":"round"}]}', r"unknown parts\.0\.shape"),
    ],
)
def test_load_of_a_newer_form_is_a_newer_format_error(stored, why):
    with pytest.raises(NewerFormatError, match=rf"thing a was stored by a newer Sweepbot \({why}\)"):
        FIRST.load(stored)


@pytest.mark.parametrize("stored", ["", "x", "[]", "{}", '{"id":3}', '{"schema":"x","id":"a"}'])
def test_load_of_damaged_text_is_a_value_error(stored):
    with pytest.raises(ValueError, match=r"\w") as found:
        FIRST.load(stored)
    assert not isinstance(found.value, NewerFormatError)


@pytest.mark.parametrize("adapter_of", [late_adapter, strict_adapter])
def test_adapter_is_built_by_its_first_use(adapter_of):
    @dataclass(frozen=True)
    class Unused:
        size: int = 0

    adapter = adapter_of(Unused)
    assert not adapter.pydantic_complete
    assert adapter.validate_json('{"size":2}') == Unused(2)
    assert adapter.pydantic_complete


def test_late_adapter_keeps_the_types_own_configuration():
    @dataclass(frozen=True)
    class Loss:
        __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings")
        value: float = math.inf

    for adapter in (late_adapter(Loss), late_adapter(Loss)):
        assert adapter.dump_json(Loss()) == b'{"value":"Infinity"}'
