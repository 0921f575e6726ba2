"""The form of each answer of the API, and the sentence about a field that is missing or of another type."""

import json
import re
from typing import Any

from bot.core.errors import UserError

NONE = type(None)
TEXT, NUMBER = (str, NONE), (int, float, NONE)
TRIALS = {"total": int, "done": int, "running": int}
SWEEP = {
    **dict.fromkeys(("id", "state", "branch"), str),
    **dict.fromkeys(("owner", "commit", "reason", "cause", "thread", "results_url", "ended"), TEXT),
    "objective": ({"metric": str, "goal": str}, NONE),
    "trials": {**TRIALS, "failed": int},
    "best": ({"value": NUMBER, "parameters": dict}, NONE),
    "commands": [{"command": str, "about": TEXT, "denied": TEXT}],
}
TRIAL = {"name": str, "state": str, "value": NUMBER, "parameters": dict, "started": TEXT, "ended": TEXT}
LISTED = {"id": str, "state": str, "owner": TEXT, "trials": TRIALS, "best": NUMBER}
FACTS = [{"name": str, "text": str}]
# By path: a type, alternatives, the form of a list's elements, or fields, each of which can lack.
FORMS: dict[str, Any] = {
    "/sweeps": {"id": str, "state": str, "sweeps": [LISTED], "next": TEXT},
    "/sweeps/ID": SWEEP,
    "/sweeps/ID/events": SWEEP,
    "/sweeps/ID/results": {"trials": [TRIAL]},
    "/sweeps/ID/logs": {"source": str, "log": str},
    "/sweeps/ID/commands": {"id": str},
    "/plans": {"branch": str, "commit": str, "subject": str, "facts": FACTS, "example": str, "notes": [str]},
    "/comparison": {},
    "/history": {"sweeps": [dict]},
    "/spaces/check": {},
}
ANOTHER = "the server isn't Sweepbot's API, or of another version. *Fix:* Check the URL."


class Answer(dict[str, Any]):
    """An object of the server."""

    def __missing__(self, name: str) -> Any:
        raise UserError(f'The answer has no "{name}": {ANOTHER}')


def parsed(text: str, path: str) -> Answer | None:
    """Return the answer to a call; None if it is no JSON object. Raises UserError if it has another form."""
    try:
        found = json.loads(text, object_hook=Answer, parse_int=_number)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, Answer):
        return None
    if name := _wrong(found, FORMS[re.sub("^/sweeps/[^/]*", "/sweeps/ID", path)], ""):
        raise UserError(f'The answer has an unexpected "{name}": {ANOTHER}')
    return found


def _number(text: str) -> float:
    return int(text) if len(text) < 20 else float(text)


def _wrong(value: Any, form: Any, name: str) -> str:
    """Return the name of the first field that has another form; "" if none has."""
    match form:
        case tuple():
            found = [_wrong(value, each, name) for each in form]
            return found[0] if all(found) else ""
        case list() if isinstance(value, list):
            return next(filter(None, (_wrong(each, form[0], name) for each in value)), "")
        case dict() if isinstance(value, dict):
            inside = (_wrong(value[each], form[each], each) for each in form.keys() & value.keys())
            return next(filter(None, inside), "")
        case type() if isinstance(value, form):
            return ""
    return name
