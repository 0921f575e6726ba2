"""Evaluate label and field selectors: `key`, `key=value`, `key in (a, b)`, `field=value`, `field!=value`."""

import re
from collections.abc import Callable, Mapping

from local.kubernetes.apiserver.kinds import Object, bad_request

Matcher = Callable[[Object], bool]
REQUIREMENT = re.compile(r"([\w./-]+)\s*(?:==?\s*([\w.-]*))?")
AMONG = re.compile(r"([\w./-]+)\s+in\s+\(([^()]*)\)")
BETWEEN = re.compile(r",(?![^()]*\))")  # not the commas of a set
FIELDS = {
    "Event": {"reason", "type"} | {f"involvedObject.{key}" for key in ("kind", "namespace", "name", "uid")},
    "Pod": {"status.phase", "spec.nodeName", "spec.restartPolicy"},
}


def matcher(kind: str, namespace: str | None, query: Mapping[str, str]) -> Matcher:
    """Return whether an object matches the request's selectors. Raises Refused 400."""
    labels = [_label_rule(text.strip()) for text in BETWEEN.split(query.get("labelSelector", "")) if text]
    fields = [_field_rule(kind, text) for text in query.get("fieldSelector", "").split(",") if text]

    def matches(obj: Object) -> bool:
        if obj["kind"] != kind or namespace not in (None, obj["metadata"].get("namespace")):
            return False
        own = obj["metadata"].get("labels", {})
        return all(rule(own) for rule in labels) and all(rule(obj) for rule in fields)

    return matches


def _label_rule(text: str) -> Matcher:
    if among := AMONG.fullmatch(text):
        name, names = among[1], {each.strip() for each in among[2].split(",")}
        return lambda labels: labels.get(name) in names
    found = REQUIREMENT.fullmatch(text)
    if not found:
        extra = text.split()[1] if len(text.split()) > 1 else text
        expected = "expected: in, notin, =, ==, !=, gt, lt"
        raise bad_request(f"unable to parse requirement: found '{extra}', {expected}")
    key, value = found.groups()
    return lambda labels: key in labels and value in (None, labels[key])


def _field_rule(kind: str, text: str) -> Matcher:
    path, operator, value = text.partition("=")
    if not operator:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    unequal, path = path.endswith("!"), path.removesuffix("!")
    if path not in {"metadata.name", "metadata.namespace"} | FIELDS.get(kind, set()):
        raise bad_request(f"field label not supported: {path}")
    return lambda obj: (str(_at(obj, path)) == value.removeprefix("=")) != unequal


def _at(obj: Object, path: str) -> object:
    found: object = obj
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, dict) else ""
    return found
