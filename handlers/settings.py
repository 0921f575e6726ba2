"""Handle /sweep setup, a new user's choice of a team, and /sweep me: a person's notifications, quiet hours,
time zone, and muted sweeps, with the words that mean them; a worker stores them all.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Mapping
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action
from bot.core.errors import UserError
from bot.core.ids import SWEEP_ID, is_meant
from bot.core.request import Notify
from bot.platform.commands.grammar import Command, Option, Table
from bot.platform.commands.option_types import Choice, Matching, invalid
from bot.platform.config.permissions import doctor_denial
from bot.platform.config.personal import QUIET, Personal
from bot.platform.slack.blocks import modal, section
from bot.platform.slack.mrkdwn import code, direct, plain
from bot.sweep.answers.command_parser import ParsedCommand, choose
from bot.sweep.channels.models import ChannelSetup
from bot.sweep.channels.store import REQUESTS, SetupRequest, dump
from bot.sweep.channels.views import (
    SETUP_FORM,
    TEAM_CHOICE,
    ZONE,
    all_zones,
    read_setup,
    saving,
    setup_form,
    zones,
)
from bot.sweep.launch.options import NOTIFY, NOTIFY_WORDS
from bot.text.wording import did_you_mean, listed
from handlers.buttons import tell
from handlers.context import ACK_TIMEOUT, SLACK_ERRORS, Body, HandlerContext, stored, trigger_of
from handlers.slash_token import GROUP

log = logging.getLogger(__name__)

NOT_LOADED = "Settings aren't loaded yet. Try again in a few seconds."
NO_ZONE = "Slack doesn't say your time zone. Add it, for example zone=Europe/Berlin."
_TIME = r"([0-9]{1,2}|midnight|noon)(?::([0-5][0-9]))? ?(am|pm|h)?"
_VERB = r"\b(?:stop|quit|no|do not|don'?t|never) \w+(?: me)?(?: anything)?"
SPAN = rf"(?:{_VERB} )?(?:\b(?:from|between) )?\b{_TIME} ?(?:[-–]|to|and|until|till?) ?{_TIME}(?![\w:])"
_sweep = Matching(SWEEP_ID.pattern, "the name of a sweep, such as lr-brave-otter")


def _quiet(key: str, text: str, _context: Any) -> str:
    if text.lower() == "off":
        return ""
    found = re.fullmatch(SPAN, text.strip().lower())
    first, last = (_time(*found.groups()[at : at + 3]) for at in (0, 3)) if found else ("", "")
    if first == last or not QUIET.fullmatch(f"{first}-{last}"):
        raise invalid(key, "hours such as 22:00-07:00, or off", text)
    return f"{first}-{last}"


def _time(hour: str, minute: str | None, half: str | None) -> str:
    """Return `23:00` for 11 pm."""
    hours = int({"midnight": "0", "noon": "12"}.get(hour, hour))
    if half in {"am", "pm"} and hours <= 12:
        hours = hours % 12 + 12 * (half == "pm")
    return f"{hours:02}:{minute or '00'}"


def _zone(key: str, text: str, _context: Any) -> str:
    known = {each.lower(): each for each in all_zones()}
    if text.lower() not in known:
        raise invalid(key, "a time zone such as Europe/Berlin", text, did_you_mean(text, known.values()))
    return known[text.lower()]


WORDS = {said: value for said, value in NOTIFY_WORDS.items() if said != "quiet"}
AT_NIGHT = dict.fromkeys(("me at night", "during night", "overnight"), "22:00-07:00")
ME = Command(
    "me",
    None,
    (
        Option("notify", Choice(tuple(Notify)), example="dm", means=WORDS),
        Option("quiet", _quiet, example="22:00-07:00", free=True, span=SPAN, means=AT_NIGHT),
        Option("zone", _zone, example="Europe/Berlin"),
        Option("mute", _sweep, example="SWEEP"),
        Option("unmute", _sweep, example="SWEEP"),
    ),
    GROUP,
    "your notifications",
    usage="[quiet=22-7]",
    said="quiet weekday weekend only-ping wake-me only-wake dont-wake only-dm only-notify setting "
    "preference dnd disturb dont-disturb mute unmute silent silence quieter noisy spam quiet-hour "
    "always-dm always-notify always-ping from-now-on dont-ping dont-dm dont-message dont-notify dont-bother "
    "dont-mention dont-tag be-pinged be-mentioned be-notified stop-mentioning stop-tagging "
    "stop-ping stop-dm stop-notify stop-message stop-bother stop-spam too-many-message too-much-message "
    "too-many-notification fewer-message less-message leave-me-alone stop-notification all-notification "
    "no-notification no-ping no-dm no-channel-mention no-channel-ping stop-channel-ping "
    "stop-channel-notification turn-off-dm turn-off prefer-dm prefer-dms time-zone timezone "
    "notification privately my-dm notify-me-by change-how-you "
    "(ping always default dm none notify notification my message send channel night weekend until between)",
)
TABLE = Table(prefix="/sweep", commands=(ME,))


def add_setup(app: AsyncApp, context: HandlerContext) -> None:
    @app.options(ZONE)
    async def offered(ack: AsyncAck, body: Body) -> None:
        await ack(options=zones(body.get("value", "")))

    @app.view(SETUP_FORM)
    async def submitted(ack: AsyncAck, body: Body) -> None:
        channel, settings = read_setup(body["view"])
        request = SetupRequest(
            user=body["user"]["id"], channel=channel, settings=settings, view=body["view"]["id"]
        )
        refusal = doctor_denial(request.user, context.config)
        refusal = refusal or await stored("a setup", context.add_request(str(REQUESTS), dump(request)))
        answer = modal("Set up this channel", [section(refusal)]) if refusal else saving()
        await ack(response_action="update", view=answer)

    @app.action(TEAM_CHOICE)
    async def chosen(ack: AsyncAck, body: Body, action: Body, respond: AsyncRespond) -> None:
        await ack()
        request = SetupRequest(user=body["user"]["id"], team=action["selected_option"]["value"])
        if trouble := await stored("a setup", context.add_request(str(REQUESTS), dump(request))):
            await tell(respond, body, trouble)


async def open_setup(context: HandlerContext, web: AsyncWebClient, command: Body) -> str:
    """Open the setup form. Return an error, or ""."""
    channel = command["channel_id"]
    if refusal := doctor_denial(command["user_id"], context.config):
        return refusal
    if direct(channel):
        return "Run `/sweep setup` in the channel you want to set up."
    if not context.channel_setup.loaded:
        with contextlib.suppress(RedisError):
            await context.channel_setup.refresh()
    if not context.channel_setup.loaded:
        return NOT_LOADED
    settings = context.channel_setup.setup.channels.get(channel, ChannelSetup())
    try:
        async with asyncio.timeout(ACK_TIMEOUT):
            view = setup_form(channel, settings, context.config)
            await web.views_open(trigger_id=trigger_of(command), view=view)
    except SLACK_ERRORS as error:
        log.warning("can't open the setup form: %r", error)
        return "Slack couldn't open the form. Run `/sweep setup` again."
    return ""


async def answer_me(
    context: HandlerContext, rest: str, fields: Mapping[str, Any], web: AsyncWebClient
) -> str:
    """Return the reply, which shows the settings. Raises UserError, RedisError, TimeoutError.

    `fields`: of the slash command.
    """
    values, user = TABLE.read(ME, rest).values(), fields["user_id"]
    if not context.channel_setup.loaded:
        return NOT_LOADED
    before = context.config.people.get(user, Personal())
    if not values:
        words = " ".join(each.usage for each in ME.options)
        return f"{described(before)} Change it: `/sweep {ME.name} {words}`"
    try:
        if "mute" in values:
            values["mute"] = await _sweep_named(values["mute"], user, context)
        if "unmute" in values:
            values["unmute"] = _muted(values["unmute"], before)
    except UserError as unknown:  # not raised: the command is typed as it should be
        return str(unknown)
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


async def _sweep_named(typed: str, user: str, context: HandlerContext) -> str:
    """Return the sweep that a name or a part of it means, as in `/sweep status`. Raises UserError."""
    async with asyncio.timeout(ACK_TIMEOUT):
        parsed = ParsedCommand(action=Action.STATUS, sweep=typed)
        sweep = choose(parsed, user, await context.store.listed(), context.config).sweep
        if not await context.store.records([sweep]):
            raise UserError(f"No sweep named {code(sweep)}.")
    return sweep


def _muted(typed: str, own: Personal) -> str:
    """Return the muted sweep that a name or a part of it means. Raises UserError. Pure."""
    found = [typed] if typed in own.muted else [each for each in own.muted if is_meant(each, typed)]
    if len(found) != 1:
        muted = listed([code(each) for each in own.muted]) or "none"
        raise UserError(f'unmute= must be one of your muted sweeps; got "{typed}". Muted: {muted}.')
    return found[0]


async def _own_zone(user: str, web: AsyncWebClient) -> str:
    """Return the time zone of their Slack profile; "" if Slack doesn't say it."""
    zone = ""
    with contextlib.suppress(*SLACK_ERRORS):
        async with asyncio.timeout(ACK_TIMEOUT):
            zone = str((await web.users_info(user=user))["user"].get("tz") or "")
    return zone if zone in all_zones() else ""
