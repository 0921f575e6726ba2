"""A trial template: its placeholders, the object it renders to, and the real webhook's validation.

Katib replaces `${trialParameters.x}` in the template's JSON text: a value with a quote breaks the object or
becomes part of it. A batch/v1 Job passes through Go's struct, which drops unknown and empty fields, and false
ones without a pointer; other kinds aren't checked. Only the trial's name can be referenced here, and only
these kinds run, which the stock katib-config of v0.19 has among its trialResources.
"""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from local.kubernetes.apiserver.kinds import KINDS, Object, Refused
from local.kubernetes.apiserver.schema import Decoding

Rule = tuple[object, str]  # the condition, and its error message
PATH = "spec.trialTemplate"
TRIAL_NAME = "${trialSpec.Name}"
TRIAL_KINDS = {
    "Job": "batch/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
}
PLACEHOLDER = re.compile(r"\$\{trialParameters\..+?\}")
NAMELESS = "name and reference must be specified and name must not contain '{' or '}'"
# Booleans that Go leaves out when false, and maps, in which it keeps what is empty.
PLAIN = {"readOnly", "hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty"}
MAPS = {"labels", "annotations", "nodeSelector"}
UNUSED = "unable to find parameter from ParameterAssignment in TrialParameters"


class ReconcileError(Exception):
    """A controller's error, which shows only in an Event."""


def invalid(path: str, value: Any, why: str) -> str:
    return f"{path}: Invalid value: {json.dumps(value, separators=(',', ':'))}: {why}"


def required(path: str, why: str = "must be specified") -> str:
    return f"{path}: Required value: {why}"


def fill(experiment: Object, trial: str, assignments: list[Object]) -> Object:
    """Render the object of one trial. Raises ReconcileError with the real message [01-events-q-quote]."""
    template, namespace = experiment["spec"]["trialTemplate"], experiment["metadata"]["namespace"]
    values = {TRIAL_NAME: trial} | {one["name"]: one["value"] for one in assignments}
    used = [one["reference"] for one in template["trialParameters"] if one["reference"] != TRIAL_NAME]
    if len(used) != len(assignments):
        shown = _structs(assignments, "name", "value")
        count = f"non-meta trial parameter count: {len(used)}"
        raise ReconcileError(f"{UNUSED}: parameter assignments: {shown}, {count}")
    text = _text(template["trialSpec"])
    for parameter in template["trialParameters"]:
        text = text.replace(f"${{trialParameters.{parameter['name']}}}", values[parameter["reference"]])
    try:
        run: Object = json.loads(text)
    except ValueError as error:
        raise ReconcileError(f"failed to convert string to unstructured: {error}") from error
    return {**run, "metadata": {**run.get("metadata", {}), "name": trial, "namespace": namespace}}


def template_rules(spec: Object) -> Iterator[Rule]:
    template = spec.get("trialTemplate")
    if template is None:
        yield True, required(PATH)
        return
    conditions = template.get("successCondition") and template.get("failureCondition")
    yield not template.get("primaryContainerName"), required(f"{PATH}.primaryContainerName")
    yield not conditions, required(PATH, "successCondition and failureCondition must be specified")
    if template.get("trialParameters") is None:
        yield True, required(f"{PATH}.trialParameters")
    elif template.get("trialSpec") is None:
        why = f"{PATH}.trialSpec or {PATH}.configMap must be specified"
        yield True, required(f"{PATH}.TrialSource", why)
    else:
        yield from _placeholder_rules(template, spec.get("parameters", []))


def _placeholder_rules(template: Object, declared: list[Object]) -> Iterator[Rule]:
    """Return the first error of each parameter, as the real webhook does."""
    text, parameters = _text(template["trialSpec"]), template["trialParameters"]
    shown = _structs(parameters, "name", "description", "reference")
    known = [TRIAL_NAME, *(one.get("name") for one in declared)]
    seen: set[tuple[str, str]] = set()
    for index, parameter in enumerate(parameters):
        path = f"{PATH}.trialParameters[{index}]"
        fields = [(key, parameter.get(key, "")) for key in ("name", "reference")]
        (_, name), (_, reference) = fields
        if not name or not reference or "{" in name or "}" in name:
            yield True, invalid(path, "", NAMELESS)
        elif again := [field for field in fields if field in seen]:
            key, value = again[0]
            why = f"parameter {key} {value} can't be duplicated in {PATH}.trialParameters: {shown}"
            yield True, invalid(f"{path}.{key}", value, why)
        else:
            seen.update(fields)
            why = f"parameter reference {reference} does not exist in spec.parameters: {_go(declared)}"
            yield declared and reference not in known, invalid(f"{path}.reference", reference, why)
            placeholder = f"${{trialParameters.{name}}}"
            if placeholder not in text:
                why = f"parameter name: {name} in spec.trialParameters not found in {PATH}: {text}"
                yield True, invalid(f"{path}.name", name, why)
                return
            text = text.replace(placeholder, "test-value")
    left = PLACEHOLDER.findall(text)
    why = f"parameters: {_go(left)} in {PATH} not found in spec.trialParameters: {shown}"
    yield left, invalid(PATH, "", why)
    yield from _object_rules(text)


def _object_rules(text: str) -> Iterator[Rule]:
    run = json.loads(text)
    meta = run.get("metadata", {})
    why = f"metadata.name and metadata.namespace in {PATH} must be omitted"
    yield meta.get("name") or meta.get("namespace"), invalid(PATH, "", why)
    nameless = not (run.get("apiVersion") and run.get("kind"))
    yield nameless, required(PATH, f"APIVersion and Kind in {PATH} must be specified")
    known = TRIAL_KINDS.get(run.get("kind", "")) == run.get("apiVersion")
    problem = "" if known else "the local Katib runs Jobs, PyTorchJobs, and TrainJobs only"
    if known and run["kind"] == "Job":
        problem = _job_problem(text)
    yield not nameless and problem, invalid(PATH, "", f"invalid {PATH}: {problem}")


@lru_cache(maxsize=100)
def _job_problem(text: str) -> str:
    run = json.loads(text)
    try:
        kept = Decoding(KINDS["Job"]).read(run)
    except Refused as refused:
        return f"unable to convert spec.TrialTemplate: {_go(run)} to Job: {refused}"
    for path, value in _lost(run, kept, ""):
        return f"unable to convert: {path} - {_go(value)} to Job, converted template: {_text(kept).strip()}"
    return ""


def _lost(before: Any, after: Any, path: str) -> Iterator[tuple[str, Any]]:
    for key, value in before.items() if isinstance(before, dict) else enumerate(before):
        lost = value in (None, "", []) or (value is False and key in PLAIN) or _rewritten(key, value)
        if lost or (isinstance(before, dict) and key not in after):
            yield f"{path}/{key}", value
        elif key in MAPS:
            continue
        elif isinstance(value, dict | list):
            yield from _lost(value, after[key], f"{path}/{key}")


def _rewritten(key: Any, value: Any) -> bool:
    """Return whether Go writes a quantity outside `resources` differently: 1024Mi as 1Gi."""
    found = re.fullmatch(r"(\d+)([KMGT]i)", value) if key == "sizeLimit" and isinstance(value, str) else None
    return bool(found and int(found[1]) % 1024 == 0)


def _text(template: Object) -> str:
    return json.dumps(template, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"


def _go(value: Any) -> str:
    """Format as Go's %v does."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_go, value))}]"
    return "<nil>" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _structs(values: list[Object], *fields: str) -> str:
    return _go([f"{{{' '.join(one.get(field, '') for field in fields)}}}" for one in values])
