"""Plans that Katib would reject late or never answer are rejected before a build; all others pass.

The real texts are the local Katib's, recorded or from Katib's source.
"""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.request import SweepRequest
from bot.core.space import ALGORITHMS, AUTO
from bot.platform.config.limits import Limits
from bot.sweep.launch.plan import plan
from bot.sweep.spaces.space import parse_space
from local.katib import Katib
from local.katib.algorithm_validation import objection
from local.katib.suggestions import Suggestions
from local.kubernetes.apiserver.kinds import Refused, clone
from local.kubernetes.apiserver.store import Store
from tests.bot.factories import ORDER, SETTINGS
from tests.bot.sweep.spaces.katib_models import faults
from tests.cases import cases

REQUEST = SweepRequest(branch="main", space="lr")
FOREIGN = Path(__file__).parents[4] / "examples" / "sweep-files" / "sweeps"
SOURCES = ("tensorboard", "stdout", "{from: file, path: /logs/metrics.txt}", "push")
OBJECTIVE = "objective: {metric: loss, goal: minimize, target: 0.1, additional: [acc], strategy: latest}\n"
PARAMETERS = {
    "grid": "{lr: {min: 0.1, max: 0.5, step: 0.1}, n: {min: 1, max: 4}, opt: [adam, sgd], epochs: 3}",
    "bayesianoptimization": "{lr: {min: 1e-4, max: 1e-1, scale: log}, n: {min: 1, max: 4}, opt: [a, b]}",
    "cmaes": "{lr: {min: 0.1, max: 0.5}, net.n: {min: 1, max: 4}}",
    "sobol": "{lr: {min: 0.1, max: 0.5}, net: {opt: [adam, sgd]}}",
}
OTHER = "{lr: {min: 1e-4, max: 1e-1, scale: log}, net: {n: {min: 1, max: 4}}, opt: [adam, sgd], use: [true]}"
BASE = f"command: python t.py\n{OBJECTIVE}"


def parsed(text, request=REQUEST):
    return parse_space(text, "sweeps/lr.yaml", request, Limits())


def planned(space):
    return plan(replace(ORDER, space=space), SETTINGS).experiment


def admitted(experiment):
    """Create it where Katib's webhook and services answer; return the first suggestion. Raises Refused.

    What is admitted is also what the models of `kubeflow-katib` describe.
    """
    store = Store()
    Katib(store)
    labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
    namespace = {"metadata": {"name": "sweeps", "labels": labels}}
    store.create({"apiVersion": "v1", "kind": "Namespace", **namespace})
    made = store.create(experiment)
    if (why := objection(made["spec"])) is not None:
        raise AssertionError(why)
    assert list(faults(experiment)) == []
    [found] = Suggestions().next({"metadata": {"uid": "u"}}, made, [], 1)
    return found["parameterAssignments"]


@cases(("source", "style"), [*itertools.product(SOURCES, FlagStyle)])
@cases("algorithm", [each for each in ALGORITHMS if each != AUTO])
def test_plan_of_every_algorithm_source_and_style_passes_katibs_webhook_and_service(algorithm, source, style):
    parameters = PARAMETERS.get(algorithm, OTHER)
    more = f"metrics: {source}\nflags: {style.value!r}\nparameters: {parameters}\n"
    space = parsed(f"{BASE}algorithm: {algorithm}\n{more}")
    assert {one["name"] for one in admitted(planned(space))} == {one.name for one in space.parameters}


@pytest.mark.parametrize("name", ["katib", "launch", "wandb"])
def test_plan_of_each_foreign_file_passes_katibs_webhook_and_service(name):
    request = replace(REQUEST, cmd="python t.py") if name == "launch" else REQUEST
    admitted(planned(parsed((FOREIGN / f"{name}.yaml").read_text(), request)))


def a_plan(algorithm="random", parameters=OTHER):
    return planned(parsed(f"{BASE}algorithm: {algorithm}\nparameters: {parameters}\n"))


def test_models_accept_a_plan_and_report_unknown_keys_and_other_types():
    found = a_plan()
    found["spec"] |= {"maxTrialCount": "3", "resume": "Never", "parameters": [{"name": 1}]}
    assert list(faults(found)) == [
        "experiment.spec.maxTrialCount isn't int",
        "experiment.spec.parameters[0].name isn't str",
        "experiment.spec.resume is unknown",
    ]
    admitted(a_plan())


def settings(name, **values):
    found = [{"name": key, "value": value} for key, value in values.items()]
    return {"algorithm": {"algorithmName": name, "algorithmSettings": found}}


LIST = {"name": "a", "parameterType": "categorical", "feasibleSpace": {"list": ["x"]}}
RULES = [
    # (the webhook's message, the spec that causes it, the same in a space file, Sweepbot's message)
    (
        "spec.maxTrialCount: Invalid value: 0: must be greater than 0",
        {"maxTrialCount": 0},
        "trials: {max: 0}",
        "trials.max: must be at least 1; got 0",
    ),
    (
        "spec.parallelTrialCount: Invalid value: 0: must be greater than 0",
        {"parallelTrialCount": 0},
        "trials: {parallel: 0}",
        "trials.parallel: must be at least 1; got 0",
    ),
    (
        "spec.maxFailedTrialCount: Invalid value: -1: should not be less than 0",
        {"maxFailedTrialCount": -1},
        "trials: {max_failed: -1}",
        "trials.max_failed: must be at least 0; got -1",
    ),
    (
        "spec.maxFailedTrialCount: Invalid value: 99: should be less than or equal to spec.maxTrialCount",
        {"maxFailedTrialCount": 99},
        "trials: {max: 2, max_failed: 3}",
        "trials.max_failed: can't exceed the number of trials (2); got 3",
    ),
    (
        "spec.parallelTrialCount: Invalid value: 99: should be less than or equal to spec.maxTrialCount",
        {"parallelTrialCount": 99},
        "trials: {max: 2, parallel: 3}",
        "trials.parallel: can't exceed the number of trials (2); got 3",
    ),
    (
        "should not contain spec.objective.objectiveMetricName",
        {"objective": {"type": "minimize", "objectiveMetricName": "a", "additionalMetricNames": ["a"]}},
        "objective: {metric: a, goal: minimize, additional: [a]}",
        "is the objective's metric",
    ),
    (
        "must be minimize or maximize",
        {"objective": {"type": "up", "objectiveMetricName": "a"}},
        "objective: {metric: a, goal: up}",
        'objective.goal: must be minimize or maximize; got "up"',
    ),
    (
        "spec.objective.objectiveMetricName: Required value: must be specified",
        {"objective": {"type": "minimize"}},
        "objective: {goal: minimize}",
        "objective: missing key: metric",
    ),
    (
        "failed to find suggestion config for algorithm: best",
        {"algorithm": {"algorithmName": "best"}},
        "algorithm: best",
        'multivariate-tpe; got "best"',
    ),
    (
        "feasibleSpace.max or feasibleSpace.min must be specified",
        {"parameters": [{"name": "a", "parameterType": "double", "feasibleSpace": {"max": "1"}}]},
        "parameters: {a: {max: 1}}",
        "parameters.a: missing key: min",
    ),
    (
        "file path where metrics file exists is required",
        {
            "metricsCollectorSpec": {
                "collector": {"kind": "File"},
                "source": {"fileSystemPath": {"kind": "File", "path": "m.txt", "format": "TEXT"}},
            }
        },
        "metrics: {from: file, path: m.txt}",
        "metrics.path: must be an absolute path",
    ),
    (
        "failed to find early stopping config for algorithm: best",
        {"earlyStopping": {"algorithmName": "best"}},
        "early_stopping: best",
        "early_stopping: best is unknown; use asha, median, or medianstop",
    ),
    (
        "invalid metrics collector kind: Print",
        {"metricsCollectorSpec": {"collector": {"kind": "Print"}}},
        "metrics: print",
        'metrics: must be tensorboard, stdout, file, or push; got "print"',
    ),
]
SERVICE_RULES = [
    # (the service's message, algorithm and settings, parameters, Sweepbot's message)
    (
        "step is nil; For discrete search space, all parameters must include step",
        settings("grid"),
        "{lr: {min: 0.1, max: 0.5}}",
        "algorithm: grid",
        "grid needs a step here, or a list of values",
    ),
    (
        "CMA-ES only supports two or more dimensional continuous search space.",
        settings("cmaes"),
        "{lr: {min: 0.1, max: 0.5}}",
        "algorithm: cmaes",
        "cmaes needs at least two ranges of numbers; use tpe",
    ),
    (
        "gamma should be in the range of (0, 1)",
        settings("tpe", gamma="2"),
        "{lr: {min: 0.1, max: 0.5}}",
        "algorithm: {name: tpe, gamma: 2}",
        "algorithm.gamma: must be above 0 and below 1; got 2",
    ),
    (
        "prior_weight should be great than zero",
        settings("tpe", prior_weight="0"),
        "{lr: {min: 0.1, max: 0.5}}",
        "algorithm: {name: tpe, prior_weight: 0}",
        "algorithm.prior_weight: must be above 0; got 0",
    ),
    (
        "n_EI_candidates should be great than zero",
        settings("tpe", n_EI_candidates="0"),
        "{lr: {min: 0.1, max: 0.5}}",
        "algorithm: {name: tpe, n_EI_candidates: 0}",
        "algorithm.n_EI_candidates: must be at least 1; got 0",
    ),
    (
        "random_state should be great or equal than zero",
        settings("random", random_state="-1"),
        "{lr: {min: 0.1, max: 0.5}}",
        "algorithm: {name: random, random_state: -1}",
        "algorithm.random_state: must be from 0 to 4,294,967,295; got -1",
    ),
    (
        "unknown setting speed for algorithm random",
        settings("random", speed="1"),
        "{lr: {min: 0.1, max: 0.5}}",
        "algorithm: {name: random, speed: 1}",
        "random has no such setting",
    ),
    (
        "base_estimator NN is not supported in Bayesian optimization",
        settings("bayesianoptimization", base_estimator="NN"),
        "{lr: {min: 0.1, max: 0.5, scale: log}}",
        "algorithm: {name: bayesianoptimization, base_estimator: NN}",
        'algorithm.base_estimator: must be GP, RF, ET, or GBRT; got "NN"',
    ),
    (
        "n_startup_trials should be greate or equal than zero",
        settings("multivariate-tpe", n_startup_trials="-1"),
        "{lr: {min: 0.1, max: 0.5}}",
        "algorithm: {name: multivariate-tpe, n_startup_trials: -1}",
        "algorithm.n_startup_trials: must be at least 0; got -1",
    ),
]


def sentence(text):
    with pytest.raises(UserError) as error:
        parsed(text)
    return str(error.value)


def broken(line):
    """Return a space file with this line instead of the one with its key."""
    key = line.partition(":")[0]
    lines = [*BASE.splitlines(), f"parameters: {OTHER}"]
    return "\n".join([one for one in lines if not one.startswith(f"{key}:")] + [line]) + "\n"


@cases(("real", "spec", "line", "ours"), RULES)
def test_webhook_rule_is_reported_with_line_and_key(real, spec, line, ours):
    experiment = clone(a_plan())
    experiment["spec"] |= spec
    with pytest.raises(Refused) as refused:
        admitted(experiment)
    assert real in str(refused.value)
    message = sentence(broken(line))
    assert message.startswith("sweeps/lr.yaml:3: " if "objective" in line else "sweeps/lr.yaml:")
    assert ours in message


@cases(("real", "spec", "parameters", "line", "ours"), SERVICE_RULES)
def test_algorithm_service_rule_is_reported_before_the_build(real, spec, parameters, line, ours):
    experiment = clone(a_plan("random", parameters))
    experiment["spec"] |= spec
    assert real in (objection(experiment["spec"]) or "")
    assert ours in sentence(f"{BASE}{line}\nparameters: {parameters}\n")


@pytest.mark.parametrize("name", ["hyperband", "pbt", "enas", "darts"])
def test_algorithms_that_fail_in_katib_are_rejected_with_the_reason_and_an_alternative(name):
    message = sentence(f"{BASE}algorithm: {name}\nparameters: {OTHER}\n")
    assert message.startswith(f"sweeps/lr.yaml:3: algorithm: {name} ")
    assert "use tpe" in message
