"""Handle /sweep me: a person's own settings, which a worker stores, as those of channels."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.core.ids import SWEEP_ID
from bot.core.request import Notify
from bot.platform.commands.grammar import Command, Option, Table
from bot.platform.commands.option_types import Choice, Matching, invalid
from bot.platform.config.personal import QUIET, Personal
from bot.platform.slack.mrkdwn import code, plain
from bot.sweep.channels.store import REQUESTS, SetupRequest, dump
from bot.sweep.channels.views import ZONES
from bot.sweep.launch.options import NOTIFY, NOTIFY_WORDS
from bot.text.wording import did_you_mean, listed
from handlers.context import ACK_TIMEOUT, SLACK_ERRORS, HandlerContext
from handlers.slash_token import GROUP

NO_ZONE = "Slack doesn't say your time zone. Add it, for example zone=Europe/Berlin."
_sweep = Matching(SWEEP_ID.pattern, "the name of a sweep, such as lr-brave-otter")


def _quiet(key: str, text: str, _context: Any) -> str:
    if text.lower() == "off":
        return ""
    found = QUIET.fullmatch(text.replace(" ", ""))
    first, last = (f"{int(found[n]):02}:{found[n + 1] or '00'}" for n in (1, 3)) if found else ("", "")
    if first == last:
        raise invalid(key, "hours such as 22:00-07:00, or off", text)
    return f"{first}-{last}"


def _zone(key: str, text: str, _context: Any) -> str:
    known = {each.lower(): each for each in ZONES}
    if text.lower() not in known:
        raise invalid(key, "a time zone such as Europe/Berlin", text, did_you_mean(text, known.values()))
    return known[text.lower()]


WORDS = {said: value for said, value in NOTIFY_WORDS.items() if said != "quiet"}
ME = Command(
    "me",
    None,
    (
        Option("notify", Choice(tuple(Notify)), example="dm", means=WORDS),
        Option("quiet", _quiet, example="22:00-07:00", free=True),
        Option("zone", _zone, example="Europe/Berlin"),
        Option("mute", _sweep, example="SWEEP"),
        Option("unmute", _sweep, example="SWEEP"),
    ),
    GROUP,
    "your notifications",
    usage="[quiet=22-7]",
    said="setting mute unmute quiet-hour always-dm always-notify always-ping from-now-on dont-ping dont-dm "
    "stop-ping stop-dm stop-notify (ping always default dm notify notification quiet my)",
)
TABLE = Table(prefix="/sweep", commands=(ME,))


async def answer_me(
    context: HandlerContext, rest: str, fields: Mapping[str, Any], web: AsyncWebClient
) -> str:
    """Return the reply, which shows the settings. Raises UserError, RedisError, TimeoutError.

    `fields`: of the slash command.
    """
    values, user = TABLE.read(ME, rest).values(), fields["user_id"]
    if not context.channel_setup.loaded:
        return "Settings aren't loaded yet. Try again in a few seconds."
    before = context.config.people.get(user, Personal())
    if not values:
        words = " ".join(each.usage for each in ME.options)
        return f"{described(before)} Change it: `/sweep {ME.name} {words}`"
    if "mute" in values and not await _is_known(values["mute"], context):
        return f"No sweep is named {code(values['mute'])}. Its name is in its message, and in `/sweep list`."
    if values.get("quiet") and not (before.zone or "zone" in values):
        values["zone"] = await _own_zone(user, web)
        if not values["zone"]:
            return NO_ZONE
    values["name"] = fields.get("user_name") or before.name
    await context.add_request(str(REQUESTS), dump(SetupRequest(user=user, own=values)))
    return f"Saved. {described(before.changed(values))}"


def described(own: Personal) -> str:
    """Return the settings in sentences. Pure."""
    notify = NOTIFY[Notify(own.notify or Notify.CHANNEL)]
    quiet = f"{own.quiet} ({plain(own.zone)}): what comes then is in one message at their end"
    muted = f" Muted: {listed([code(each) for each in own.muted])}." if own.muted else ""
    return f"Notify of your sweeps: {plain(notify)}. Quiet hours: {quiet if own.quiet else 'none'}.{muted}"


async def _is_known(sweep: str, context: HandlerContext) -> bool:
    async with asyncio.timeout(ACK_TIMEOUT):
        return bool(await context.store.records([sweep]))


async def _own_zone(user: str, web: AsyncWebClient) -> str:
    """Return the time zone of their Slack profile; "" if Slack doesn't say it."""
    zone = ""
    with contextlib.suppress(*SLACK_ERRORS):
        async with asyncio.timeout(ACK_TIMEOUT):
            zone = str((await web.users_info(user=user))["user"].get("tz") or "")
    return zone if zone in ZONES else ""
