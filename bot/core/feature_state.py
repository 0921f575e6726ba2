"""What a feature remembers about a sweep: a frozen value, stored as JSON under the feature's name."""

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, TypeVar, cast

from pydantic import TypeAdapter

from bot.core.stored_format import parse, strict_adapter


@dataclass(frozen=True, kw_only=True)
class FeatureState:
    """Subclasses are frozen dataclasses whose fields all have defaults that mean "not used"."""

    name: ClassVar[str]  # in stored records; never reuse one
    of_one_attempt: ClassVar[bool] = False  # whether a new experiment of the sweep starts without it


State = TypeVar("State", bound=FeatureState)
MAX_REMEMBERED = 4096  # characters: larger states are remembered, too, but few of them


def encoded(state: FeatureState) -> str:
    """Return the state as JSON; "" if nothing in it differs from the defaults."""
    text = _adapter(cast("Any", type(state))).dump_json(state, exclude_defaults=True).decode()
    return "" if text == "{}" else text


def decoded(kind: type[State], text: str) -> State:
    """Return the state that `encoded` wrote. Raises NewerFormatError for an unknown field."""
    decode = _remembered if len(text) < MAX_REMEMBERED else _large_remembered
    state: State = decode(cast("Any", kind), text)
    return state


@lru_cache(maxsize=256)
def _remembered(kind: Any, text: str) -> Any:
    """Return the state. A reconcile reads each a dozen times."""
    return _decoded(kind, text)


@lru_cache(maxsize=16)
def _large_remembered(kind: Any, text: str) -> Any:
    return _decoded(kind, text)


def _decoded(kind: Any, text: str) -> Any:
    return parse(_adapter(kind), text, f"the part {kind.name} of a sweep") if text else kind()


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return strict_adapter(kind)
