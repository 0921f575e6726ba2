"""Handle the request to start a service, or say why its name is taken. The other requests are handled as
those about environments.
"""

from typing import Any

from bot.core.errors import UserError
from bot.platform.clients import Clients
from bot.platform.config.teams import team_of
from bot.platform.slack.mrkdwn import code
from bot.workspaces.environments import cluster
from bot.workspaces.environments.permissions import service_start_denial, size_denial
from bot.workspaces.environments.record import Environment, EnvironmentRecord
from bot.workspaces.environments.requests import EnvironmentRequest, write_audit
from bot.workspaces.services.snippet import Service


async def start_service(
    request: EnvironmentRequest, service: Service, everything: list[Environment], clients: Clients
) -> None:
    """Create the service. Raises UserError, and logs denials."""
    existing = next((each.record for each in everything if each.record.name == request.name), None)
    if existing and existing.request_id != request.request_id:
        raise UserError(_taken(existing, request.user))
    if existing is None:
        gpus = service.gpus * service.replicas
        record = new_record(request, clients, request.name, image=service.image, gpus=gpus, service=service)
        others = [each.record for each in everything]
        refusal = service_start_denial(request.user, request.channel, clients.config)
        refusal = refusal or size_denial(request.user, record, others, clients.config)
        write_audit(request, request.name, refusal)
        if refusal:
            raise UserError(refusal)
        await cluster.create(record, clients)
    await clients.queue.add(cluster.item(request.name))


def _taken(existing: EnvironmentRecord, user: str) -> str:
    name = code(existing.name)
    if existing.service and existing.owner == user:
        fix = f"To change it, delete it first: `/env service delete {existing.name}`."
        return f"You already have a service {name}. {fix}"
    return f"The name {name} is used by another service or environment. Use another name."


def new_record(request: EnvironmentRequest, clients: Clients, name: str, **what: Any) -> EnvironmentRecord:
    """Return the record of a new environment or service of who requested it. `what`: the other fields."""
    return EnvironmentRecord(
        name=name,
        owner=request.user,
        owner_name=request.user_name,
        team=team_of(clients.config.teams, "", request.user),
        channel=request.channel,
        request_id=request.request_id,
        since=clients.now(),
        **what,
    )
