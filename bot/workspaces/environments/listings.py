"""Answer /env list and /env service list."""

from bot.platform.clients import Clients
from bot.platform.config.teams import team_of
from bot.workspaces.environments import cluster
from bot.workspaces.environments.message import listing
from bot.workspaces.environments.record import Environment
from bot.workspaces.environments.requests import EnvironmentRequest
from k8s.objects import HOME_LABEL, Manifest


async def answer_list(request: EnvironmentRequest, everything: list[Environment], clients: Clients) -> str:
    """Return the user's or the team's environments, or services."""
    things, starter = ("services", "/env service") if request.services else ("environments", "/env start")
    everything_of_kind = [each for each in everything if bool(each.record.service) == request.services]
    team = team_of(clients.config.teams, "", request.user)
    if request.which == "":
        mine = [each for each in everything_of_kind if each.record.owner == request.user]
        homes = [] if request.services else await _unused_homes(request.user, everything, clients)
        return listing(mine, homes, f"Your {things}", starter)
    ours = [each for each in everything_of_kind if not team or each.record.team == team]
    title = f"{things.capitalize()} of team {team}" if team else f"All {things}"
    if request.which == "idle":
        ours = [each for each in ours if each.record.warned_at]
        title = f"Idle environments of team {team}" if team else "All idle environments"
        if not ours:
            return f"{title}: none."
    return listing(ours, [], title, starter)


async def _unused_homes(user: str, everything: list[Environment], clients: Clients) -> list[tuple[str, str]]:
    used = {each.record.home for each in everything}
    found = [each for each in await cluster.homes(clients) if cluster.owner_of(each) == user]
    homes = [(each["metadata"]["labels"][HOME_LABEL], _size(each)) for each in found]
    return [(name, size) for name, size in homes if name not in used]


def _size(claim: Manifest) -> str:
    return str(claim["spec"]["resources"]["requests"].get("storage", ""))
