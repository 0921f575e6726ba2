"""Choose the machines of an environment by a profile of trials. Pure.

A profile decides where the pod runs and what its GPUs are. CPU and memory are those of the size.
"""

from dataclasses import replace

from bot.config.policy import Config
from bot.config.profiles import Profile, chosen, shaped
from bot.core.errors import UserError
from k8s.katib.pod_shape import PodShape


def checked_gpus(profile: str, wanted: int | None, before: int, profiles: tuple[Profile, ...]) -> int:
    """Return the GPUs of an environment: `wanted`, or else as before, or else one if the profile has GPUs.

    Raises UserError, with its field, for an unknown profile and for one that contradicts `wanted`.
    """
    found = chosen(profiles, profile, None) if profile else None
    if found is None:
        return before if wanted is None else wanted
    if wanted is None:
        return before or 1 if found.gpus else 0
    if found.gpus and not wanted:
        raise UserError(f"gpus= must be at least 1 with profile={profile}, which has GPUs.", field="gpus")
    if wanted and not found.gpus:
        raise UserError(f"gpus= must be 0 with profile={profile}, which has no GPUs.", field="gpus")
    return wanted


def shape_of(profile: str, gpus: int, config: Config) -> PodShape:
    """Return where the pod runs, and what its GPUs are.

    Without a profile, a pod with GPUs runs where trials run, and others run anywhere.
    Raises UserError if the profile is no longer configured.
    """
    if not profile:
        return config.trials if gpus else PodShape()
    found = chosen(config.profiles, still_configured(profile, config.profiles), None)
    return replace(shaped(config.trials, found, gpus), pack=False)


def still_configured(profile: str, profiles: tuple[Profile, ...]) -> str:
    """Return the profile of a record, which can be "". Raises UserError if it is no longer configured."""
    if not profile or profile in {each.name for each in profiles}:
        return profile
    fix = "Start the environment with another profile=, or delete it and start a new one: its home is kept."
    raise UserError(f"Profile {profile} is no longer configured. {fix}", field="profile")
