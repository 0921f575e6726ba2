"""Planted faults: which are told, and that chance is not."""

import random
import tracemalloc
from collections import Counter

from bot.core.space import Parameter
from bot.sweep.features.failing_parameters.pattern import find_pattern

PARAMETERS = (
    Parameter(name="lr", min=1e-5, max=1e-1, log=True),
    Parameter(name="batch_size", values=("64", "128", "256", "512", "1024")),
    Parameter(name="optimizer", values=("adam", "sgd", "lion", "adagrad")),
    Parameter(name="layers", min=2, max=12, integer=True),
    Parameter(name="dropout", min=0.0, max=0.5),
)


def drawn(rng):
    return {
        "lr": f"{10 ** rng.uniform(-5, -1):.17g}",
        "batch_size": rng.choice(PARAMETERS[1].values),
        "optimizer": rng.choice(PARAMETERS[2].values),
        "layers": str(rng.randint(2, 12)),
        "dropout": str(rng.uniform(0, 0.5)),
    }


FAULTS = {
    "threshold": (lambda p, _: int(p["batch_size"]) >= 512, ["batch_size ≥ 512"]),
    "low": (lambda p, _: float(p["dropout"]) < 0.2, ["dropout ≤"]),
    "rate": (lambda p, _: float(p["lr"]) > 1e-2, ["lr ≥"]),
    "category": (lambda p, _: p["optimizer"] == "lion", ["optimizer = lion"]),
    "categories": (lambda p, _: p["optimizer"] in {"lion", "adagrad"}, ["optimizer ="]),
    "pair": (
        lambda p, _: int(p["batch_size"]) >= 256 and int(p["layers"]) >= 6,
        ["batch_size ≥ 256", "layers ≥"],
    ),
    "mixed": (lambda p, _: p["optimizer"] == "sgd" and float(p["lr"]) > 1e-3, ["lr ≥", "optimizer = sgd"]),
    "chance": (lambda _, rng: rng.random() < 0.3, []),
    "rare": (lambda _, rng: rng.random() < 0.1, []),
    "half": (lambda _, rng: rng.random() < 0.5, []),
}
PLANTED = [(fault, size) for fault in FAULTS for size in (30, 60, 200)]


def told(fault, size, seed):
    """Return whether what is said of one planted fault is right: all of it, and nothing else."""
    rng = random.Random(f"{fault}/{size}/{seed}")  # noqa: S311
    fails, words = FAULTS[fault]
    trials = [drawn(rng) for _ in range(size)]
    pattern = find_pattern([(each, fails(each, rng)) for each in trials], PARAMETERS)
    said = sorted(map(str, pattern.conditions)) if pattern else []
    if len(said) == len(words) and all(any(each.startswith(w) for each in said) for w in words):
        return "right"
    return "silent" if not said else "invented"


def test_planted_faults_are_told_and_none_is_invented():
    counts = Counter(told(fault, size, 0) for fault, size in PLANTED)
    print(dict(counts))
    assert len(PLANTED) == 30
    assert counts["right"] >= 27
    assert not counts["invented"]


def test_failures_by_chance_are_rarely_explained():
    chance = [
        told(fault, size, seed)
        for fault in ("chance", "rare", "half")
        for size in (24, 60, 200)
        for seed in range(10)
    ]
    assert chance.count("invented") <= 1, "of 90: the test allows 1 %"


def test_many_parameters_take_little_memory():
    rng = random.Random(1)  # noqa: S311
    names = [f"p{number}" for number in range(40)]
    rows = [({name: str(rng.random()) for name in names}, rng.random() < 0.4) for _ in range(400)]
    tracemalloc.start()
    find_pattern(rows, [Parameter(name=name, min=0.0, max=1.0) for name in names])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 2**20


def test_parameter_with_a_condition_has_thresholds_too_and_no_value_where_it_is_absent():
    names = "adam", "sgd"
    optimizer = Parameter(name="optimizer", values=names)
    momentum = Parameter(name="momentum", min=0.1, max=1.0, when=("optimizer", "sgd"))
    drawn = [{"optimizer": names[n % 2]} | ({"momentum": str(n / 30)} if n % 2 else {}) for n in range(30)]
    for fails, words in ((lambda value: value > 0.5, "≥ 0.56"), (lambda value: value < 0.5, "≤ 0.44")):
        rows = [(each, "momentum" in each and fails(float(each["momentum"]))) for each in drawn]
        [condition] = find_pattern(rows, (optimizer, momentum)).conditions
        assert str(condition) == f"momentum {words}", "0.5 is the next value: no shorter number is between"
    for name in names:
        rows = [(each, each["optimizer"] == name) for each in drawn]
        assert [*map(str, find_pattern(rows, (optimizer, momentum)).conditions)] == [f"optimizer = {name}"]
