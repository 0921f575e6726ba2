"""Pass a trial its parameters: as flags in shell text, or as environment variables. Pure."""

import shlex

from bot.core.flags import FlagStyle, flag, variable, words
from bot.core.space import TENSORBOARD_PARAMETER, MetricSource, SearchSpace
from k8s.katib.training import TENSORBOARD_DIR, TRIAL_NAME


def arguments(space: SearchSpace) -> str:
    """Return the flags as shell text: `$` doubled, except in Katib's placeholders."""
    texts = []
    for name, value in space.fixed.items():
        texts += [] if space.is_switch(name) and value != "true" else _quoted(space, name, value)
    for parameter in space.parameters:
        placeholder = f"${{trialParameters.{parameter.name}}}"
        if space.is_switch(parameter.name):
            texts.append(f"$$([ {placeholder} = true ] && echo {flag(space.flags, parameter.name)})")
        else:
            marked = words(space.flags, parameter.name, placeholder)
            texts += [shlex.quote(word) for word in marked]
    if space.source is MetricSource.TENSORBOARD:
        texts += _quoted(space, TENSORBOARD_PARAMETER, TENSORBOARD_DIR)
    if space.output_dir:
        path = f"{space.output_dir}/{TRIAL_NAME}"
        texts += [shlex.quote(word) for word in words(space.flags, space.output_flag, path)]
    return " ".join(texts)


def _quoted(space: SearchSpace, name: str, value: str) -> list[str]:
    if space.is_switch(name):
        return [flag(space.flags, name)]
    return [shlex.quote(word).replace("$", "$$") for word in words(space.flags, name, value)]


def variables(space: SearchSpace) -> dict[str, str]:
    """Return the environment variables of the parameters: Kubernetes expands `$(NAME)` in them."""
    if space.flags is not FlagStyle.ENV:
        return {}
    found = {name: value.replace("$", "$$") for name, value in space.fixed.items()}
    found |= {each.name: f"${{trialParameters.{each.name}}}" for each in space.parameters}
    if space.source is MetricSource.TENSORBOARD:
        found[TENSORBOARD_PARAMETER] = TENSORBOARD_DIR
    if space.output_dir:
        found[space.output_flag] = f"{space.output_dir}/{TRIAL_NAME}"
    return {variable(name): value for name, value in found.items()}
