"""What a field of a section can be annotated with: how its value is read, and what it must be. Pure."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from bot.platform.config.yaml_reader import Node
from bot.text.wording import did_you_mean, listed, shortened

T = TypeVar("T")
Schema = dict[str, Any]  # JSON Schema, draft 2020-12
# A key or a path below a value, "" for the value itself; a sentence.
Problem = tuple[str | int | tuple[str | int, ...], str]
RECORDED, SEVERAL = "recorded", "several"  # errors that are at their node already; and those with paths


class Rule:
    """What a value must be, in an annotation: its check, and what it adds to the JSON Schema."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return self.described(handler(schema))

    def check(self, value: Any) -> Any:
        """Return the value. Raises ValueError with a sentence."""
        return value

    def described(self, schema: Schema) -> Schema:
        return schema


@dataclass(frozen=True)
class Key(Rule):
    """The example of a key (YAML), what it means if it isn't set, and the bounds of its number.

    Without a default here, it is the field's own, or "none". The field's docstring is its meaning.
    """

    example: str = ""
    default: str = ""
    least: float | None = None
    most: float | None = None
    required: bool = False  # although the field has a default, for `read_each`

    def described(self, schema: Schema) -> Schema:
        shown: Schema = {"minimum": self.least, "maximum": self.most}
        shown |= {"x-default": self.default or None, "x-example": self.example or None}
        return schema | {name: each for name, each in shown.items() if each is not None}

    def check(self, value: Any) -> Any:
        most = math.inf if self.most is None else self.most
        if self.least is not None and not self.least <= value <= most:
            rule = f"at least {self.least:,}" if self.most is None else f"from {self.least:,} to {most:,}"
            raise ValueError(f"must be {rule}; got {value if isinstance(value, int) else f'{value:g}'}")
        return value


@dataclass(frozen=True)
class Reads:
    """Read a node. An error that `read` records there ends the reading of this value alone."""

    read: Callable[[Node], object]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._value, handler(source))

    def _value(self, given: Any) -> object:
        if not isinstance(given, Node):
            return given
        before = len(given.errors)
        value = self.read(given)
        if len(given.errors) > before:
            raise PydanticCustomError(RECORDED, RECORDED)
        return value


@dataclass(frozen=True)
class Matching(Rule):
    """Text that a pattern matches as a whole. `what` completes "must be"; `title` is for the reference."""

    pattern: re.Pattern[str]
    what: str
    title: str = "name"
    shown: bool = True  # whether the error quotes the text

    def described(self, _: Schema) -> Schema:
        return {"type": "string", "title": self.title, "pattern": f"^(?:{self.pattern.pattern})$"}

    def check(self, text: Any) -> Any:
        if not self.pattern.fullmatch(text):
            raise ValueError(f"must be {self.what}" + (f'; got "{shortened(text)}"' if self.shown else ""))
        return text


@dataclass(frozen=True)
class OneOf(Rule):
    """Text that is one of these words."""

    words: tuple[str, ...]

    def described(self, _: Schema) -> Schema:
        return {"enum": [*self.words]}

    def check(self, word: Any) -> Any:
        if word not in self.words:
            hint = did_you_mean(word, self.words)
            close = f".{hint}" if hint.startswith(" Did") else ""  # otherwise it is the same list
            raise ValueError(f'must be {listed(self.words, "or")}; got "{shortened(word)}"{close}')
        return word


@dataclass(frozen=True)
class Name(Rule):
    """The `name` of an entry of `Named`: the key in front of it. `rule` completes "name must have"."""

    pattern: re.Pattern[str]
    rule: str

    def described(self, _: Schema) -> Schema:
        return {"pattern": f"^(?:{self.pattern.pattern})$"}

    def check(self, name: Any) -> Any:
        if not self.pattern.fullmatch(name):
            raise ValueError(f'name must {self.rule}; got "{shortened(name)}"')
        return name


@dataclass(frozen=True)
class Count(Rule):
    """How many entries a list or a mapping has: at least none or one."""

    least: Literal[0, 1]
    most: int | None = None

    def described(self, schema: Schema) -> Schema:
        least = {"minItems" if schema["type"] == "array" else "minProperties": self.least}
        return schema | (least if self.least else {})

    def check(self, found: Any) -> Any:
        if not self.least <= len(found) <= (self.most or len(found)):
            rule = "from 1 to" if self.least else "at most"
            rule = f"{rule} {self.most} entries" if self.most else "at least one entry"
            raise ValueError(f"must have {rule}; got {len(found)}")
        return found


@dataclass(frozen=True)
class Via:
    """Read a value of another type, and convert it."""

    source: Any
    convert: Callable[[Any], object]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            self.convert, handler.generate_schema(self.source)
        )


@dataclass(frozen=True)
class Checked:
    """What is wrong with the entries of a list or a mapping together."""

    problems: Callable[[Any, Any], Iterable[Problem]]  # of the entries, and of what `parsed` is given

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self.check, handler(source))

    def check(self, value: Any, info: core_schema.ValidationInfo) -> Any:
        if found := list(self.problems(value, info.context)):
            raise PydanticCustomError(SEVERAL, SEVERAL, {"problems": found})
        return value


@dataclass(frozen=True)
class Unread:
    """A node that other code reads. `schema` makes the schema of what it can be."""

    schema: Callable[[], Schema]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema()

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return self.schema()


Several = Annotated[tuple[T, ...], Reads(Node.items)]
