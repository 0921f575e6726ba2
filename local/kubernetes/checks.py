"""What the API server fills in and what it refuses, object by object, in its words."""

import base64
import json
import re
from collections.abc import Iterator

from local.kubernetes.kinds import KINDS, Cause, Kind, Object, bad_request, invalid
from local.kubernetes.pods import JOB_DEFAULTS, check_containers, complete_pod, complete_pod_spec
from local.kubernetes.schema import Decoding

SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
ENDS = "and must start and end with an alphanumeric character (e.g."
REGEX = "regex used for validation is"
NOT_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    f"{ENDS} 'example.com', {REGEX} '{SUBDOMAIN}')"
)
NOT_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{ENDS} 'MyValue',  or 'my_value',  or '12345', {REGEX} '{LABEL_VALUE}')"
)
NOT_QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', "
    f"{ENDS} 'MyName',  or 'my.name',  or '123-abc', {REGEX} '{QUALIFIED}')"
)
POD_CHANGES = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
MOST_ANNOTATIONS = 256 * 1024
MOST_DATA = 1024 * 1024
COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
JOB_FIXED = ("completions", "selector", "template", "completionMode", "podFailurePolicy")
POD_FREE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "containers")


def kind_of(obj: Object) -> Kind:
    return KINDS[obj["kind"]]


def decoded(kind: Kind, obj: Object) -> Object:
    """A copy with the right types only. Raises Refused 400."""
    new = Decoding(kind).read(obj)
    return {"apiVersion": kind.api_version, "kind": kind.name, **new, "metadata": new.get("metadata", {})}


def complete(kind: Kind, obj: Object) -> None:
    """Fill in what a new object gets, in place."""
    meta = obj["metadata"]
    _default(kind, obj)
    if kind.name == "Namespace":
        meta["labels"] = meta.get("labels", {}) | {"kubernetes.io/metadata.name": meta.get("name", "")}
        obj |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    elif kind.name == "Secret":
        plain = {key: base64.b64encode(v.encode()).decode() for key, v in obj.pop("stringData", {}).items()}
        obj |= {"type": obj.get("type", "Opaque"), "data": obj.get("data", {}) | plain}
    elif kind.name == "Event":
        obj.setdefault("eventTime", None)
    elif kind.name == "Pod":
        obj["status"] = {"phase": "Pending"}
    elif kind.name == "Job":
        _select_own_pods(meta, obj["spec"])
        obj["status"] = {}


def check_new(kind: Kind, obj: Object) -> None:
    """Raises Refused 422 with everything that is wrong."""
    _refuse(kind, obj, [*_meta(obj["metadata"]), *_content(kind, obj)])


def check_update(kind: Kind, old: Object, new: Object) -> None:
    """Raises Refused 422 for what is wrong or may not change any more, 400 for another name."""
    given, real = new["metadata"].get("name", ""), old["metadata"]["name"]
    if given != real:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({real})")
    _default(kind, new)
    changes = [*_late_finalizers(old["metadata"], new["metadata"]), *_changed(kind, old, new)]
    _refuse(kind, new, [*_meta(new["metadata"]), *_content(kind, new), *changes])


def _refuse(kind: Kind, obj: Object, causes: list[Cause]) -> None:
    if causes:
        raise invalid(kind.group_kind, kind.details(obj["metadata"].get("name", ""), kind.name), causes)


def _default(kind: Kind, obj: Object) -> None:
    if kind.name == "Pod":
        complete_pod(obj.setdefault("spec", {}))
    if kind.name == "Job":
        obj["spec"] = JOB_DEFAULTS | obj.get("spec", {})
        template = obj["spec"].setdefault("template", {})
        template.setdefault("metadata", {}).setdefault("labels", {})
        complete_pod_spec(template.setdefault("spec", {}))


def _select_own_pods(meta: Object, spec: Object) -> None:
    pod = spec["template"]["metadata"]
    if "labels" not in meta and pod["labels"]:
        meta["labels"] = pod["labels"]  # a Job without labels takes those of its pods [03-job-generateName]
    old = {"controller-uid": meta["uid"], "job-name": meta.get("name", "")}
    pod["labels"] = pod["labels"] | {f"batch.kubernetes.io/{key}": old[key] for key in old} | old
    spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}})


def _meta(meta: Object) -> Iterator[Cause]:
    name = meta.get("name", "")
    if not name:
        yield Cause.required("metadata.name", "name or generateName is required")
    elif len(name) > 253:
        yield Cause.value("metadata.name", name, "must be no more than 253 characters")
    elif not re.fullmatch(SUBDOMAIN, name):
        yield Cause.value("metadata.name", name, NOT_SUBDOMAIN)
    yield from _labels("metadata.labels", meta.get("labels", {}))
    annotations = meta.get("annotations", {})
    yield from _keys("metadata.annotations", annotations)
    if _size(*annotations, *annotations.values()) > MOST_ANNOTATIONS:
        yield _too_long("metadata.annotations", MOST_ANNOTATIONS)


def _size(*texts: str) -> int:
    return sum(len(text.encode()) for text in texts)


def _too_long(field: str, most: int) -> Cause:
    return Cause(field, f"Too long: may not be more than {most} bytes", "FieldValueTooLong")


def _labels(field: str, labels: dict[str, str]) -> Iterator[Cause]:
    yield from _keys(field, labels)
    for value in labels.values():
        if len(value) > 63:
            yield Cause.value(field, value, "must be no more than 63 bytes")
        if not re.fullmatch(LABEL_VALUE, value):
            yield Cause.value(field, value, NOT_LABEL_VALUE)


def _keys(field: str, items: dict[str, str]) -> Iterator[Cause]:
    for key in items:
        prefix, slash, name = key.rpartition("/")
        if slash and not re.fullmatch(SUBDOMAIN, prefix):
            yield Cause.value(field, key, f"prefix part {NOT_SUBDOMAIN}")
        if len(name) > 63:
            yield Cause.value(field, key, "name part must be no more than 63 bytes")
        if not re.fullmatch(QUALIFIED, name):
            yield Cause.value(field, key, NOT_QUALIFIED)


def _content(kind: Kind, obj: Object) -> Iterator[Cause]:
    if kind.name in ("ConfigMap", "Secret") and _size(*obj.get("data", {}).values()) > MOST_DATA:
        yield _too_long("[]", MOST_DATA)
    if kind.name == "Pod":
        yield from check_containers("spec", obj.get("spec", {}))
    if kind.name == "Job":
        yield from _job(obj["spec"])


def _job(spec: Object) -> Iterator[Cause]:
    for key in COUNTS:
        if spec.get(key, 0) < 0:
            yield Cause.value(f"spec.{key}", spec[key], "must be greater than or equal to 0")
    yield from _labels("spec.template.labels", spec["template"]["metadata"]["labels"])
    pod = spec["template"]["spec"]
    yield from check_containers("spec.template.spec", pod)
    if pod["restartPolicy"] not in ("OnFailure", "Never"):
        yield Cause.required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


def _late_finalizers(old: Object, new: Object) -> Iterator[Cause]:
    added = [f'"{name}"' for name in new.get("finalizers", []) if name not in old.get("finalizers", [])]
    if added and "deletionTimestamp" in old:
        why = "no new finalizers can be added if the object is being deleted, found new finalizers"
        text = f"Forbidden: {why} []string{{{', '.join(added)}}}"
        yield Cause("metadata.finalizers", text, "FieldValueForbidden")


def _changed(kind: Kind, old: Object, new: Object) -> Iterator[Cause]:
    was, now = old.get("spec", {}), new.get("spec", {})
    if kind.name == "Pod" and _fixed(was, was) != _fixed(now, was):
        yield Cause("spec", POD_CHANGES, "FieldValueForbidden")
    for key in JOB_FIXED if kind.name == "Job" else ():
        if was.get(key) != now.get(key) and not (key == "template" and was["suspend"]):
            shown = json.dumps(now.get(key), separators=(",", ":"))
            yield Cause(f"spec.{key}", f"Invalid value: {shown}: field is immutable")


def _fixed(spec: Object, was: Object) -> Object:
    """What of a pod may not change. Its node may be set once: the scheduler here has no other way."""
    free = POD_FREE if was.get("nodeName") else (*POD_FREE, "nodeName")
    containers = [{**container, "image": ""} for container in spec["containers"]]
    return {**{key: value for key, value in spec.items() if key not in free}, "containers": containers}
