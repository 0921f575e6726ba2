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
async def test_random_draws_from_the_space(world, one, fits):
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
async def test_grid_gives_every_point_once(world, one, points):
    await search(world, one, count=len(points), algorithm="grid")
    assert sorted(values(world)) == points


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (parameter("int", **RANGE), "Max Trial Count: 20 > all possible search combinations: 3"),
        (parameter("double", min="0", max="1"), "all parameters must include step"),
    ],
)
async def test_a_grid_that_cannot_be_walked_fails_the_experiment(world, one, said):
    await search(world, one, algorithm="grid")
    *_, end = world.status("sweep", "Suggestion")["conditions"]
    assert (end["type"], end["reason"]) == ("Failed", "SuggestionFailed")
    assert said in end["message"]
    *_, end = world.status()["conditions"]
    assert (end["type"], end["reason"], end["message"]) == (
        "Failed",
        "ExperimentFailed",
        "Suggestion has failed",
    )
    assert world.store.list("Trial") == []


@pytest.mark.parametrize("one", [parameter("double", min="x", max="1"), parameter("categorical", list=[])])
async def test_a_space_nobody_can_draw_from_is_told_in_an_event_only(world, one):
    await search(world, one)
    assert world.conditions() == [("Created", "True", "ExperimentCreated")]
    assert world.events("sweep")[0][:2] == ("Warning", "ReconcileError")
