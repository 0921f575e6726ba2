"""A turn for a filled form: ask git what the sweep would be, and show that, or what is wrong, in its view."""

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from bot.access import may_hold
from bot.aside import aside
from bot.blocks import View
from bot.config import repository
from bot.drafts import ITEM, Drafts, Filled
from bot.forms import about, form
from bot.git import GitUnavailable
from bot.identity import candidates
from bot.known import Known
from bot.lookup import look_up
from bot.models import UserError
from bot.mrkdwn import plain
from bot.observing import limited_of, peak_of
from bot.outside import Outside
from bot.planning import plan
from bot.preview import preview
from bot.slack import NotTaken

log = logging.getLogger(__name__)

RECENT = timedelta(minutes=5)  # older figures of free GPUs are none


async def show(item: str, outside: Outside, drafts: Drafts, known: Known) -> None:
    """Nothing is made by it, so it may be done again at any time."""
    view_id = item.removeprefix(f"{ITEM}: ")
    filled = await drafts.get(view_id)
    if filled and not filled.left:
        try:
            view = await _view(view_id, filled, outside, await _free(known, outside.now()))
            if await drafts.get(view_id) == filled:  # git takes seconds
                await outside.slack.update_view(view_id, view)
        except NotTaken as error:  # ever: the form stays at its last word
            log.warning("Slack does not take a preview: %s", error)


async def _free(known: Known, now: datetime) -> int | None:
    seen = await known.latest()
    return sum(node.free for node in seen.nodes) if seen and now - seen.at < RECENT else None


async def _view(view_id: str, filled: Filled, outside: Outside, free: int | None) -> View:
    request, draft, config = filled.request, filled.draft, outside.config
    try:
        order = await look_up(
            outside.git,
            repository(request.repo, config, draft.channel),
            request,
            config,
            sweep=candidates(request.name or request.space, view_id)[0],
            owner=filled.user,
            delivery=view_id,
        )
        home = config.homes.get(draft.channel, "")
        made = await aside(plan, replace(order, namespace=home), outside.settings)
    except UserError as error:
        return form(draft, config, about(plain(str(error)), draft))
    except GitUnavailable as error:
        return form(draft, config, {"": f"The git host does not answer; try again. {plain(str(error))}"})
    others = peak_of(await limited_of(filled.user, outside))
    if refusal := may_hold(filled.user, made, config, others):
        return form(draft, config, {"parallel": refusal})
    return preview(draft, request, made, config, free)
