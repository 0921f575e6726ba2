"""Bounds that a command gives the parameters of a space."""

import pytest

from bot.core.errors import UserError
from bot.core.space import Parameter
from bot.sweep.spaces.bounds import bounded
from tests.bot.factories import SPACE


def bounds(where):
    return {each.name: each.values or (each.min, each.max) for each in bounded(SPACE.parameters, where)}


def test_where_bounds_ranges_and_leaves_out_values():
    assert bounds(None) == {"lr": (1e-4, 0.1), "layers": (1, 4), "optimizer": ("adam", "sgd")}
    assert bounds("lr<0.01, lr>=0.001")["lr"] == (0.001, 0.01)
    assert bounds("layers<3")["layers"] == (1, 2)
    assert bounds("layers>2.5")["layers"] == (3, 4)
    assert bounds("layers<=1")["layers"] == ("1",)
    assert bounds("optimizer!=sgd")["optimizer"] == ("adam",)


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("d<0.3", (0.0, 0.2, 0.1)),
        ("d<=0.3", (0.0, 0.3, 0.1)),
        ("d<0.35", (0.0, 0.3, 0.1)),
        ("d>0.3", (0.4, 0.5, 0.1)),
        ("d>=0.3", (0.3, 0.5, 0.1)),
        ("d>=0.45", ("0.5",)),
        ("d<0.1", ("0.0",)),
        ("d<1e308,d>-1e308", (0.0, 0.5, 0.1)),
    ],
)
def test_bound_of_a_parameter_with_steps_is_the_next_step_inside(where, left):
    [found] = bounded((Parameter(name="d", min=0.0, max=0.5, step=0.1),), where)
    assert (found.values or (found.min, found.max, found.step)) == left


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("layers<1", "leaves no value of layers"),
        ("optimizer!=sgd,optimizer!=adam", "leaves no value of optimizer"),
        ("lr!=0.1", "leaves no value of lr"),
        ("layer<3", "isn't a parameter of the space. Did you mean layers?"),
        ("layers", "must be up to 20 bounds"),
        ("a<1," * 30, "must be up to 20 bounds"),
    ],
)
def test_where_that_does_not_fit_the_space_says_why(where, words):
    with pytest.raises(UserError, match=words.replace("?", r"\?")) as refused:
        bounds(where)
    assert refused.value.field == "where"
