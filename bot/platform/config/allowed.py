"""Volumes and Secrets that a space file can name, variables that none can set, and the volume for outputs:
`volumes:`, `secrets:`, and `output:` of the configuration file. Pure.
"""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from bot.platform.config.rules import Key, Matching, Name, Several
from bot.platform.config.section import Section
from bot.platform.config.trial_pods import VolumeKeys
from bot.platform.config.value_types import PLAIN_PATH, Claim, FlagName, SecretName, TeamName, Text, Variable
from k8s.katib.pod_shape import SecretVariables, Volume

# Variables that Sweepbot or Katib sets, and those that change which program runs, or on which GPUs.
OWN = re.compile(
    r"MLFLOW_.*|SWEEPBOT_.*|KATIB_.*|PYTHONUNBUFFERED|HOME|USER|PATH|LD_.*|NVIDIA_VISIBLE_DEVICES"
)
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def _not_own(name: str) -> str:
    if OWN.fullmatch(name):
        raise ValueError(f"{name} can't be allowed: Sweepbot or the image sets it")
    return name


AllowedName = Annotated[str, Name(NAME, "have only lowercase letters, digits, dots, dashes, and underscores")]
AllowedVariable = Annotated[Variable, AfterValidator(_not_own)]
Teams = Annotated[Several[TeamName], Key("[vision]", "everyone")]


@dataclass(frozen=True, kw_only=True)
class AllowedVolume(VolumeKeys):
    name: AllowedName
    teams: Teams = ()
    """Teams whose members can use it."""


@dataclass(frozen=True, kw_only=True)
class AllowedSecret(Section):
    name: AllowedName
    secret: Annotated[SecretName, Key("wandb-login")]
    """Secret in the trials' namespace."""
    keys: Annotated[Several[AllowedVariable], Key("[WANDB_API_KEY]")]
    """Keys of the Secret, each of which becomes a variable of the same name."""
    teams: Teams = ()
    """Teams whose members can use it."""

    @property
    def variables(self) -> SecretVariables:
        return SecretVariables(name=self.secret, keys=self.keys)


@dataclass(frozen=True, kw_only=True)
class Output(Section):
    """The volume with a directory for each trial, which outlives the trial's pod."""

    claim: Annotated[Claim, Key("checkpoints")]
    """PersistentVolumeClaim in the trials' namespace. Trials write to `SWEEP/TRIAL` in it, so it must be
    writable for their user, and `ReadWriteMany` if they run on several nodes."""
    at: Annotated[
        Text,
        Matching(PLAIN_PATH, "an absolute path of letters, digits, dots, dashes, and underscores", "path"),
        Key("/ckpt"),
    ]
    """Mount path of letters, digits, dots, dashes, and underscores."""
    flag: Annotated[FlagName, Key("output_dir", "none, unless the space file sets `output_flag`")] = ""
    """Flag that passes the directory to every trial, also in sweeps over seeds."""

    @property
    def volume(self) -> Volume:
        return Volume(claim=self.claim, at=self.at, read_only=False)
