"""Algorithms, their spaces and settings; errors have file, line, key, and fix."""

from dataclasses import replace

import pytest

from bot.core.space import ALGORITHMS
from bot.sweep.spaces.space import parse_space
from tests.bot.sweep.spaces.test_space import FILE, LIMITS, REQUEST, complaint, space
from tests.cases import cases

TWO = "{a: {min: 0.1, max: 0.9}, b: {min: 1, max: 8}}"


def text(algorithm: str, parameters: str = "{lr: [1, 2]}") -> str:
    return (
        "command: x\nobjective: {metric: m, goal: minimize}\n"
        f"algorithm: {algorithm}\ntrials: {{max: 2}}\nparameters: {parameters}\n"
    )


@cases(
    ("algorithm", "settings"),
    [
        ("tpe", {}),
        ("{name: random, random_state: 7}", {"random_state": "7"}),
        ("{name: grid, random_state: 0}", {"random_state": "0"}),
        (
            "{name: tpe, gamma: 0.25, prior_weight: 1, n_EI_candidates: 24, random_state: 1}",
            {"gamma": "0.25", "prior_weight": "1", "n_EI_candidates": "24", "random_state": "1"},
        ),
        (
            "{name: multivariate-tpe, n_startup_trials: 5, n_ei_candidates: 24}",
            {"n_startup_trials": "5", "n_ei_candidates": "24"},
        ),
        (
            "{name: bayesianoptimization, base_estimator: RF, n_initial_points: 5, acq_func: EI}",
            {"base_estimator": "RF", "n_initial_points": "5", "acq_func": "EI"},
        ),
        ("{name: bayesianoptimization, acq_optimizer: sampling}", {"acq_optimizer": "sampling"}),
        ("{name: sobol}", {}),
    ],
)
def test_algorithm_is_a_name_or_a_name_with_settings(algorithm: str, settings: dict[str, str]) -> None:
    found = space(text(algorithm))
    assert found.algorithm in algorithm
    assert found.settings == settings


def test_cmaes_accepts_settings_and_rejects_a_single_parameter() -> None:
    found = space(text("{name: cmaes, sigma: 0.1, restart_strategy: none}", TWO))
    assert found.settings == {"sigma": "0.1", "restart_strategy": "none"}
    one = text("cmaes", "{a: {min: 0.1, max: 0.9}}")
    assert complaint(one) == f"{FILE}:5: parameters: cmaes needs at least two ranges of numbers; use tpe"
    assert space(text("cmaes", TWO)).settings == {}


SEED = "algorithm.random_state"
NAMES = f"{', '.join(ALGORITHMS[:-1])}, or {ALGORITHMS[-1]}"
RESTARTS = "algorithm.restart_strategy: must be none, ipop, or bipop"


@cases(
    ("algorithm", "reported"),
    [
        (
            "tpee",
            f'algorithm: must be {NAMES}; got "tpee". Did you mean tpe?',
        ),
        (
            "bayesian",
            f'algorithm: must be {NAMES}; got "bayesian". Did you mean bayesianoptimization?',
        ),
        (
            "pbt",
            (
                "algorithm: pbt in Katib rejects its own setting resample_probability"
                " and loses its state when its pod restarts; use tpe"
            ),
        ),
        ("{nam: tpe}", "algorithm: missing key: name"),
        (
            "{name: tpee}",
            f'algorithm.name: must be {NAMES}; got "tpee". Did you mean tpe?',
        ),
        ("{name: 3}", "algorithm.name: must be text; got a number. Put it in quotes"),
        ("[tpe]", "algorithm: must be text; got a list"),
        (
            "{name: tpe, n_ei_candidates: 24}",
            "algorithm.n_ei_candidates: tpe has no such setting. Did you mean n_EI_candidates?",
        ),
        (
            "{name: random, gamma: 0.2}",
            "algorithm.gamma: random has no such setting. Available: random_state.",
        ),
        (
            "{name: sobol, random_state: 1}",
            f"{SEED}: sobol has no settings: it always tries the same points in the same order",
        ),
        ("{name: tpe, gamma: 1}", "algorithm.gamma: must be above 0 and below 1; got 1"),
        ("{name: tpe, gamma: high}", 'algorithm.gamma: must be a number; got "high"'),
        ("{name: tpe, prior_weight: 0}", "algorithm.prior_weight: must be above 0; got 0"),
        ("{name: tpe, n_EI_candidates: 0}", "algorithm.n_EI_candidates: must be at least 1; got 0"),
        ("{name: tpe, random_state: -1}", f"{SEED}: must be from 0 to 4,294,967,295; got -1"),
        ("{name: tpe, random_state: 4294967296}", f"{SEED}: must be from 0 to 4,294,967,295; got 4294967296"),
        ("{name: tpe, random_state: 1.5}", f"{SEED}: must be a whole number; got 1.5"),
        ("{name: tpe, random_state: '1'}", f'{SEED}: must be a number; got the text "1". Remove the quotes.'),
        (
            "{name: multivariate-tpe, n_startup_trials: -1}",
            "algorithm.n_startup_trials: must be at least 0; got -1",
        ),
        (
            "{name: bayesianoptimization, n_initial_points: 0}",
            "algorithm.n_initial_points: must be at least 1; got 0",
        ),
        (
            "{name: bayesianoptimization, base_estimator: SVM}",
            'algorithm.base_estimator: must be GP, RF, ET, or GBRT; got "SVM"',
        ),
        (
            "{name: bayesianoptimization, acq_func: EIps}",
            'algorithm.acq_func: must be gp_hedge, LCB, EI, or PI; got "EIps". Did you mean EI?',
        ),
        ("{name: cmaes, sigma: 0}", "algorithm.sigma: must be above 0; got 0"),
        (
            "{name: cmaes, restart_strategy: ipopp}",
            f'{RESTARTS}; got "ipopp". Did you mean ipop or bipop?',
        ),
    ],
)
def test_algorithm_unknown_name_or_setting_gets_a_suggestion(algorithm: str, reported: str) -> None:
    parameters = TWO if "cmaes" in algorithm else "{lr: [1, 2]}"
    assert complaint(text(algorithm, parameters)) == f"{FILE}:3: {reported}"


GOOD = [
    ("tpe", "{min: 0.1, max: 0.5, step: 0.1}"),
    ("tpe", "{min: 1e-4, max: 1, scale: log}"),
    ("multivariate-tpe", "{min: 0.05, max: 0.5, step: 0.1}"),
    ("multivariate-tpe", "{min: 1, max: 512, scale: log}"),
    ("bayesianoptimization", "{min: 1e-4, max: 0.1, scale: log}"),
    ("bayesianoptimization", "{min: 0, max: 8}"),
    ("bayesianoptimization", "[adam, sgd]"),
    ("sobol", "{min: -0.5, max: 0.5}"),
    ("sobol", "{min: 0.05, max: 0.25, step: 0.1}"),
    ("sobol", "[1, 2, 3]"),
]


@cases(("algorithm", "parameter"), GOOD)
def test_algorithm_accepts_parameters_that_it_searches_as_written(algorithm: str, parameter: str) -> None:
    assert space(text(algorithm, f"{{p: {parameter}}}")).algorithm == algorithm


LOG_ONLY = (
    "bayesianoptimization always searches decimals on a log scale: "
    "set scale: log, a min above 0, and no step, or use tpe"
)
STEPS = "tpe samples multiples of step: min and max must be multiples"
NO_LOG = "bayesianoptimization has no log scale for whole numbers"
AT_RANDOM = "cmaes only searches ranges of numbers and would sample these values at random"
BAD = [
    (
        "tpe",
        "{min: 0.05, max: 0.5, step: 0.1}",
        f"{STEPS} of 0.1, or use multivariate-tpe, which counts from min",
    ),
    ("tpe", "{min: 0, max: 1.0, scale: log}", "min must be above 0 on a log scale; got 0"),
    (
        "multivariate-tpe",
        "{min: 1e-12, max: 1e-3, scale: log}",
        "multivariate-tpe samples nothing below 1e-10 on a log scale; use tpe",
    ),
    ("bayesianoptimization", "{min: 0.1, max: 0.5}", LOG_ONLY),
    ("bayesianoptimization", "{min: 0.1, max: 0.5, step: 0.1}", LOG_ONLY),
    ("bayesianoptimization", "{min: 0, max: 0.5, scale: log}", "min must be above 0 on a log scale; got 0"),
    (
        "bayesianoptimization",
        "{min: 16, max: 512, scale: log}",
        f"{NO_LOG}; remove scale, list the values, or use tpe",
    ),
    (
        "bayesianoptimization",
        "{min: 0, max: 8, step: 2}",
        "bayesianoptimization ignores step; list the values, or use tpe",
    ),
    (
        "cmaes",
        "{min: 1e-4, max: 0.1, scale: log}",
        "cmaes ignores a log scale and would sample uniformly from 0.0001 to 0.1; use tpe",
    ),
    (
        "cmaes",
        "[adam, sgd]",
        f"{AT_RANDOM}; put one in command, or use tpe",
    ),
    (
        "cmaes",
        "{min: 0, max: 0.8, step: 0.3}",
        "cmaes can exceed max unless max - min is a multiple of step (0.3)",
    ),
    (
        "sobol",
        "{min: 1e-4, max: 0.1, scale: log}",
        "sobol ignores a log scale and would sample uniformly from 0.0001 to 0.1; use tpe",
    ),
    (
        "sobol",
        "{min: 1, max: 4}",
        "sobol never tries the max of a range of whole numbers; list the values, or use random",
    ),
    (
        "sobol",
        "{min: 0, max: 0.8, step: 0.3}",
        "sobol can exceed max unless max - min is a multiple of step (0.3)",
    ),
]


@cases(("algorithm", "parameter", "reported"), BAD)
def test_algorithm_rejects_parameters_that_it_would_search_differently(
    algorithm: str, parameter: str, reported: str
) -> None:
    lines = text(algorithm, f"\n  p: {parameter}\n  q: {{min: 0.1, max: 0.9}}\n  r: {{min: 1, max: 8}}")
    assert f"{FILE}:6: parameters.p: {reported}" in complaint(lines).splitlines()


@pytest.mark.parametrize(
    ("more", "parameters", "fits"),
    [
        ("", "{lr: [1, 2]}", False),
        ("", "{layers: {min: 1, max: 4}}", True),
        (", base_estimator: RF", "{layers: {min: 1, max: 4}}", False),
    ],
)
def test_bayesian_search_needs_a_range_and_a_gaussian_process(
    more: str, parameters: str, *, fits: bool
) -> None:
    lines = text(f"{{name: bayesianoptimization, acq_optimizer: lbfgs{more}}}", parameters)
    if fits:
        assert space(lines).settings["acq_optimizer"] == "lbfgs"
    else:
        reported = "acq_optimizer lbfgs needs base_estimator GP and a range of numbers; use auto"
        assert complaint(lines) == f"{FILE}:5: parameters: {reported}"


def test_algorithm_of_the_command_drops_the_files_settings_and_is_checked() -> None:
    lines = text("{name: tpe, gamma: 0.3}")
    found = [parse_space(lines, FILE, replace(REQUEST, algorithm=word), LIMITS) for word in ("random", "tpe")]
    assert [(one.algorithm, one.settings) for one in found] == [("random", {}), ("tpe", {"gamma": "0.3"})]
    reported = complaint(text("tpe", "{a: {min: 0.1, max: 0.9}}"), replace(REQUEST, algorithm="cmaes"))
    assert reported.endswith("cmaes needs at least two ranges of numbers; use tpe")
    assert all(len(f"{'x' * 40}-{algorithm}") <= 63 for algorithm in ALGORITHMS)
