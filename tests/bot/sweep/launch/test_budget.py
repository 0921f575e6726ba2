"""A budget becomes GPU-hours at the price that the bill uses."""

from dataclasses import replace

import pytest

from bot.core.budget import Budget
from bot.core.errors import UserError
from bot.platform.config.limits import Limits
from bot.platform.config.teams import Price, Team
from bot.sweep.launch.budget import MODEL_LABEL, with_budget
from bot.sweep.launch.command_line import parse
from bot.sweep.spaces.describe import as_yaml
from bot.sweep.spaces.space import parse_space
from k8s.katib.pod_shape import PodShape
from tests.bot.factories import CONFIG, ORDER, OWNER, REQUEST
from tests.cases import cases

PRICES = (
    Price(model="NVIDIA H100", hourly=4),
    Price(model="NVIDIA L4", hourly=1),
    Price(model="NVIDIA H100", hourly=2, team="vision"),
)
PRICED = replace(CONFIG, prices=PRICES)
VISION = replace(PRICED, teams=(Team(name="vision", members=(OWNER,)),))


def an_order(budget, **changes):
    return replace(ORDER, space=replace(ORDER.space, budget=budget), **changes)


@pytest.mark.parametrize(
    ("labels", "config", "price"),
    [
        ({}, PRICED, 4),  # any GPU: the highest
        ({"nodes": {MODEL_LABEL: "NVIDIA-L4"}}, PRICED, 1),
        ({"node_choices": {MODEL_LABEL: ("NVIDIA-L4", "NVIDIA-H100-NVL")}}, PRICED, 4),
        ({"node_choices": {MODEL_LABEL: ("NVIDIA-L4", "NVIDIA-B200")}}, PRICED, 4),  # one without a price
        ({}, VISION, 2),
        ({"resource": "nvidia.com/mig-1g.10gb"}, PRICED, 4 / 7),  # as the bill counts slices
        ({"resource": "nvidia.com/mig-3g.40gb", "nodes": {MODEL_LABEL: "NVIDIA-H100-NVL"}}, PRICED, 12 / 7),
    ],
)
def test_money_counts_at_the_teams_price_of_the_gpus_that_the_pods_can_get(labels, config, price):
    found = with_budget(an_order("$100", shape=PodShape(**labels)), config).budget
    assert found == Budget(gpu_hours=100 / price, price=price, currency="$")


def test_gpu_hours_need_no_price_and_no_budget_is_none():
    assert with_budget(an_order("40.5"), CONFIG).budget == Budget(gpu_hours=40.5)
    assert with_budget(ORDER, CONFIG).budget is None


@pytest.mark.parametrize(
    ("budget", "gpus", "reported"),
    [
        ("$100", 1, "budget=$100: the configuration has no price of a GPU-hour. Set GPU-hours, for example"),
        ("€100", 1, "budget= must be GPU-hours, such as 40, or money, such as $100: from"),
        ("40", 0, "budget= limits GPU-hours, and these trials have no GPUs. Remove it."),
    ],
)
def test_budget_that_cannot_be_counted_is_refused(budget, gpus, reported):
    with pytest.raises(UserError, match=r"^budget=") as error:
        with_budget(an_order(budget, request=replace(REQUEST, gpus=gpus)), CONFIG)
    assert str(error.value).startswith(reported)


@cases("text", ["0", "$0.00001", "-1", "40h", "1e9", "$", "100$", "123456789", "nan", "4 0"])
def test_option_that_is_no_budget_is_refused_with_the_range(text):
    with pytest.raises(
        UserError, match=r"GPU-hours, .* money, .*: from 0\.0001 to 99,999,999, with up to 4 dec"
    ):
        parse(f'branch=main space=lr budget="{text}"', CONFIG)
    assert parse("branch=main space=lr budget=$12.50", CONFIG).budget == "$12.50"


def test_space_file_has_a_budget_too_and_keeps_it():
    text = (
        "command: x\nobjective: {metric: l, goal: minimize}\ntrials: {budget: %s}\nparameters: {a: [1, 2]}\n"
    )
    for given, budget in (("40", "40"), ("$100", "$100")):
        space = parse_space(text % given, "lr.yaml", REQUEST, Limits())
        assert space.budget == budget
        assert parse_space(as_yaml(space), "lr.yaml", REQUEST, Limits()).budget == budget
    with pytest.raises(UserError, match=r"lr.yaml:3: trials.budget: must be GPU-hours, such as 40, or money"):
        parse_space(text % "lots", "lr.yaml", REQUEST, Limits())
