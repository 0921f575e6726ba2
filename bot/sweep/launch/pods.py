"""Decide on the pods of a sweep: profile, team's machines, namespace, volumes, Secrets, variables, directory
for outputs; refuse those that the configuration doesn't allow. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TypeVar

from bot.core.errors import UserError
from bot.core.flags import RESERVED_VARIABLES, FlagStyle, variable
from bot.core.request import SweepRequest
from bot.core.space import SearchSpace
from bot.platform.config.allowed import AllowedSecret, AllowedVolume
from bot.platform.config.policy import Config
from bot.platform.config.profiles import Profile, chosen, on_machines_of, shaped
from bot.platform.config.teams import granted_team
from bot.sweep.spaces.parameters import RESERVED
from bot.text.wording import did_you_mean, shortened
from k8s.katib.pod_shape import PodShape, SecretVariables

Named = TypeVar("Named", AllowedVolume, AllowedSecret)


@dataclass(frozen=True, kw_only=True)
class Pods:
    """The pods of a sweep's trials."""

    profile: Profile | None
    shape: PodShape
    secrets: tuple[SecretVariables, ...]


def pods_of(request: SweepRequest, space: SearchSpace, owner: str, config: Config) -> Pods:
    """Return the pods of a sweep. Raises UserError for what the configuration doesn't have or allow."""
    team = granted_team(config.teams, owner, config.self_assigned)
    profile = chosen(config.profiles, request.profile, request.gpus)
    shape = on_machines_of(team, shaped(config.trials, profile, request.gpus))
    mine = team.name if team else ""
    volumes = _named("volumes", space.volumes, config.volumes, mine)
    secrets = _named("secrets", space.secrets, config.secrets, mine)
    _check_variables(space, [key for each in secrets for key in each.variables.keys], config)
    output = config.output if space.output_dir else None
    mounts = [each.volume for each in volumes] + ([output.volume] if output else [])
    shape = replace(shape, volumes=tuple(dict.fromkeys((*shape.volumes, *mounts))))
    _check_paths(shape)
    return Pods(profile=profile, shape=shape, secrets=tuple(each.variables for each in secrets))


def nodes_of(request: SweepRequest, space: SearchSpace, config: Config) -> int:
    """Return the nodes of one trial: those of the request, or else of the space, or else of the profile."""
    profile = chosen(config.profiles, request.profile, request.gpus)
    return request.nodes or space.nodes or (profile.nodes_per_trial if profile else 1)


def namespace_of(owner: str, channel: str, config: Config) -> str:
    """Return the namespace of a sweep's trials: the channel's, or else the team's; "": K8S_NAMESPACE."""
    team = granted_team(config.teams, owner, config.self_assigned)
    return config.channel_namespaces.get(channel) or (team.namespace if team else "")


def shape_for(config: Config, owner: str, profile: Profile | None, gpus: int) -> PodShape:
    """Return the shape of a trial with so many GPUs, without what its space adds."""
    team = granted_team(config.teams, owner, config.self_assigned)
    return on_machines_of(team, shaped(config.trials, profile, gpus))


def with_output(space: SearchSpace, sweep: str, config: Config) -> SearchSpace:
    """Return the space with the directory of its outputs, if it or the configuration asks for one.

    Raises UserError if no volume is configured, or a parameter has the flag's name.
    """
    output = config.output
    if output is None:
        if space.output_flag:
            raise UserError(
                "output_flag: the configuration has no `output`. Remove it, or ask an admin to add `output`.",
                field="space",
            )
        return space
    flag = space.output_flag or output.flag
    if flag in RESERVED or (space.flags is FlagStyle.ENV and RESERVED_VARIABLES.fullmatch(variable(flag))):
        raise UserError(f"output_flag: {flag} has another meaning. Use another name.", field="space")
    if flag in {*(each.name for each in space.parameters), *space.fixed}:
        raise UserError(f"parameters.{flag}: the output directory is passed as this flag.", field="space")
    return replace(space, output_flag=flag, output_dir=f"{output.volume.at}/{sweep}") if flag else space


def check_mounts(space: SearchSpace, shape: PodShape) -> None:
    """Raise UserError if the file's directory is one of the cluster's volumes: mount paths must differ."""
    folder = str(PurePosixPath(space.metrics_path).parent)
    if space.metrics_path and folder in {volume.at.rstrip("/") for volume in shape.volumes}:
        raise UserError(
            f"metrics.path: {space.metrics_path} is in {folder}, where this cluster mounts a volume. Use a "
            "directory of its own, such as /logs/metrics.txt.",
            field="space",
        )


def _named(key: str, names: Iterable[str], allowed: tuple[Named, ...], team: str) -> list[Named]:
    """Return the entries that the space names. Raises UserError for one that this team can't use."""
    known: dict[str, Named] = {each.name: each for each in allowed if not each.teams or team in each.teams}
    for name in names:
        if name not in known:
            why = f'"{shortened(name)}" isn\'t configured, or not for your team.{did_you_mean(name, known)}'
            raise UserError(f"{key}: {why}", field="space")
    return [known[name] for name in names]


def _check_variables(space: SearchSpace, secret_keys: list[str], config: Config) -> None:
    for name in space.env:
        if name not in config.env:
            hint = did_you_mean(name, config.env)
            raise UserError(
                f"env.{name}: the configuration doesn't allow this variable.{hint}", field="space"
            )
    names = [*(each.name for each in space.parameters), *space.fixed, space.output_flag]
    parameters = {variable(name) for name in names if name}
    used = parameters if space.flags is FlagStyle.ENV else set()
    for name in (*space.env, *secret_keys):
        if name in used:
            raise UserError(f"{name} is set twice, by env, secrets, or a parameter.", field="space")
        used.add(name)


def _check_paths(shape: PodShape) -> None:
    """Kubernetes rejects a pod with two mounts at one path."""
    seen: set[str] = set()
    for each in shape.volumes:
        if each.at.rstrip("/") in seen:
            raise UserError(f"volumes: two volumes are mounted at {each.at}. Remove one.", field="space")
        seen.add(each.at.rstrip("/"))
