"""The local algorithm services: values inside the space, the ends of grids, and learning from results."""

import pytest

RANGE = {"min": "1", "max": "3"}


def parameter(kind, **space):
    return {"name": "lr", "parameterType": kind, "feasibleSpace": space}


def values(world):
    given = world.status("sweep", "Suggestion")["suggestions"]
    return [one["parameterAssignments"][0]["value"] for one in given]


async def search(world, one, count=20, algorithm="random"):
    counts = {"maxTrialCount": count, "parallelTrialCount": count, "maxFailedTrialCount": 1}
    await world.experiment(parameters=[one], algorithm={"algorithmName": algorithm}, **counts)


@pytest.mark.parametrize(
    ("one", "fits"),
    [
        (parameter("double", min="0.1", max="0.2"), lambda text: 0.1 <= float(text) <= 0.2),
        (
            parameter("double", min="0.00001", max="1", distribution="logUniform"),
            lambda text: 1e-5 <= float(text) <= 1,
        ),
        (parameter("int", **RANGE), lambda text: text in {"1", "2", "3"}),
        (parameter("int", min="1", max="100", distribution="logUniform"), str.isdecimal),
        (parameter("categorical", list=["sgd", "adam"]), lambda text: text in {"sgd", "adam"}),
    ],
)
async def test_random_samples_the_space(world, one, fits):
    await search(world, one)
    drawn = values(world)
    assert len(drawn) == 20
    assert len(set(drawn)) > 1
    assert all(fits(text) for text in drawn)


@pytest.mark.parametrize(
    ("one", "points"),
    [
        (parameter("int", **RANGE), ["1", "2", "3"]),
        (parameter("int", min="0", max="10", step="5"), ["0", "10", "5"]),
        (parameter("double", min="0", max="1", step="0.5"), ["0.0", "0.5", "1.0"]),
        (parameter("categorical", list=["a", "b"]), ["a", "b"]),
    ],
)
async def test_grid_yields_every_point_once(world, one, points):
    await search(world, one, count=len(points), algorithm="grid")
    assert sorted(values(world)) == points


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (parameter("int", **RANGE), "Max Trial Count: 20 > all possible search combinations: 3"),
        (parameter("double", min="0", max="1"), "all parameters must include step"),
    ],
)
async def test_grid_without_steps_fails_the_experiment(world, one, expected):
    await search(world, one, algorithm="grid")
    *_, end = world.status("sweep", "Suggestion")["conditions"]
    assert (end["type"], end["reason"]) == ("Failed", "SuggestionFailed")
    assert expected in end["message"]
    *_, end = world.status()["conditions"]
    assert (end["type"], end["reason"], end["message"]) == (
        "Failed",
        "ExperimentFailed",
        "Suggestion has failed",
    )
    assert world.store.list("Trial") == []


@pytest.mark.parametrize("one", [parameter("double", min="x", max="1"), parameter("categorical", list=[])])
async def test_invalid_space_is_reported_in_an_event_only(world, one):
    await search(world, one)
    assert world.conditions() == [("Created", "True", "ExperimentCreated")]
    assert world.events("sweep")[0][:2] == ("Warning", "ReconcileError")


LEARNING = ("tpe", "multivariate-tpe", "bayesianoptimization", "cmaes")
BOTH = [
    parameter("double", min="0.001", max="1"),
    parameter("int", min="1", max="8") | {"name": "layers"},
    parameter("categorical", list=["sgd", "adam"]) | {"name": "optimizer"},
]
LEAST = {"type": "minimize", "objectiveMetricName": "loss"}
REFUSED = "Validation failed: ValidateAlgorithmSettings Error: "


def chosen(algorithm, **settings):
    pairs = [{"name": name, "value": value} for name, value in settings.items()]
    return {"algorithmName": algorithm, "algorithmSettings": pairs}


async def learn(world, algorithm, name="sweep", count=24):
    """A whole search in which one more layer and a larger rate are always worse."""
    counts = {"maxTrialCount": count, "parallelTrialCount": 2, "maxFailedTrialCount": 1}
    template = world.recorded_experiment()["spec"]["trialTemplate"]
    names = [one["name"] for one in BOTH]
    template["trialParameters"] = [{"name": one, "reference": one} for one in names]
    container = template["trialSpec"]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": one, "value": f"${{trialParameters.{one}}}"} for one in names]
    container["args"] = ["train"]
    await world.experiment(
        name, parameters=BOTH, algorithm=algorithm, trialTemplate=template, objective=LEAST, **counts
    )
    while running := world.status(name).get("runningTrialList"):
        for trial in [one for one in world.trials(name) if one in running]:  # not by their names, which vary
            values = assigned(world, name, trial)
            await world.succeed(trial, f"{loss(values)}")
    given = world.status(name, "Suggestion")["suggestions"]
    return [assigned(world, name, one["name"]) for one in given]


def assigned(world, name, trial):
    given = {one["name"]: one for one in world.status(name, "Suggestion")["suggestions"]}
    return {one["name"]: one["value"] for one in given[trial]["parameterAssignments"]}


def loss(values):
    return float(values["lr"]) + int(values["layers"]) / 8 + (values["optimizer"] == "sgd")


@pytest.mark.parametrize("algorithm", [*LEARNING, "sobol"])
async def test_algorithms_search_the_space_to_the_end(world, algorithm):
    made = await learn(world, chosen(algorithm), count=8)
    assert world.conditions()[-1][2] == "ExperimentMaxTrialsReached"
    assert len(made) == 8
    for one in made:
        assert 0.001 <= float(one["lr"]) <= 1
        assert one["layers"] in {str(n) for n in range(1, 9)}
        assert one["optimizer"] in {"sgd", "adam"}


async def test_reported_results_improve_the_next_values(world):
    made = [loss(one) for one in await learn(world, chosen("tpe", random_state="1"))]
    assert sum(made[-8:]) < sum(made[:8]) * 0.7


async def test_same_seed_and_results_give_the_same_values(world):
    one = await learn(world, chosen("multivariate-tpe", random_state="3"), "one", 6)
    assert one == await learn(world, chosen("multivariate-tpe", random_state="3"), "two", 6)
    assert one != await learn(world, chosen("multivariate-tpe", random_state="4"), "three", 6)


async def test_sobol_is_deterministic_and_never_yields_the_largest_integer(world):
    await search(world, parameter("int", **RANGE), algorithm="sobol")
    assert set(values(world)) == {"1", "2"}
    assert values(world)[:4] == ["2", "2", "1", "1"]


async def test_bayesian_optimization_samples_decimals_on_a_log_scale_only(world):
    await search(world, parameter("double", min="0.000001", max="1"), algorithm="bayesianoptimization")
    assert sum(float(text) < 0.01 for text in values(world)) > 5
    await world.experiment(
        "other", parameters=[parameter("double", min="0", max="1")], algorithm=chosen("bayesianoptimization")
    )
    why = "search space should not contain 0 when using log-uniform prior"
    [reported] = [text for _, _, text in world.events("other") if "rpc error" in text]
    assert reported == f"rpc error: code = Unknown desc = Exception calling application: {why}"


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (chosen("random", gamma="0.2"), "unknown setting gamma for algorithm random"),
        (chosen("random", random_state="-1"), "random_state should be great or equal than zero"),
        (chosen("tpe", gamma="1"), "gamma should be in the range of (0, 1)"),
        (chosen("tpe", prior_weight="0"), "prior_weight should be great than zero"),
        (chosen("tpe", n_EI_candidates="0"), "n_EI_candidates should be great than zero"),
        (chosen("tpe", n_ei_candidates="24"), "unknown setting n_ei_candidates for algorithm tpe"),
        (
            chosen("tpe", n_EI_candidates="2.5"),
            "failed to validate n_EI_candidates(2.5): invalid literal for int() with base 10: '2.5'",
        ),
        (
            chosen("multivariate-tpe", n_startup_trials="-1"),
            "n_startup_trials should be greate or equal than zero",
        ),
        (
            chosen("bayesianoptimization", n_initial_points="-1"),
            "n_initial_points should be great or equal than zero",
        ),
        (
            chosen("bayesianoptimization", acq_func="UCB"),
            "acq_func UCB is not supported in Bayesian optimization",
        ),
        (chosen("grid", random_state="-1"), ""),
        (chosen("cmaes"), "CMA-ES only supports two or more dimensional continuous search space."),
    ],
)
async def test_invalid_setting_is_rejected_in_the_services_words(world, algorithm, expected):
    await world.experiment(parameters=[parameter("int", **RANGE)], algorithm=algorithm)
    *_, end = world.status("sweep", "Suggestion")["conditions"]
    assert (end["type"], end["reason"], end["message"]) == (
        "Failed",
        "SuggestionFailed",
        REFUSED + expected,
    )


async def test_cmaes_with_an_invalid_seed_never_starts(world):
    two = [parameter("int", **RANGE), parameter("double", min="0", max="1") | {"name": "b"}]
    await world.experiment(parameters=two, algorithm=chosen("cmaes", random_state="x", whatever="y"))
    why = 'strconv.Atoi: parsing "x": invalid syntax'
    reported = f"rpc error: code = Internal desc = Failed to create goptuna study and search space: {why}"
    assert ("Warning", "ReconcileError", reported) in world.events("sweep")


@pytest.mark.parametrize(("first", "goes_on"), [(True, True), (False, False)])
async def test_goptuna_fails_after_a_trial_whose_last_condition_is_killed(world, first, goes_on):
    counts = {"maxTrialCount": 4, "parallelTrialCount": 2, "maxFailedTrialCount": 1}
    one = [parameter("double", min="0", max="1")]
    await world.experiment(parameters=one, algorithm=chosen("sobol"), **counts)
    await world.kill(world.trials()[0], first=first)
    assert (len(world.trials()) == 3) == goes_on
    reported = "rpc error: code = Internal desc = Unexpected Trial condition: KILLED"
    assert (("Warning", "ReconcileError", reported) in world.events("sweep")) == (not goes_on)
