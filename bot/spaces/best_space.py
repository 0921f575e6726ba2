"""Write the space file that runs a sweep's best trial again. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from bot.core.space import Parameter, SearchSpace
from bot.spaces.describe import as_yaml
from bot.text.wording import printable

BEST_SPACE = "best"


def best_space(space: SearchSpace, parameters: Mapping[str, str]) -> SearchSpace:
    """Return the space of one trial: each parameter has one value, and nothing stops it early."""
    return replace(
        space,
        name=BEST_SPACE,
        parameters=tuple(Parameter(name=name, values=(value,)) for name, value in parameters.items()),
        algorithm="grid",
        settings={},
        max_trials=1,
        parallel=1,
        max_failed=0,
        target=None,
        finish_running=False,
        early_stopping=None,
        stopping=None,
        extendable=False,
        notes=(),
    )


def best_yaml(space: SearchSpace, parameters: Mapping[str, str], *about: str) -> str:
    """Return the space file; `about`: lines of the comment above it."""
    comment = [f"# {printable(line)}" for line in about]
    return "\n".join([*comment, as_yaml(best_space(space, parameters))])
