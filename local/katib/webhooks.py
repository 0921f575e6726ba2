"""Katib's webhook on Experiments: defaults, then validation errors (HTTP 400 without a reason).

What the real one lets through is let through here: a minimum above the maximum, `min: "x"`, a parameter named
twice, no choices. What only the real one has (some algorithms, early stopping, ...) is refused.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from local.katib.algorithm_validation import ALGORITHMS
from local.katib.status import conditions_of, is_true
from local.katib.templates import Rule, invalid, required, template_rules
from local.kubernetes.apiserver.kinds import Object, Refused, refusal
from local.kubernetes.apiserver.store import Store

ELSEWHERE = ("hyperband", "pbt", "enas", "darts")  # in the real katib-config
TYPES = ("double", "int", "categorical")
DISTRIBUTIONS = ("uniform", "logUniform")
COUNTS = ("maxFailedTrialCount", "maxTrialCount", "parallelTrialCount")
INJECTION = "katib.kubeflow.org/metrics-collector-injection"
CONDITION = 'status.conditions.#(type=="{}")#|#(status=="True")#'
# As in Katib v0.19.0, pkg/apis/controller/experiments/v1beta1/experiment_defaults.go.
SUCCESS = {"Job": "Complete", "PyTorchJob": "Succeeded", "TrainJob": "Complete"}
PRIMARY = {
    "PyTorchJob": {"training.kubeflow.org/job-role": "master"},
    "TrainJob": {
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-completion-index": "0",
    },
}
NAME = (
    "name must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character (e.g. 'my-name', or 'abc-123', regex used for validation is "
    "'^[a-z]([-a-z0-9]*[a-z0-9])?)') and may not be longer than 40 characters. "
)
RESTARTABLE = (
    "Experiment can be restarted if it is in succeeded state by reaching max trials and "
    "spec.resumePolicy = LongRunning or spec.resumePolicy = FromVolume, when experiment is completed"
)
EDITABLE = "only spec.parallelTrialCount, spec.maxTrialCount and spec.maxFailedTrialCount are editable"
DIRECTORY = (
    "directory path where tensorflow event files exist is required by "
    ".spec.metricsCollectorSpec.source.fileSystemPath.path"
)
FIELDS = {
    "parameters",
    "objective",
    "algorithm",
    "trialTemplate",
    "metricsCollectorSpec",
    "resumePolicy",
    "earlyStopping",
    *COUNTS,
}
REAL = ("nasConfig",)
# Fields often written with the wrong JSON type: Go's struct, the path as its decoder names it, Go's type.
TYPED = {
    **{f"ExperimentSpec.spec.{count}": "int32" for count in COUNTS},
    **{
        f"FeasibleSpace.spec.parameters.feasibleSpace.{key}": "string"
        for key in ("min", "max", "step", "list")
    },
    "AlgorithmSetting.spec.algorithm.algorithmSettings.value": "string",
    "ObjectiveSpec.spec.objective.goal": "float64",
    "TrialTemplate.spec.trialTemplate.retain": "bool",
}
GO: dict[str, tuple[type, ...]] = {"int32": (int,), "float64": (int, float), "bool": (bool,)}
JSON = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


def denied(hook: str, why: str) -> Refused:
    return refusal(400, f'admission webhook "{hook}.katib.kubeflow.org" denied the request: {why}')


def unreachable(hook: str, path: str) -> Refused:
    """Return the API server's error while Katib's controller is down [14-webhook-down-500]."""
    call = f'Post "https://katib-controller.kubeflow.svc:443/{path}?timeout=10s"'
    why = f"failed to call webhook: {call}: dial tcp 10.96.37.20:443: connect: connection refused"
    name = f'failed calling webhook "{hook}.katib.kubeflow.org"'
    return refusal(500, f"Internal error occurred: {name}: {why}", "InternalError")


def is_labelled(store: Store, namespace: str) -> bool:
    found = store.find("Namespace", "", namespace) or {"metadata": {}}
    return bool(found["metadata"].get("labels", {}).get(INJECTION) == "enabled")


def restartable(exp: Object) -> bool:
    reasons = [one.get("reason") for one in conditions_of(exp, "Succeeded")]
    return reasons == ["ExperimentMaxTrialsReached"] and exp["spec"]["resumePolicy"] != "Never"


def admit(store: Store, experiment: Object) -> Object:
    """Return the Experiment with its defaults. Raises Refused."""
    meta, new = experiment["metadata"], {**experiment}
    for struct, _, path in (name.partition(".") for name in TYPED):
        go = TYPED[f"{struct}.{path}"]
        for value in _leaves(new, path.split(".")):
            if not isinstance(value, GO.get(go, (str,))) or isinstance(value, bool) != (go == "bool"):
                field = f"into Go struct field {struct}.{path} of type {go}"
                raise denied("defaulter.experiment", f"json: cannot unmarshal {JSON[type(value)]} {field}")
    for field in REAL:
        if next(_leaves(new, ["spec", *field.split(".")]), None):
            raise denied("validator.experiment", f"the local Katib has no spec.{field}")
    new["spec"] = {key: value for key, value in new.get("spec", {}).items() if key in FIELDS}
    _set_defaults(new["spec"])
    if not is_labelled(store, meta["namespace"]):
        place = f'Cannot create the Experiment "{meta["name"]}" in namespace "{meta["namespace"]}"'
        raise denied("validator.experiment", f'{place}: the namespace lacks label "{INJECTION}: enabled"')
    old = store.find("Experiment", meta["namespace"], meta["name"]) if "uid" in meta else None
    if messages := list(dict.fromkeys(text for wrong, text in _rules(store, new, old) if wrong)):
        raise denied(
            "validator.experiment", messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
        )
    return new


def _leaves(value: Any, path: list[str]) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _leaves(one, path)
    elif path and isinstance(value, dict):
        yield from _leaves(value.get(path[0]), path[1:])
    elif value is not None:
        yield value


def _set_defaults(spec: Object) -> None:
    spec.setdefault("parallelTrialCount", 3)
    spec.setdefault("resumePolicy", "Never")
    if objective := spec.get("objective"):
        value = {"minimize": "min", "maximize": "max"}.get(objective.get("type"), "latest")
        strategies = objective.setdefault("metricStrategies", [])
        names = [objective.get("objectiveMetricName", ""), *objective.get("additionalMetricNames", [])]
        known = {one.get("name") for one in strategies}
        strategies += [{"name": name, "value": value} for name in names if name not in known]
    template = spec.get("trialTemplate") or {}
    kind = (template.get("trialSpec") or {}).get("kind")
    if kind in SUCCESS:
        template.setdefault("successCondition", CONDITION.format(SUCCESS[kind]))
        template.setdefault("failureCondition", CONDITION.format("Failed"))
    if kind in PRIMARY and not template.get("primaryPodLabels"):
        template["primaryPodLabels"] = dict(PRIMARY[kind])
    spec.setdefault("metricsCollectorSpec", {"collector": {"kind": "StdOut"}})
    for parameter in spec.get("parameters", []):
        parameter.setdefault("feasibleSpace", {}).setdefault("distribution", "uniform")


def _registered(store: Store) -> set[str]:
    """Return the algorithms in katib-config; Katib reads it for each experiment."""
    found = store.get("ConfigMap", "kubeflow", "katib-config") or {"data": {}}
    config = yaml.safe_load(found["data"].get("katib-config.yaml", "")) or {}
    return {each["algorithmName"] for each in config.get("runtime", {}).get("suggestions", [])}


def _rules(store: Store, new: Object, old: Object | None) -> Iterator[Rule]:
    spec, name = new["spec"], new["metadata"]["name"]
    yield not re.match("[a-z]", name) or len(name) > 40, invalid("metadata.name", name, NAME)
    yield from _count_rules(spec)
    if old and spec != old["spec"]:
        yield from _edit_rules(spec, old)
    objective = list(_objective_rules(spec.get("objective")))
    yield from objective
    if any(wrong for wrong, _ in objective):
        return
    yield "algorithm" not in spec, required("spec.algorithm")
    if "algorithm" in spec:
        path, chosen = "spec.algorithm.algorithmName", spec["algorithm"].get("algorithmName", "")
        yield not chosen, required(path)
        why = f"failed to find suggestion config for algorithm: {chosen} in ConfigMap: katib-config"
        text = f"unable to get Suggestion config data for algorithm {chosen}: {why}"
        yield chosen in ELSEWHERE, f"the local Katib has no algorithm {chosen}"
        known = chosen in (*ALGORITHMS, *ELSEWHERE) or chosen in _registered(store)
        yield not known, invalid(path, chosen, text)
    if "earlyStopping" in spec:
        path, chosen = "spec.earlyStopping.algorithmName", spec["earlyStopping"].get("algorithmName", "")
        why = f"failed to find early stopping config for algorithm: {chosen} in ConfigMap: katib-config"
        text = f"unable to get EarlyStopping config data for algorithm {chosen}: {why}"
        yield not chosen, required(path)
        yield chosen != "medianstop", invalid(path, chosen, text)
    policy = spec["resumePolicy"]
    wrong = policy not in ("Never", "LongRunning")
    yield wrong, invalid("spec.resumePolicy", policy, "invalid ResumePolicyType")
    yield from template_rules(spec)
    nothing = not spec.get("parameters")
    yield nothing, required("spec", "spec.parameters or spec.nasConfig must be specified")
    for index, parameter in enumerate(spec.get("parameters", [])):
        yield from _parameter_rules(f"spec.parameters[{index}]", parameter)
    yield from _collector_rules("spec.metricsCollectorSpec", spec["metricsCollectorSpec"])


def _count_rules(spec: Object) -> Iterator[Rule]:
    failed, most, parallel = (spec.get(count) for count in COUNTS)
    yield (failed or 0) < 0, invalid("spec.maxFailedTrialCount", failed, "should not be less than 0")
    for field, value in (("maxTrialCount", most), ("parallelTrialCount", parallel)):
        yield value is not None and value <= 0, invalid(f"spec.{field}", value, "must be greater than 0")
    for field, value in (("maxFailedTrialCount", failed), ("parallelTrialCount", parallel)):
        above = value is not None and most is not None and value > most
        yield above, invalid(f"spec.{field}", value, "should be less than or equal to spec.maxTrialCount")


def _edit_rules(spec: Object, old: Object) -> Iterator[Rule]:
    """Judge a changed spec only: Katib removes its finalizer from an ended experiment that is deleted."""
    ended = is_true(old, "Succeeded", "Failed") and not restartable(old)
    yield ended, invalid("spec.resumePolicy", spec["resumePolicy"], RESTARTABLE)
    most = spec.get("maxTrialCount")
    used_up = most is not None and most <= old.get("status", {}).get("trials", 0)
    yield used_up, invalid("spec.maxTrialCount", most, "must be greater than status.trials count")
    lowered = 0 < spec["parallelTrialCount"] < old["spec"]["parallelTrialCount"]
    yield lowered, "the local Katib refuses to delete trials, as a lower spec.parallelTrialCount would do"
    others = (spec.keys() | old["spec"].keys()) - set(COUNTS)
    yield any(spec.get(key) != old["spec"].get(key) for key in others), f"spec: Forbidden: {EDITABLE}"


def _objective_rules(objective: Object | None) -> Iterator[Rule]:
    path, given = "spec.objective", objective or {}
    yield objective is None, required(path)
    if objective is not None:
        type_ = given.get("type", "")
        wrong = type_ not in ("minimize", "maximize")
        yield wrong, invalid(f"{path}.type", type_, "must be minimize or maximize")
        yield not given.get("objectiveMetricName"), required(f"{path}.objectiveMetricName")
        more = given.get("additionalMetricNames", [])
        why = "should not contain spec.objective.objectiveMetricName"
        again = given.get("objectiveMetricName") in more
        yield again, invalid(f"{path}.additionalMetricNames", more, why)


def _parameter_rules(path: str, parameter: Object) -> Iterator[Rule]:
    kind, space = parameter.get("parameterType", ""), parameter["feasibleSpace"]
    how, of_kind = space["distribution"], f"supported for parameterType: {kind}"
    yield kind not in TYPES, invalid(f"{path}.parameterType", kind, f"parameterType: {kind} is not supported")
    path += ".feasibleSpace"
    why = f"distribution: {how} is not supported"
    yield how not in DISTRIBUTIONS, invalid(f"{path}.distribution", how, why)
    if kind in ("double", "int"):
        listed = space.get("list", [])
        yield listed, invalid(f"{path}.list", listed, f"feasibleSpace.list is not {of_kind}")
        why = f"feasibleSpace.max or feasibleSpace.min must be specified for parameterType: {kind}"
        yield not (space.get("max") and space.get("min")), required(f"{path}.max", why)
    elif kind == "categorical":
        wrong = any(space.get(key) for key in ("max", "min", "step"))
        yield wrong, invalid(path, space, f"feasibleSpace .max, .min and .step is not {of_kind}")


def _collector_rules(path: str, metrics_collector: Object) -> Iterator[Rule]:
    kind = metrics_collector["collector"].get("kind", "")
    known = kind in ("StdOut", "File", "TensorFlowEvent", "Push")
    yield not known, invalid(f"{path}.collector.kind", kind, f"invalid metrics collector kind: {kind}")
    if kind == "TensorFlowEvent":
        place = metrics_collector.get("source", {}).get("fileSystemPath", {})
        wrong = place.get("kind") != "Directory" or not place.get("path", "").startswith("/")
        yield wrong, required(f"{path}.source", DIRECTORY)
    if kind == "File":
        yield from _file_rules(f"{path}.source", metrics_collector.get("source", {}))


def _file_rules(path: str, source: Object) -> Iterator[Rule]:
    place, filters = source.get("fileSystemPath", {}), source.get("filter", {}).get("metricsFormat", [])
    wrong = place.get("kind") != "File" or not place.get("path", "").startswith("/")
    why = "file path where metrics file exists is required"
    yield wrong, required(f"{path}.fileSystemPath.path", why)
    why = "format of metrics file is required for metrics collector"
    yield place.get("format") not in ("TEXT", "JSON"), required(f"{path}.fileSystemPath.format", why)
    both = place.get("format") == "JSON" and "filter" in source
    yield both, invalid(f"{path}.filter", "", "filter must be nil when format of metrics file is json")
    for rule in filters:
        groups = re.match(r".*\(.*\).*\(.*\).*", rule)
        yield not groups, invalid(f"{path}.filter.metricsFormat", rule, "two top subexpressions are required")
