"""`branch=a,b,c`: how many settings and pairs, what is turned off, and what is refused."""

from dataclasses import replace
from typing import ClassVar

import pytest

from bot.core.errors import UserError
from bot.core.request import SweepRequest
from bot.core.space import SEARCH_SERVICE, Goal, Parameter, command_line
from bot.platform.repos.git import Tip
from bot.sweep.launch.branches import label, shared_settings, with_branches
from bot.sweep.launch.command_line import parse
from bot.sweep.launch.plan import arguments, plan
from bot.sweep.launch.resolve import look_up
from bot.sweep.lifecycle.trials import manifest
from tests.bot.factories import COMMIT, CONFIG, ORDER, REPOSITORY, SETTINGS, SOURCE, SPACE, a_sweep
from tests.bot.sweep.launch.test_resolve import Files
from tests.cases import cases

INSTALLED = replace(CONFIG, search_service=True)
SEARCH = replace(SPACE, algorithm=SEARCH_SERVICE, max_trials=60, parallel=16)
REQUEST = SweepRequest(branch="main,ada/wider", space="lr")


@pytest.mark.parametrize(
    ("branches", "trials", "settings"), [(2, 60, 15), (3, 60, 12), (4, 60, 10), (2, 32, 8), (4, 32, 5)]
)
def test_half_of_the_trials_are_pairs_and_the_rest_shared_settings(branches, trials, settings):
    assert shared_settings(branches, trials) == settings


def test_branch_and_seed_become_parameters_and_only_the_seed_is_passed():
    before = replace(SEARCH, target=0.1, early_stopping={}, extendable=True)
    space = with_branches(before, REQUEST, INSTALLED)
    assert space.parameters[0] == Parameter(name="branch", values=("main", "ada-wider"))
    assert space.parameters[-1] == Parameter(name="seed", min=0, max=60, integer=True)
    assert "--seed=" in arguments(space)
    assert "branch" not in arguments(space)
    assert command_line(space, {"branch": "main", "seed": "1"}) == f"{SEARCH.command} --seed=1"
    assert command_line(SEARCH, {"branch": "deep"}) == f"{SEARCH.command} --branch=deep", "not compared"
    assert (space.parallel, space.target, space.early_stopping) == (7, None, None)
    assert not space.extendable
    assert space.notes == (
        "Early stopping is off: branches are compared by whole trainings, and by all of them",
        "The target is off: branches are compared by whole trainings, and by all of them",
        "7 trials run in parallel: what the first ones show decides what the next ones run",
    )
    fixed = {"epochs": "2", "seed": "3"}
    assert with_branches(replace(SEARCH, fixed=fixed), REQUEST, INSTALLED).fixed == {"epochs": "2"}
    assert with_branches(replace(SEARCH, max_trials=32), REQUEST, INSTALLED).pairs.settings == 8
    assert with_branches(SEARCH, replace(REQUEST, branch="main"), CONFIG) is SEARCH


@cases(
    ("space", "request_", "config", "why"),
    [
        (
            {"algorithm": "random"},
            {},
            CONFIG,
            "*Fix:* Ask an admin to install it and set `search_service: true`",
        ),
        ({"algorithm": "tpe"}, {}, INSTALLED, "this sweep's algorithm is tpe. Leave out the algorithm."),
        (
            {"max_trials": 31},
            {},
            INSTALLED,
            "needs at least 32 trials, because half of them are pairs; this sweep has 31. Set trials=60",
        ),
        ({"image": "x"}, {}, INSTALLED, "builds an image for each branch. Remove image="),
        ({"goals": {"latency": Goal.MINIMIZE}}, {}, INSTALLED, "Name one objective in the space file."),
        ({"parameters": (Parameter(name="seed", values=("1",)),)}, {}, INSTALLED, "sets seed itself"),
        ({"fixed": {"branch": "x"}}, {}, INSTALLED, "sets branch itself"),
        ({}, {"from_": "auto"}, INSTALLED, "Remove from="),
        ({}, {"branch": "a/b,a-b"}, INSTALLED, "and in more than signs such as /."),
        ({}, {"branch": f"{'x' * 60}1,{'x' * 60}2"}, INSTALLED, "must differ in their first 60 characters"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_fix(space, request_, config, why):
    with pytest.raises(UserError, match="branch=") as refused:
        with_branches(replace(SEARCH, **space), replace(REQUEST, **request_), config)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("branch=a,b,c,d,e space=lr", "branch= must be a branch, or up to 4 different ones to compare"),
        ("branch=a,a space=lr", "branch= must be a branch, or up to 4 different ones to compare"),
        ("branch=a,,b space=lr", "branch= must be a branch or tag name"),
        ('branch=a,b seeds=3 cmd="python x.py"', "seeds= runs one branch."),
    ],
)
def test_command_with_wrong_branches_is_refused(command, why):
    with pytest.raises(UserError) as refused:
        parse(command, INSTALLED)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("branch", "text"), [("ada/wider", "ada-wider"), ("-é", "branch"), ("v1.2_x", "v1.2_x")]
)
def test_label_is_a_tag_of_an_image(branch, text):
    assert label(branch) == text


def test_each_branch_has_its_build_and_the_experiment_their_digests():
    space = with_branches(SEARCH, REQUEST, INSTALLED)
    other = replace(SOURCE, commit="f" * 40, ref="refs/heads/ada/wider")
    made = plan(replace(ORDER, request=REQUEST, space=space, others=(other,)), SETTINGS)
    assert made.pinned == f"{SOURCE.commit},{'f' * 40}"
    first, second = (f"sha256:{digit * 64}" for digit in "12")
    after = made.after_build(first)
    assert (after.commit, after.branch.branch) == ("f" * 40, "ada/wider")
    done = after.after_build(second)
    assert (done.commit, done.branch) == (SOURCE.commit, None)
    experiment = manifest(a_sweep(plan=done), done, done.image_by_digest)
    assert experiment["spec"]["parameters"][0]["feasibleSpace"] == {
        "list": [f"main@{first}", f"ada-wider@{second}"]
    }
    pod = experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry:5000/sweepbot/digits:${trialParameters.branch}"


class Branches(Files):
    """A git whose branches are at commits of their own."""

    commits: ClassVar = {"main": COMMIT, "wider": "a" * 40, "copy": COMMIT, "fix,wider": "c" * 40}

    async def resolve(self, url, branch):
        if branch not in self.commits:
            raise UserError(f"branch={branch} doesn't exist")
        return Tip(f"refs/heads/{branch}", self.commits[branch])


async def looked_up(branch, commit=None):
    git = Branches({"Dockerfile": "FROM x"}, before={"b" * 40})
    request = SweepRequest(branch=branch, space="lr", trials=60, commit=commit)
    order = await look_up(git, REPOSITORY, request, INSTALLED, sweep="s", owner="U", request_id="d")
    return plan(order, SETTINGS)


@pytest.mark.parametrize(
    ("commit", "run"),
    [
        (None, f"{COMMIT},{'a' * 40}"),
        (f"{COMMIT},{'b' * 40}", f"{COMMIT},{'b' * 40}"),  # wider moved on since the preview
        (COMMIT, f"{COMMIT},{'a' * 40}"),
    ],
)
async def test_each_branch_runs_the_commit_of_the_preview_or_its_latest(commit, run):
    made = await looked_up("main,wider", commit)
    assert made.pinned == run
    assert made.experiment["spec"]["algorithm"]["algorithmSettings"] == [
        {"name": "pairs", "value": '{"branch": "branch", "seed": "seed", "settings": 15, "finals": 5}'}
    ]


async def test_branch_whose_name_has_a_comma_is_one_branch():
    made = await looked_up("fix,wider")
    assert (made.pinned, made.branches, made.space.pairs) == ("c" * 40, (), None)


async def test_branches_at_one_commit_or_forced_away_from_the_preview_are_refused():
    with pytest.raises(UserError, match="branch=main,copy: two of them are at the same commit"):
        await looked_up("main,copy")
    with pytest.raises(UserError, match="branch=wider was force-pushed after the preview"):
        await looked_up("main,wider", f"{COMMIT},{'c' * 40}")
