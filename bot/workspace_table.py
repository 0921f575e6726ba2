"""What runs beside sweeps, and what it adds to the processes, to `/gpus`, and to the doctor.

To delete a workspace, delete its folder, its lines here, its tests, and its files in `handlers/`,
`bot/operate/`, and `k8s/`; `make deletable` tries that with each. Its keys of the configuration stay, because
measurements and bills know them: without it, they have no effect.

Services go with environments: a service is an environment without a home. Both have the same record, states,
message, buttons, limits, and words after `/env`. `environments` runs services, and `services`, which says
what one consists of, must not know environments.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

from slack_bolt.async_app import AsyncApp

from bot.core.finding import Finding
from bot.measure.gpus.command import table_of
from bot.operate.check_elastic import elastic as check_elastic
from bot.operate.check_environments import environments as check_environments
from bot.operate.check_reservations import reservations as check_reservations
from bot.platform.clients import Clients
from bot.platform.config.policy import Config
from bot.platform.config.settings import Settings
from bot.workspaces.elastic import ROOM as ELASTIC
from bot.workspaces.environments import ROOM as ENVIRONMENTS
from bot.workspaces.reservations import ROOM as RESERVATIONS
from bot.workspaces.room import Room
from handlers.context import HandlerContext
from handlers.elastic_buttons import add_elastic_buttons
from handlers.slash_env import add_env
from k8s.api.client import KubernetesClient

Check = Callable[[KubernetesClient, Settings, Config], Awaitable[list[Finding]]]


@dataclass(frozen=True, kw_only=True)
class Workspace:
    room: Room
    check: Check  # for the doctor
    handlers: Callable[[AsyncApp, HandlerContext], None] = lambda *_: None


WORKSPACES: Mapping[str, Workspace] = {
    "environments": Workspace(room=ENVIRONMENTS, check=check_environments, handlers=add_env),
    "elastic": Workspace(room=ELASTIC, check=check_elastic, handlers=add_elastic_buttons),
    "reservations": Workspace(room=RESERVATIONS, check=check_reservations),
}
ROOMS = tuple(each.room for each in WORKSPACES.values())
GPUS = table_of(command for room in ROOMS for command in room.gpu_commands)


def add_handlers(app: AsyncApp, context: HandlerContext) -> None:
    for each in WORKSPACES.values():
        each.handlers(app, context)


def checks(
    cluster: KubernetesClient, settings: Settings, config: Config
) -> Iterator[tuple[str, Awaitable[list[Finding]]]]:
    """Yield the doctor's checks, by name."""
    for name, each in WORKSPACES.items():
        yield name, each.check(cluster, settings, config)


async def lines(clients: Clients) -> str:
    """Return what `/gpus` and the digest show below free GPUs; "" for nothing."""
    return "\n".join(filter(None, [await room.line(clients) for room in ROOMS if room.line]))
