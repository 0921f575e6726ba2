"""Fill the modal with an environment's link and credentials, which nothing stores, for its owner only."""

from bot.clients import Clients
from bot.environments import cluster
from bot.environments.access_view import access, refused
from bot.environments.login import login
from bot.environments.record import Environment, Wanted
from bot.environments.spec import spec_of, url_of
from bot.slack.mrkdwn import code


async def show(view: str, environment: Environment, clients: Clients) -> None:
    """Fill the modal, for the owner only: the caller has checked that. Raises UserError."""
    record = environment.record
    if record.wanted is not Wanted.RUNNING or record.ready_at is None:
        why = f"{code(record.name)} isn't running. The environment's message shows why."
        return await clients.slack.update_view(view, refused(why))
    spec = spec_of(record, clients.config)
    password = login(clients.settings.slack_bot_token.get_secret_value(), environment.uid, record.starts)
    url = url_of(record.name, cluster.configured(clients.config))
    return await clients.slack.update_view(view, access(record, spec, url, password))


async def show_refusal(view: str, why: str, clients: Clients) -> None:
    await clients.slack.update_view(view, refused(why))
