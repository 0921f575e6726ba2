"""The two kinds of patch this API takes: JSON merge patch (RFC 7386) and JSON patch (RFC 6902)."""

from collections.abc import Sequence
from typing import Any

from local.kubernetes.kinds import Object, bad_request, refusal


def merge_patch(old: Object, patch: Object) -> Object:
    """What `old` becomes: null removes a key, objects merge, anything else replaces."""
    new = {key: value for key, value in old.items() if key not in patch}
    for key, value in patch.items():
        if isinstance(value, dict):
            below = old.get(key)
            new[key] = merge_patch(below if isinstance(below, dict) else {}, value)
        elif value is not None:
            new[key] = value
    return new


def json_patch(document: Object, operations: Sequence[Object]) -> Object:
    """Apply add, remove, replace and test to `document`, in place. Raises Refused 422 if one can't be."""
    for operation in operations:
        path = operation.get("path", "")
        try:
            _apply(document, operation.get("op"), _tokens(path), operation.get("value"))
        except (LookupError, ValueError, TypeError) as error:
            # The real one does not say which operation it was [02-patch-json-test-fail].
            text = "the server rejected our request due to an error in our request"
            raise refusal(422, text, "Invalid", {}) from error
    return document


def _tokens(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _apply(document: Any, op: str | None, tokens: Sequence[str], value: Any) -> None:
    *parents, last = tokens
    for token in parents:
        document = document[_index(document, token)]
    if op == "test" and document[_index(document, last)] != value:
        raise ValueError("test failed")
    if op == "remove":
        del document[_index(document, last)]
    elif op == "replace":
        document[_index(document, last)]
        document[_index(document, last)] = value
    elif op == "add" and isinstance(document, list):
        document.insert(len(document) if last == "-" else int(last), value)
    elif op == "add":
        document[last] = value
    elif op != "test":
        raise bad_request(f"JSON patch operation {op!r} is not known to this API server")


def _index(document: Any, token: str) -> int | str:
    return int(token) if isinstance(document, list) else token
