"""Build the sentences about settings that are missing or invalid. Pure."""

from collections.abc import Iterable, Mapping

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

WHERE = (
    "Set variables in the environment; .env.example lists them. In a cluster, run commands in a worker: "
    "kubectl -n sweepbot exec deployment/sweepbot-work -- sweepbot doctor"
)
# By pydantic's type of the error; other errors are sentences of ours.
REASONS = {
    "bool_parsing": "must be true or false",
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
}


def error_text(fields: Mapping[str, FieldInfo], errors: Iterable[ErrorDetails]) -> str:
    """Return one line for each setting, and where to set it. Values aren't shown: they can be secrets."""
    return "\n".join([*(_line(fields, each) for each in errors), WHERE])


def missing(fields: Mapping[str, FieldInfo], name: str) -> str:
    return f"{name.upper()} isn't set ({fields[name].description})."


def _line(fields: Mapping[str, FieldInfo], error: ErrorDetails) -> str:
    name = str(error["loc"][0])
    if error["type"] == "missing":
        return missing(fields, name)
    reason = REASONS.get(error["type"], "").format(**error.get("ctx", {}))
    reason = reason or error["msg"].removeprefix("Value error, ")
    return f"{name.upper()} is invalid: {reason} ({fields[name].description})."
