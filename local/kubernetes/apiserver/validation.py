"""Default and validate objects, with the API server's error messages."""

import base64
import re
from collections.abc import Iterator, Sequence

from local.kubernetes.apiserver import structural
from local.kubernetes.apiserver.claims import SPECS, check_claim, check_references, complete_claim
from local.kubernetes.apiserver.kinds import Cause, Kind, Object, bad_request, invalid
from local.kubernetes.apiserver.objects import without
from local.kubernetes.apiserver.pods import (
    JOB_DEFAULTS,
    LABEL,
    check_containers,
    complete_pod,
    complete_pod_spec,
)
from local.kubernetes.apiserver.schema import Decoding
from local.kubernetes.controllers.indexed_jobs import MAX_INDEXES

SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
IP = re.compile(r"[0-9]+(\.[0-9]+){3}|\[?[0-9a-fA-F:]*:[0-9a-fA-F:.]*\]?")
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
MAX_ANNOTATIONS = 256 * 1024
MAX_DATA = 1024 * 1024
REPLICATED = ("Deployment", "ReplicaSet")
SCALED = ("replicas", "template", "updateStrategy", "revisionHistoryLimit")  # what an update can change
COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")


def decoded(kind: Kind, obj: Object, old: Object | None = None) -> Object:
    """Return a copy with the declared types. A schema adds its defaults. Raises Refused 400 or 422.

    What is still the very part of the stored object `old` is valid, and isn't read again.
    """
    known = {} if old is None or structural.is_pruned(kind) else without(old, "metadata")
    same = {key: value for key, value in obj.items() if key in known and value is known[key]}
    new = Decoding(kind).read(without(obj, *same)) | same
    new = {"apiVersion": kind.api_version, "kind": kind.name, **new, "metadata": new.get("metadata", {})}
    if structural.is_pruned(kind):
        structural.set_defaults(new)
    return new


def complete(kind: Kind, obj: Object) -> None:
    """Set the defaults of a new object, in place."""
    meta = obj["metadata"]
    _default(kind, obj)
    if kind.name == "Namespace":
        meta["labels"] = meta.get("labels", {}) | {"kubernetes.io/metadata.name": meta.get("name", "")}
        obj |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    elif kind.name == "Pod":
        obj["status"] = {"phase": "Pending"}
    elif kind.name == "Job":
        _select_own_pods(meta, obj["spec"])
        obj["status"] = {}
    elif kind.name == "StatefulSet":
        obj["status"] = {"replicas": 0}
    elif kind.name in REPLICATED:
        obj["status"] = {}
    elif kind.name == "PersistentVolumeClaim":
        obj["status"] = {"phase": "Pending"}


def check_new(kind: Kind, obj: Object) -> None:
    """Raise Refused 422 with all errors."""
    _refuse(kind, obj, [*_meta(obj["metadata"]), *_content(kind, obj), *structural.errors(obj)])


def check_update(kind: Kind, old: Object, new: Object) -> None:
    """Raise Refused 422 for errors and changes of immutable fields, 400 for another name."""
    given, real = new["metadata"].get("name", ""), old["metadata"]["name"]
    if given != real:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({real})")
    _default(kind, new)
    changes = [*structural.errors(new, old), *_changed(kind, old, new)]
    _refuse(kind, new, [*_meta(new["metadata"]), *_content(kind, new), *changes])


def _refuse(kind: Kind, obj: Object, causes: list[Cause]) -> None:
    if causes:
        raise invalid(kind.group_kind, kind.details(obj["metadata"].get("name", ""), kind.name), causes)


def _default(kind: Kind, obj: Object) -> None:
    if kind.name == "Secret":
        plain = {key: base64.b64encode(v.encode()).decode() for key, v in obj.pop("stringData", {}).items()}
        obj |= {"type": obj.get("type", "Opaque"), "data": obj.get("data", {}) | plain}
    if kind.name == "Pod":
        complete_pod(obj.setdefault("spec", {}))
    if kind.name == "StatefulSet":
        _complete_stateful_set(obj)
    if kind.name in REPLICATED:
        _complete_replicated(obj)
    if kind.name in SPECS:
        complete_claim(obj)
    if kind.name == "Job":
        given = obj.get("spec", {})
        replaces = "Failed" if "podFailurePolicy" in given else "TerminatingOrFailed"
        obj["spec"] = {**JOB_DEFAULTS, "podReplacementPolicy": replaces, **given}
        template = obj["spec"].setdefault("template", {})
        template.setdefault("metadata", {}).setdefault("labels", {})
        complete_pod_spec(template.setdefault("spec", {}))


def _complete_stateful_set(obj: Object) -> None:
    spec = obj["spec"] = {"replicas": 1, "podManagementPolicy": "OrderedReady", **obj.get("spec", {})}
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {}).setdefault("labels", {})
    complete_pod_spec(template.setdefault("spec", {}))


def _complete_replicated(obj: Object) -> None:
    spec = obj["spec"] = {"replicas": 1, **obj.get("spec", {})}
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {}).setdefault("labels", {})
    complete_pod_spec(template.setdefault("spec", {}))
    if obj["kind"] == "Deployment":
        half = {"maxSurge": "25%", "maxUnavailable": "25%"}
        strategy = spec.setdefault("strategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy["rollingUpdate"] = half | strategy.get("rollingUpdate", {})


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
    if _size(*annotations, *annotations.values()) > MAX_ANNOTATIONS:
        yield _too_long("metadata.annotations", MAX_ANNOTATIONS)


def _size(*texts: str) -> int:
    return sum(len(text.encode()) for text in texts)


def _data_size(obj: Object) -> int:
    """Return the bytes of a ConfigMap or Secret; `binaryData` counts decoded."""
    binary = obj.get("binaryData", {}).values()
    return _size(*obj.get("data", {}).values()) + sum(len(base64.b64decode(each)) for each in binary)


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
    if kind.name in ("ConfigMap", "Secret") and _data_size(obj) > MAX_DATA:
        yield _too_long("[]", MAX_DATA)
    if kind.name in SPECS:
        yield from check_claim(obj)
    if kind.name == "Pod":
        yield from check_containers("spec", obj.get("spec", {}))
        yield from check_references("spec", obj.get("spec", {}))
    if kind.name == "Job":
        yield from _job(obj["spec"])
        yield from _indexes(obj["metadata"], obj["spec"])
    if kind.name == "StatefulSet":
        yield from _stateful_set(obj["spec"])
    if kind.name in REPLICATED:
        yield from _replicated(obj["spec"])
    if kind.name == "Ingress":
        yield from _ingress(obj["spec"])


def _ingress(spec: Object) -> Iterator[Cause]:
    for number, host in enumerate(rule.get("host", "") for rule in spec.get("rules", [])):
        field = f"spec.rules[{number}].host"
        if IP.fullmatch(host):
            yield Cause.value(field, host, "must be a DNS name, not an IP address")
        elif host and not re.fullmatch(rf"(\*\.)?{SUBDOMAIN}", host):
            yield Cause.value(field, host, NOT_SUBDOMAIN)


def _replicated(spec: Object) -> Iterator[Cause]:
    if spec["replicas"] < 0:
        yield Cause.value("spec.replicas", spec["replicas"], "must be greater than or equal to 0")
    yield from _pods_of_template(spec)


def _job(spec: Object) -> Iterator[Cause]:
    for key in COUNTS:
        if spec.get(key, 0) < 0:
            yield Cause.value(f"spec.{key}", spec[key], "must be greater than or equal to 0")
    yield from _labels("spec.template.labels", spec["template"]["metadata"]["labels"])
    pod = spec["template"]["spec"]
    yield from check_containers("spec.template.spec", pod)
    yield from check_references("spec.template.spec", pod)
    if pod["restartPolicy"] not in ("OnFailure", "Never"):
        yield Cause.required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    for rule in spec.get("podFailurePolicy", {}).get("rules", []):
        if rule.get("action") not in ("Ignore", "FailJob") or not rule.get("onPodConditions"):
            text = "Forbidden: a Job of the local cluster only ignores or fails, and by conditions of its pod"
            yield Cause("spec.podFailurePolicy", text, "FieldValueForbidden")


def _indexes(meta: Object, spec: Object) -> Iterator[Cause]:
    """Check how many pods a Job has, and what only an Indexed Job can have."""
    indexed, pods = spec["completionMode"] == "Indexed", spec["completions"]
    last = f"{meta.get('name', '')}-{pods - 1}"
    if spec["completionMode"] not in ("Indexed", "NonIndexed"):
        supported = 'supported values: "NonIndexed", "Indexed"'
        text = f'Unsupported value: "{spec["completionMode"]}": {supported}'
        yield Cause("spec.completionMode", text, "FieldValueNotSupported")
    if indexed and (len(last) > 63 or not re.fullmatch(LABEL, last)):
        why = f"will not able to create pod with invalid DNS label: {last}"
        yield Cause.value("metadata.name", meta.get("name", ""), why)
    if "successPolicy" in spec and not indexed:
        yield Cause.value("spec.successPolicy", spec["successPolicy"], "requires indexed completion mode")
    if "successPolicy" in spec and not spec["successPolicy"].get("rules"):
        yield Cause.required("spec.successPolicy.rules", "at least one rules must be specified")
    most = MAX_INDEXES if indexed else 1
    possible = min(spec["parallelism"], pods) >= 0  # or else refused as in any cluster
    if possible and (spec["parallelism"] != pods or not 1 <= pods <= most):
        text = f"Forbidden: a Job of the local cluster has one pod, or up to {MAX_INDEXES} with an index each"
        yield Cause("spec", text, "FieldValueForbidden")


def _stateful_set(spec: Object) -> Iterator[Cause]:
    claims = [{"name": each["metadata"]["name"]} for each in spec.get("volumeClaimTemplates", [])]
    yield from _pods_of_template(spec, claims)
    if not 0 <= spec["replicas"] <= 1:
        text = "Forbidden: a StatefulSet of the local cluster has up to one pod"
        yield Cause("spec.replicas", text, "FieldValueForbidden")


def _pods_of_template(spec: Object, claims: Sequence[Object] = ()) -> Iterator[Cause]:
    labels, pod = spec["template"]["metadata"]["labels"], spec["template"]["spec"]
    yield from _labels("spec.template.labels", labels)
    with_claims = {**pod, "volumes": [*pod.get("volumes", []), *claims]}
    yield from check_containers("spec.template.spec", with_claims)
    wanted = spec.get("selector", {}).get("matchLabels", {})
    if not wanted or not wanted.items() <= labels.items():
        shown = f"Invalid value: {labels}: `selector` does not match template `labels`"
        yield Cause("spec.template.metadata.labels", shown)
    if pod["restartPolicy"] != "Always":
        text = f'Unsupported value: "{pod["restartPolicy"]}": supported values: "Always"'
        yield Cause("spec.template.spec.restartPolicy", text, "FieldValueNotSupported")


def _changed(kind: Kind, old: Object, new: Object) -> Iterator[Cause]:
    """Check that no spec changes, except by binding a pod, and by suspending or resuming a Job."""
    was, now = old.get("spec", {}), new.get("spec", {})
    bound = {**was, "nodeName": now.get("nodeName")} if kind.name == "Pod" and "nodeName" not in was else was
    if kind.name == "Job":
        bound = {**was, "suspend": now.get("suspend")}  # as Kueue does
    fixed = [key for key in was.keys() | now.keys() if key not in SCALED and was.get(key) != now.get(key)]
    if kind.name == "StatefulSet" and fixed:
        text = (
            "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', "
            "'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' "
            "and 'minReadySeconds' are forbidden"
        )
        yield Cause("spec", text, "FieldValueForbidden")
    if kind.name in REPLICATED and (was["template"], was["selector"]) != (now["template"], now["selector"]):
        text = f"Forbidden: the local cluster changes no template and selector of a {kind.name}"
        yield Cause("spec.template", text, "FieldValueForbidden")
    if kind.name in SPECS and now != was:
        yield Cause("spec", f"Invalid value: {now}: field is immutable")
    if kind.name in ("Pod", "Job") and now not in (was, bound):
        text = f"Forbidden: the local cluster changes no spec of a {kind.name}"
        yield Cause("spec", text, "FieldValueForbidden")
