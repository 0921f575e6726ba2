"""Declare the keys of a YAML file once: as frozen dataclasses, which pydantic fills from the file's nodes.

A `Section` is the value that the code uses. Each field with a `Key` is a key of the file: from it come
reading, errors with their line, the JSON Schema, and the reference. Sections that code makes aren't checked.
"""

import dataclasses
import re
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from bot.platform.config.docstrings import docstrings
from bot.platform.config.rules import RECORDED, Checked, Key, Problem, Reads, Schema
from bot.platform.config.yaml_reader import Node
from bot.text.wording import listed

T = TypeVar("T")
S = TypeVar("S", bound="Section")


@dataclass(frozen=True)
class Entry:
    """A node of a mapping whose keys are free names."""

    name: str
    node: Node


class _Entries:
    """A mapping whose keys are free names, as a tuple of sections with a `name`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return Reads(_entries).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        items = handler(schema)["items"]
        names = handler.resolve_ref_schema(items)["x-names"]
        return {"type": "object", "propertyNames": names, "additionalProperties": items}


def _entries(node: Node) -> list[Entry]:
    return [Entry(name, each) for name, each in node.mapping().items()]


Named = Annotated[tuple[T, ...], _Entries()]


def _written(field: str) -> str:
    """Return the key of a field: without the underscore of one that would be a keyword."""
    return field.removesuffix("_")


class Section:
    """A mapping of a file. Its subclasses are frozen dataclasses."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", alias_generator=_written)
    nullable: ClassVar[bool] = False  # whether nothing can stand for a mapping without keys
    elsewhere: ClassVar[dict[str, str]] = {}  # what to do about keys that belong to another place

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner: dict[str, Any] = {**handler.resolve_ref_schema(handler(source))}
        ref = inner.pop("ref")  # of the whole: a second use of the section gets it, not what is inside
        values = core_schema.no_info_before_validator_function(cls._values, cast("CoreSchema", inner))
        return core_schema.with_info_after_validator_function(Checked(cls.problems).check, values, ref=ref)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        found = handler(schema)
        resolved = handler.resolve_ref_schema(found)
        properties = resolved["properties"]
        meanings = docstrings(cls)
        for written, (field, _) in cls.known().items():
            properties[written]["description"] = meanings[field.name]
        # A name isn't a key of the mapping; and the class is nothing to the file's author.
        resolved["x-names"] = properties.pop("name", {}) if "name" not in cls.known() else {}
        needed = {*resolved.pop("required", ())} | {
            key for key, (_, one) in cls.known().items() if one.required
        }
        required = [key for key in properties if key in needed]
        resolved |= {"required": required} if required else {}
        for note in ("title", "description"):
            resolved.pop(note, None)
        return found

    @classmethod
    @cache
    def known(cls) -> dict[str, tuple["dataclasses.Field[Any]", Key]]:
        """Return the fields by their keys as they are written."""
        return dict(_keys(cls))

    @classmethod
    def _values(cls, given: Any) -> Any:
        node, name = (given.node, {"name": given.name}) if isinstance(given, Entry) else (given, {})
        if not isinstance(node, Node) or (node.value is None and cls.nullable):
            return name if isinstance(node, Node) else node
        found = node.mapping([*cls.known()], elsewhere=cls.elsewhere)
        if not isinstance(node.value, dict):
            raise PydanticCustomError(RECORDED, RECORDED)
        return {key: each for key, each in found.items() if key in cls.known()} | name

    def problems(self, context: Any) -> Iterator[Problem]:  # noqa: ARG002, for subclasses
        """Yield what is wrong with the values together, or next to other sections (`context`)."""
        yield from ()


def _keys(section: type) -> Iterator[tuple[str, tuple["dataclasses.Field[Any]", Key]]]:
    for each in fields(section):
        metadata = getattr(each.type, "__metadata__", ())
        yield from ((_written(each.name), (each, one)) for one in metadata if isinstance(one, Key))


@cache
def _adapter(section: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("type[Any]", section))


def adapter(section: type[T]) -> TypeAdapter[T]:
    """Return what reads a section; making it takes milliseconds, once."""
    return _adapter(cast("Hashable", section))


def parsed(section: type[T], root: Node, context: object = None) -> T:
    """Return the values of a file. Raises UserError with all its errors, each with its line."""
    found = read_node(section, root, context)
    root.check()
    assert found is not None, "an error without a sentence"  # noqa: S101
    return found


def read_node(section: type[T], node: Node, context: object = None) -> T | None:
    """Return a section; None with errors, which are recorded at their nodes."""
    try:
        return adapter(section).validate_python(node, context=context)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            found = _at(node, each["loc"])
            for path, sentence in _sentences(each, found):
                _at(found, path).error(sentence)
    return None


def read_each(
    section: type[S], node: Node, *, given: Collection[str] = (), short: str = ""
) -> tuple[S, dict[str, Node]]:
    """Return a section with a harmless default for each key with an error, and the nodes of its keys.

    So what belongs together is checked even if some of it has errors. `given`: required keys whose value
    comes from elsewhere. `short`: the key that a value stands for if it isn't a mapping.
    """
    is_short = short and not isinstance(node.value, dict)
    written = {short: node} if is_short else node.mapping([*section.known()], elsewhere=section.elsewhere)
    values: dict[str, Any] = {}
    for key, (field, declared) in section.known().items():
        before = len(node.errors)
        if key not in written:
            if declared.required and key not in given and isinstance(node.value, dict):
                node.error(f"missing key: {key}")
            continue
        value = read_node(field.type, written[key])  # type: ignore[arg-type]
        values |= {field.name: value} if len(node.errors) == before else {}
    return section(**values), {key: each for key, each in written.items() if key in section.known()}


def glanced(section: type[T], node: Node | None) -> T:
    """Return a section for checks of others: its defaults if it is missing or has errors."""
    if node is None:
        return section()
    before = len(node.errors)
    try:
        return adapter(section).validate_python(node)
    except ValidationError:
        return section()
    finally:
        del node.errors[before:]


def _sentences(error: ErrorDetails, node: Node) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield what an error of pydantic means, with its path below the node."""
    context = error.get("ctx", {})
    match error["type"]:
        case "recorded":
            return
        case "several":
            for path, sentence in context["problems"]:
                yield path if isinstance(path, tuple) else (path,), sentence
        case "missing":
            yield (), f"missing key: {error['loc'][-1]}"
        case "literal_error":
            words = re.findall(r"'([^']*)'", context["expected"])
            yield (), f"must be {listed(words, 'or')}{node.got}"
        case "value_error":
            yield (), str(context["error"])
        case _:
            yield (), error["msg"]


def _at(root: Node, location: Iterable[str | int]) -> Node:
    """Return the node of a location, or the last one on the way to it."""
    node = root
    for part in location:
        if isinstance(node.value, dict):
            below = [*node.value.values()] if isinstance(part, int) else [node.value.get(part, node)]
        else:
            below = node.value if isinstance(node.value, list) and isinstance(part, int) else [node]
        node = below[part] if isinstance(part, int) and part < len(below) else below[0]
    return node


class _Generator(GenerateJsonSchema):
    """Without null, which a file can't have, and without titles of pydantic's own."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> Schema:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, _: Any) -> bool:
        return False


def json_schema(section: type) -> Schema:
    """Return the schema of a file, without references.

    `x-default` and `x-example` of a key are what the reference shows.
    """
    schema = adapter(section).json_schema(schema_generator=_Generator)
    return cast("Schema", _inlined(schema, schema.pop("$defs", {})))


def _inlined(schema: Any, shared: Schema) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, shared) for each in schema]
    if not isinstance(schema, dict):
        return schema
    own = {key: _inlined(each, shared) for key, each in schema.items() if key not in {"$ref", "x-names"}}
    if "$ref" in schema:
        own = _inlined(shared[schema["$ref"].rpartition("/")[2]], shared) | own
    return own
