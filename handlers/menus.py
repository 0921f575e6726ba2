"""Offer the options of the form's menus (repositories, branches, spaces), in their order, or a note why there
are none, from cached names: Slack waits 3 seconds.
"""

import logging
from collections.abc import Iterable

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp

from bot.core.errors import UserError
from bot.platform.config.policy import Config, repository
from bot.platform.repos.catalog import GitNames
from bot.platform.slack.blocks import MAX_OPTIONS, MAX_VALUE, NOTHING, Option, masked, option
from bot.sweep.form.view import BRANCH_MENU, REPO_MENU, SPACE_MENU
from handlers.context import Body, HandlerContext
from handlers.launch_form import hidden

log = logging.getLogger(__name__)

MAIN_BRANCHES = ("main", "master")  # listed first


def repositories(config: Config, typed: str) -> list[Option]:
    address = typed.strip()
    fitting = [each for each in config.repositories if address.lower() in f"{each.name} {each.url}".lower()]
    urls = {each.name: each.url.partition("://")[2].removesuffix(".git") for each in fitting}
    found = [option(name, url) for name, url in urls.items() if len(name) <= MAX_VALUE]
    if config.allowed_urls and address.startswith("https://") and len(address) <= MAX_VALUE:
        found.append(option(address))
    return found[:MAX_OPTIONS]


def names(known: GitNames, typed: str, *, first: Iterable[str] = ()) -> list[Option]:
    """Return the matching names, and the typed text: it can be a tag, or git can be unreachable."""
    typed = typed.strip()
    ahead = {name: place for place, name in enumerate(dict.fromkeys([*first, *MAIN_BRANCHES]))}
    fitting = [one for one in known.names if typed.lower() in one.name.lower() and len(one.name) <= MAX_VALUE]
    fitting.sort(key=lambda one: (ahead.get(one.name, len(ahead)), not one.name.startswith(typed), one.name))
    found = [option(one.name, one.about) for one in fitting[: MAX_OPTIONS - 2]]
    if typed and len(typed) <= MAX_VALUE and typed not in {one.name for one in known.names}:
        found.append(option(typed, "Not in the list; Sweepbot checks it when you click Preview"))
    if known.error:
        since = f" (list from {known.at:%H:%M} UTC)" if known.at else ""
        return found + _note(f"⚠ {known.error}{since}")
    return found if known.at else found + _note("⚠ No answer from git yet. Type a name or reopen the menu")


def add_menus(app: AsyncApp, context: HandlerContext) -> None:
    @app.options(REPO_MENU)
    async def repos(ack: AsyncAck, body: Body) -> None:
        await ack(options=repositories(context.config, body.get("value", "")))

    @app.options(BRANCH_MENU)
    async def branches(ack: AsyncAck, body: Body) -> None:
        await ack(options=masked(await _offered(context, body, ""), context.mask))

    @app.options(SPACE_MENU)
    async def spaces(ack: AsyncAck, body: Body) -> None:
        branch = hidden(body["view"]).get("branch")
        found = await _offered(context, body, branch) if branch else _note("Choose a branch first")
        await ack(options=masked(found, context.mask))


async def _offered(context: HandlerContext, body: Body, branch: str) -> list[Option]:
    """Return the spaces of a branch; without one, the branches, that of the last sweep first."""
    try:
        url = repository(hidden(body["view"]).get("repo"), context.config).url
        last = None if branch else await context.drafts.last(body["user"]["id"])
        known = await context.catalog.names(url, branch)
    except UserError as error:
        return _note(str(error))
    except RedisError as error:
        log.warning("can't load a menu: %s", error)
        return _note("Can't reach Redis. Try again.")
    return names(known, body.get("value", ""), first=[last.options["branch"]] if last else [])


def _note(text: str) -> list[Option]:
    return [option(NOTHING, text=text)]
