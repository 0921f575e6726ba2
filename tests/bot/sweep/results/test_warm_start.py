"""Which earlier sweep's points a search tries first, and why another one can't be used."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.errors import UserError
from bot.core.plan import SweepPlan
from bot.core.space import Goal, Parameter
from bot.sweep.form.preview import facts
from bot.sweep.launch.plan import plan
from bot.sweep.results.store import ResultsStore
from bot.sweep.results.warm_start import with_past
from k8s.engine import TrialState
from local.kubernetes.apiserver.store import Store
from tests.bot.factories import CONFIG, NOW, ORDER, REQUEST, SETTINGS, SPACE
from tests.bot.sweep.results.factories import a_result, some_results
from tests.scenarios.fakes import DirectCluster

REPO = "https://git.example/digits.git"
SEARCHED = replace(SPACE, algorithm="sweepbot", max_trials=12)
TRIALS = [a_result(f"t{at}", 0.1 * at, parameters={"lr": f"{10 ** -(at / 3 + 1)}"}) for at in range(1, 9)]


@pytest.fixture
def kept():
    store = Store()
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    return ResultsStore(DirectCluster(store), "sweeps")


async def found(kept, wanted, space=SEARCHED, repo=REPO):
    return (await with_past(space, replace(REQUEST, from_=wanted), repo, kept)).warm_start


async def test_best_points_of_the_named_sweep_are_handed_over_by_rank(kept):
    """Points outside the space, failed trials, and points near a better one are left out."""
    outside = a_result("a", 0.01, parameters={"lr": "0.5", "layers": "2", "optimizer": "adam"})
    failed = a_result("b", 0.02, state=TrialState.FAILED, parameters={"lr": "0.01"})
    near = a_result("c", 0.15, parameters={"lr": "0.0465"})
    await kept.save(some_results(*TRIALS, outside, failed, near))
    start = await found(kept, "lr-brave-otter")
    assert [f"{float(each['lr']):.4f}" for each in start.points] == ["0.0464", "0.0215", "0.0100"]
    assert start.why == "main @ 01234567, 2026-11-21, 3 of 3 parameters in common"
    for trials, points in ((6, 2), (4, 1), (2, 1)):
        space = replace(SEARCHED, max_trials=trials)
        assert len((await found(kept, "lr-brave-otter", space)).points) == points
    theirs = replace(SPACE, fixed={"layers": "3"}, parameters=SPACE.parameters[:1])
    await kept.save(some_results(a_result(parameters={"lr": "1e-2"}), space=theirs))
    start = await found(kept, "lr-brave-otter")
    assert (start.points, start.why[-27:]) == (
        ({"lr": "1e-2", "layers": "3"},),
        "2 of 3 parameters in common",
    )
    with pytest.raises(UserError, match="from=lr-old-owl: no ended sweep of this name has results"):
        await found(kept, "lr-old-owl")
    assert await found(None, "none") is await found(None, None) is None


@pytest.mark.parametrize(
    ("parameter", "tried", "points"),
    [
        (Parameter(name="optimizer", values=("adam", "sgd")), "lion sgd adam sgd", "sgd adam"),
        (Parameter(name="layers", min=0, max=10, integer=True), "-1 1.5 0 1 11", "0 1"),
        (Parameter(name="layers", min=-5, max=0, step=0.5), "1 -0.2 nan 0 -1.5 -5", "0 -1.5 -5"),
        (Parameter(name="lr", min=0.1, max=1, step=0.3), "0.2 0.7 0.1", "0.7 0.1"),
    ],
)
async def test_points_are_values_of_the_new_space_a_tenth_of_its_range_apart(kept, parameter, tried, points):
    by_rank = enumerate(tried.split())
    await kept.save(
        some_results(*(a_result(f"t{at}", at, parameters={parameter.name: each}) for at, each in by_rank))
    )
    start = await found(kept, "lr-brave-otter", replace(SEARCHED, parameters=(parameter,)))
    assert [each[parameter.name] for each in start.points] == points.split()


@pytest.mark.parametrize(
    ("space", "repo", "why"),
    [
        (SEARCHED, "https://git.example/other.git", "it ran another repository"),
        (replace(SEARCHED, metric="acc"), REPO, r"its objective is to minimize val_loss \(min\)"),
        (replace(SEARCHED, goal=Goal.MAXIMIZE), REPO, r"its objective is to minimize val_loss \(min\)"),
        (replace(SEARCHED, strategy={"val_loss": "latest"}), REPO, "its objective is to"),
        (
            replace(SEARCHED, parameters=(Parameter(name="layers", min=3, max=9, integer=True),)),
            REPO,
            "none of its finished trials is in this space",
        ),
        (replace(SEARCHED, parameters=(Parameter(name="width", min=3, max=9),)), REPO, "none of its"),
        (replace(SEARCHED, algorithm="tpe"), REPO, "from= needs Sweepbot's search service"),
    ],
)
async def test_sweep_that_does_not_compare_is_rejected_with_the_reason(kept, space, repo, why):
    await kept.save(some_results(a_result()))
    with pytest.raises(UserError, match=why) as caught:
        await found(kept, "lr-brave-otter", space, repo)
    assert caught.value.field == "from"


async def test_auto_takes_the_latest_of_the_most_alike_sweeps(kept):
    """Most parameters in common, then the same branch, then the latest; with enough results."""
    less = [replace(each, parameters={"lr": "0.01"}) for each in TRIALS]
    sweeps = {
        "lr-few": {"trials": tuple(TRIALS[:7]), "days": 9},
        "lr-other-branch": {"branch": "dev", "days": 8},
        "lr-other-repo": {"repo_url": "https://git.example/other.git", "days": 8},
        "lr-less": {
            "trials": tuple(less),
            "space": replace(SPACE, parameters=SPACE.parameters[:1]),
            "days": 8,
        },
        "lr-new": {"days": 7},
        "lr-old": {"days": 6},
    }
    for name, facts_ in sweeps.items():
        trials, days = facts_.pop("trials", tuple(TRIALS)), timedelta(days=facts_.pop("days"))
        await kept.save(some_results(*trials, sweep=name, ended=NOW + days, **facts_))
    assert (await found(kept, "auto")).sweep == "lr-new"
    assert (await found(kept, "auto", repo="https://git.example/none.git")).points == ()


async def test_preview_says_which_sweep_and_why_and_the_service_gets_its_points(kept):
    def shown(space):
        made: SweepPlan = plan(replace(ORDER, space=space), SETTINGS)
        algorithm = made.experiment["spec"]["algorithm"]
        return dict(facts(request, made, CONFIG)).get("Start from"), algorithm.get("algorithmSettings")

    request = replace(REQUEST, from_="auto")
    nothing = await with_past(SEARCHED, request, REPO, kept)
    assert shown(nothing) == ("no comparable earlier sweep of this space has 8 results", None)
    assert shown(SEARCHED) == ("chosen at launch", None)
    await kept.save(some_results(*TRIALS[:1], *(replace(each, parameters={"lr": "9"}) for each in TRIALS)))
    text, settings = shown(await with_past(SEARCHED, request, REPO, kept))
    assert (
        text
        == "the best point of `lr-brave-otter` (main @ 01234567, 2026-11-21, 3 of 3 parameters in common)"
    )
    [setting] = settings
    assert setting["name"] == "past"
    assert setting["value"].startswith('[{"lr": "0.0464')
