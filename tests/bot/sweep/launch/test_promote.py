"""Promoting a search's best parameters to a sweep over seeds."""

from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.core.events import Progress, Result
from bot.core.record import Phase
from bot.core.seeds import next_value, parse_seeds, statistics
from bot.core.space import MetricSource
from bot.platform.config.clusters import TrialCluster
from bot.sweep.launch.command_line import changed
from bot.sweep.launch.promote import promoted
from bot.sweep.launch.resolve import seed_space
from bot.sweep.lifecycle.seeds import end_text
from tests.bot.factories import COMMIT, CONFIG, PLAN, a_sweep
from tests.cases import cases

BEST = Result(trial="lr-brave-otter-t1", value=0.25, parameters={"lr": "0.01", "optimizer": "adam"})
SEARCH = a_sweep(Phase.SUCCEEDED, submitted=True, progress=Progress(best=BEST))


def test_best_parameters_run_with_five_seeds_on_the_same_commit():
    request = promoted(SEARCH, "", CONFIG)
    assert (request.cmd, request.seeds) == ("python train.py --lr=0.01 --optimizer=adam", "1-5")
    assert (request.commit, request.branch, request.gpus) == (COMMIT, "main", 1)
    space = seed_space(request, CONFIG)
    assert (space.metric, space.goal, space.source, space.flags) == (
        PLAN.space.metric,
        PLAN.space.goal,
        PLAN.space.source,
        PLAN.space.flags,
    )
    found = replace(
        PLAN.space, strategy={"val_loss": "latest"}, source=MetricSource.FILE, metrics_path="/logs/m.txt"
    )
    search = replace(SEARCH, plan=replace(PLAN, space=found))
    space = seed_space(promoted(search, "", CONFIG), CONFIG)
    assert (space.strategies, space.metrics_path) == ({"val_loss": "latest"}, "/logs/m.txt")
    more = {"volumes": ("datasets",), "env": {"HF_HOME": "/d"}, "secrets": ("wandb",), "output_flag": "out"}
    search = replace(SEARCH, plan=replace(PLAN, space=replace(PLAN.space, **more)))
    space = seed_space(promoted(search, "", CONFIG), CONFIG)
    assert {key: getattr(space, key) for key in more} == more
    assert changed(promoted(SEARCH, "", CONFIG), "seeds=3-3", CONFIG).promotes is None
    place = {"cluster": "west", "queue": "prod", "priority": "high"}
    placed = replace(SEARCH, request=replace(SEARCH.request, **place))
    assert {key: getattr(promoted(placed, "", CONFIG), key) for key in place} == place
    named = replace(
        CONFIG, clusters=(TrialCluster(name="main"), TrialCluster(name="west", kubeconfig="/west"))
    )
    assert promoted(placed, "cluster=main", named).cluster == "main"
    # Of 1, 2, 3: mean 2, deviation 1, t(2, 0.975) = 4.3027, times the root of 4/3.
    assert next_value(statistics([1, 2, 3])) == pytest.approx((2 - 4.9683, 2 + 4.9683), abs=1e-3)
    assert next_value(statistics([1])) is None


SEEDED = replace(SEARCH, progress=Progress(best=replace(BEST, parameters={"lr": "0.01", "seed": "3"})))
FIXED = replace(SEARCH, plan=replace(PLAN, space=replace(PLAN.space, fixed={"seed": "3"})))


@cases(
    ("search", "options", "seeds"),
    [
        (SEARCH, "seeds=3", "1-3"),
        (SEARCH, "seeds=0-4", "0-4"),
        (SEARCH, "seeds=1", "1-1"),
        (SEEDED, "seeds=3", "1-2,4"),
        (SEEDED, "", "1-2,4-6"),
        (SEEDED, "seeds=2-4", "2-4"),
        (FIXED, "seeds=2", "1-2"),
        (FIXED, "seeds=3", "1-2,4"),
    ],
)
def test_number_of_seeds_leaves_out_the_run_of_the_search(search, options, seeds):
    request = promoted(search, options, CONFIG)
    assert request.seeds == seeds
    assert "--seed" not in request.cmd


@pytest.mark.parametrize(
    ("search", "options", "own"),
    [
        (SEARCH, "", "The search set no seed; seed 0, the usual default, is left out"),
        (SEARCH, "seeds=0-4", "The search set no seed: if its program's default is among these"),
        (SEEDED, "", "The search's own seed, 3, isn't among them."),
        (SEEDED, "seeds=1-5", "Seed 3 is the search's own, so the comparison leaves it out."),
    ],
)
def test_verdict_says_whether_the_run_of_the_search_is_among_the_seeds(search, options, own):
    request = promoted(search, options, CONFIG)
    seeds = parse_seeds(request.seeds, limit=10)
    values = {str(seed): 0.5 + seed / 100 for seed in seeds} | ({"3": 0.25} if options == "seeds=1-5" else {})
    plan = replace(PLAN, space=seed_space(request, CONFIG))
    text = end_text(replace(search, request=request, plan=plan, progress=Progress(seeds=values)))
    assert own in text
    assert "Not confirmed: " in text  # with 0.25 itself among the seeds, it would be confirmed


@pytest.mark.parametrize(
    ("sweep", "options", "error"),
    [
        (replace(SEARCH, phase=Phase.RUNNING), "", "is still running"),
        (replace(SEARCH, progress=Progress()), "", "no result with a finite objective"),
        (replace(SEARCH, request=replace(SEARCH.request, seeds="5")), "", "has no best parameters"),
        (SEARCH, "branch=other", "`branch=`. `promote` repeats the best trial as it is."),
        (SEARCH, "seeds=0", "seeds="),
    ],
)
def test_what_cannot_be_promoted_is_said(sweep, options, error):
    with pytest.raises(UserError, match=error):
        promoted(sweep, options, CONFIG)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((0.24, 0.26, 0.27), "Confirmed: `lr-brave-otter` reported 0.25, within 0."),
        ((0.4, 0.41, 0.42), "Not confirmed: `lr-brave-otter` reported 0.25, better than 0."),
        ((0.1, 0.11, 0.12), "Better than reported: `lr-brave-otter` reported 0.25, worse than "),
        ((0.3,), "A verdict needs at least 3 seeds."),
        ((0.115, 0.08), "A verdict needs at least 3 seeds."),
    ],
)
def test_verdict_respects_how_much_single_runs_vary(values, verdict):
    request = promoted(SEARCH, f"seeds={len(values)}-{2 * len(values) - 1}", CONFIG)
    plan = replace(PLAN, space=seed_space(request, CONFIG))
    progress = Progress(seeds={str(n): value for n, value in enumerate(values)})
    assert verdict in end_text(replace(SEARCH, request=request, plan=plan, progress=progress))
