"""Seven spaces, and a training in each of them."""

from search.space import Choice, Point, Range, Space

X = Range(name="x", low=0.0, high=1.0)
LR = Range(name="lr", low=1e-5, high=1e-1, log=True)

SPACES = {
    "decimals": Space(
        dimensions=(X, Range(name="y", low=-1.0, high=1.0), Range(name="z", low=0.0, high=9.0))
    ),
    "log scale": Space(dimensions=(LR, Range(name="decay", low=1e-6, high=1e-2, log=True))),
    "steps": Space(dimensions=(Range(name="drop", low=0.05, high=0.5, step=0.1), X)),
    "whole numbers": Space(
        dimensions=(
            Range(name="layers", low=1, high=8, integer=True),
            Range(name="width", low=8, high=1024, step=8, log=True, integer=True),
            Range(name="batch", low=1, high=512, log=True, integer=True),
        )
    ),
    "mixed list": Space(dimensions=(LR, Choice(name="opt", values=("sgd", "adam", "lion")))),
    "lists": Space(
        dimensions=(Choice(name="act", values=("relu", "gelu")), Choice(name="n", values=("0.1", "1e-3")))
    ),
    "grid": Space(
        dimensions=(
            Range(name="layers", low=1, high=3, integer=True),
            Range(name="drop", low=0.0, high=0.1, step=0.1),
            Choice(name="norm", values=("batch", "layer")),
        )
    ),
}


def loss(space: Space, point: Point) -> float:
    """Return a loss that is least at 0.3 of each range, and at the first value of each list."""
    return sum(
        float(point[each.name] != each.values[0])
        if isinstance(each, Choice)
        else (each.unit(float(point[each.name])) - 0.3) ** 2
        for each in space.dimensions
    )
