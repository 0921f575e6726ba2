"""Check and explain a space file's text apart from any commit, with its GPUs, machines, and hours: `sweepbot
space`, and the HTTP API. Pure.
"""

from collections.abc import Mapping
from dataclasses import replace

from bot.core.errors import UserError
from bot.core.request import SweepRequest
from bot.core.space import SearchSpace
from bot.platform.config.policy import Config
from bot.sweep.launch.command_line import read_values
from bot.sweep.launch.plan import check_command
from bot.sweep.launch.pods import check_mounts, nodes_of, pods_of, with_output
from bot.sweep.spaces.space import parse_space


def read_space(
    text: str, file: str, options: Mapping[str, str], config: Config, *, on_cluster: bool
) -> tuple[SearchSpace, SweepRequest]:
    """Return the space as a sweep with these options would have it. Raises UserError with all errors.

    Args:
        options: of `/sweep`; `space` has a default.
        on_cluster: whether `config` is a cluster's, so that what its pods can mount is known.
    """
    values, errors = read_values({"branch": "main", "space": "space"} | dict(options), config)
    if errors:
        raise UserError("\n".join(errors.values()))
    request = SweepRequest(**values)
    space = parse_space(text, file, request, config.limits)
    request = replace(request, nodes=nodes_of(request, space, config))
    check_command(space)
    if on_cluster:
        space = with_output(space, "SWEEP", config)
        pods = pods_of(request, space, "", config)
        check_mounts(space, pods.shape)
    return space, request
