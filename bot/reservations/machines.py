"""The machines that a reservation is for: those of a profile, and of the team. Pure."""

from bot.config.policy import Config
from bot.config.profiles import Profile, chosen, shaped
from bot.core.errors import UserError
from bot.launch.pods import on_machines_of
from bot.reservations.models import Reservation
from bot.text.wording import listed
from k8s.katib.pod_shape import PodShape
from k8s.objects import GPU


def profile_of(name: str | None, config: Config) -> Profile | None:
    """Return the profile of a request; None without `profile=`. Raises UserError if it can't be reserved."""
    with_gpus = [each for each in config.profiles if each.gpus]
    names = f"Available: {listed([each.name for each in with_gpus])}." if with_gpus else "Add one with GPUs."
    if name is None:
        if with_gpus and GPU not in {each.resource for each in with_gpus}:
            raise UserError(f"Missing profile=, because no profile requests {GPU}. {names}")
        return None
    found = chosen(config.profiles, name, None)
    if found and not found.gpus:
        raise UserError(f"profile= must be a profile with GPUs; {found.name} has none. {names}")
    return found


def shape_of(one: Reservation, config: Config) -> PodShape:
    """Return where its team's trials with this profile run. A profile that was removed has no machines."""
    profile = next((each for each in config.profiles if each.name == one.profile), None)
    team = next((each for each in config.teams if each.name == one.team), None)
    return on_machines_of(team, shaped(config.trials, profile, profile.gpus if profile else 0))
