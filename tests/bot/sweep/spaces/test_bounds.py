"""Bounds that a command gives the parameters of a space."""

import pytest

from bot.core.errors import UserError
from bot.core.space import Parameter
from bot.sweep.spaces.bounds import bounded
from tests.bot.factories import SPACE

PARAMETERS = (*SPACE.parameters, Parameter(name="decay", min=0.0, max=1.0, step=5e-324))


def bounds(where):
    return {each.name: each.values or (each.min, each.max) for each in bounded(PARAMETERS, where)}


def test_where_bounds_ranges_and_leaves_out_values():
    assert bounds(None) == {
        "lr": (1e-4, 0.1),
        "layers": (1, 4),
        "optimizer": ("adam", "sgd"),
        "decay": (0, 1),
    }
    assert bounds("lr<0.01, lr>=0.001")["lr"] == (0.001, 0.01)
    assert bounds("layers<3")["layers"] == (1, 2)
    assert bounds("layers>2.5")["layers"] == (3, 4)
    assert bounds("decay>=0.5")["decay"] == (0.5, 1)
    assert bounds("layers<=1")["layers"] == ("1",)
    assert bounds("optimizer!=sgd")["optimizer"] == ("adam",)


@pytest.mark.parametrize(
    ("where", "values", "left"),
    [
        ("x>=0.8", (0.2, 1.0, 0.1), (0.8, 1.0, 0.1)),  # (0.8 - 0.2) / 0.1 is above 6
        ("x>0.3", (0.1, 1.0, 0.1), (0.4, 1.0, 0.1)),
        ("x<0.5", (0.1, 1.0, 0.1), (0.1, 0.4, 0.1)),
        ("x>0.2", (0.1, 0.3, 0.1), ("0.3",)),  # 0.1 + 2 * 0.1 is above 0.3
        ("x<=0.3", (0.1, 1.0, 0.1), (0.1, 0.3, 0.1)),
        ("x>-0.07", (-0.72, -0.06, 0.01), ("-0.06",)),
        ("x<100", (8, 64, 8), (8, 64, 8)),
        ("x>=20", (8, 64, 8), (24, 64, 8)),
        ("x<12", (8, 64, 8), ("8",)),  # 9 to 11 were never values
    ],
)
def test_where_keeps_the_values_of_a_range_with_steps(where, values, left):
    low, high, step = values
    when = ("optimizer", "sgd")
    whole = Parameter(name="x", min=low, max=high, step=step, integer=isinstance(low, int), when=when)
    [found] = bounded((whole,), where)
    assert (found.values or (found.min, found.max, found.step)) == left
    assert found.when == whole.when


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("layers<1", "leaves no value of layers"),
        ("lr>0.1", "leaves no value of lr"),
        ("lr<0.0001", "leaves no value of lr"),
        ("optimizer!=sgd,optimizer!=adam", "leaves no value of optimizer"),
        ("lr!=0.1", "where=lr!=0.1 can't bound lr, a range"),
        ("decay>1e308", "leaves no value of decay"),
        ("layer<3", "isn't a parameter of the space. Did you mean layers?"),
        ("layers", "must be up to 20 bounds"),
        ("a<1," * 30, "must be up to 20 bounds"),
    ],
)
def test_where_that_does_not_fit_the_space_says_why(where, words):
    with pytest.raises(UserError, match=words.replace("?", r"\?")) as refused:
        bounds(where)
    assert refused.value.field == "where"
