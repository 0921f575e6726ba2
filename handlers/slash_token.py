"""Handle /sweep token: a personal token for the HTTP API, with its days and budget, shown once, to its person
alone; revoke one's own, or as an admin, another person's.
"""

import asyncio
import re
from datetime import timedelta
from secrets import token_hex
from typing import Any

from bot.core.budget import AMOUNT, RULE, amount_of, read_budget
from bot.platform.commands.grammar import Command, Option, Table
from bot.platform.commands.option_types import Matching, Number
from bot.platform.config.permissions import doctor_denial
from bot.platform.config.policy import Config
from bot.platform.runtime.audit import audit
from bot.platform.slack.mrkdwn import code, direct, local_time, plain, quoted
from bot.platform.storage.api_tokens import MAX_TOKENS, TokenOwner
from bot.text.wording import counted, listed
from handlers.context import ACK_TIMEOUT, HandlerContext

GROUP = "Yourself"  # in the help
OFF = "The HTTP API is off. *Fix:* Ask an admin to set `SWEEPBOT_API_PORT`."
USER = re.compile(r"[UW][A-Z0-9]{2,}")
MENTION = re.compile(rf"<@({USER.pattern})(?:\|[^<>]*)?>")
DAYS = Option("days", Number(1, 90), example="30")
BUDGET = Option("budget", Matching(AMOUNT.pattern, RULE.format("$100")), example="40")
DEFAULT_DAYS = 30
COMMANDS = (
    Command(
        "token",
        None,
        (DAYS, BUDGET),
        GROUP,
        "your token for the HTTP API; its threads are here",
        said="token api (need get)",
    ),
    Command("token revoke", None, said="revoke"),  # named by the answer to `token`
)


def _person(_key: str, text: str, _context: Any) -> str:
    """Read a mention, an ID, or a name, which Slack sends as it was typed."""
    mentioned = MENTION.fullmatch(text)
    return mentioned[1] if mentioned else text.removeprefix("@")


PERSON = Option("person", _person, word=True, required=True, whole=True)
REVOKE = Command("admin revoke", None, (PERSON,))  # the help has no room for it
TABLE = Table(prefix="/sweep", commands=(*COMMANDS, REVOKE))


async def revoke_of(context: HandlerContext, typed: Command, rest: str, admin: str) -> str:
    """Revoke the tokens of another person, for an admin; return the reply. Raises as `answer_token`."""
    wanted = TABLE.read(typed, rest).values()["person"]
    refused = doctor_denial(admin, context.config)
    audit.info("user=%s: revoke all tokens of %r of the API: %s", admin, wanted, refused or "allowed")
    if refused or context.tokens is None:
        return refused or OFF
    async with asyncio.timeout(ACK_TIMEOUT):
        owners = await context.tokens.owners()
        found = [user for user, name in owners.items() if name.lower() == wanted.lower()]
        if wanted in owners or (not found and USER.fullmatch(wanted)):
            found = [wanted]
        if len(found) != 1:
            return _unclear(wanted, {user: owners[user] for user in found} or owners, several=bool(found))
        count = await context.tokens.revoke_all(found[0])
    return f"{counted(count, 'token')} of {plain(owners.get(found[0]) or found[0])} revoked."


def _unclear(wanted: str, owners: dict[str, str], *, several: bool) -> str:
    which = "Several people are" if several else "No owner of a token is"
    named = listed(sorted(f"{plain(name)} ({user})" for user, name in owners.items()))
    return f"{which} named {code(wanted)}. Name one by the ID: {named or 'there are no tokens'}."


async def answer_token(context: HandlerContext, typed: Command, rest: str, fields: dict[str, Any]) -> str:
    """Return the reply. Raises UserError, RedisError, TimeoutError.

    `fields`: of the slash command.
    """
    values = TABLE.read(typed, rest).values()
    if context.tokens is None:
        return OFF
    user, channel = fields["user_id"], fields["channel_id"]
    if typed.name == "token revoke":
        async with asyncio.timeout(ACK_TIMEOUT):
            count = await context.tokens.revoke_all(user)
        audit.info("user=%s: revoked all tokens of the API", user)
        return f"{counted(count, 'token')} revoked."
    if "request_id" in fields:  # said or clicked: where the answer can stay, or be seen by others
        return "A token is shown only to you, and only once. Type `/sweep token` to get one."
    if direct(channel):
        return "Run `/sweep token` in the channel where its sweeps are to have their threads."
    budget = values.get("budget", "")
    if wrong := _budget_problem(budget, context.config):
        return wrong
    valid = timedelta(days=values.get("days", DEFAULT_DAYS))
    owner = TokenOwner(
        user=user,
        user_name=fields.get("user_name", ""),
        channel=channel,
        team=fields.get("team_id", ""),
        enterprise=fields.get("enterprise_id") or "",
        budget=budget,
        account=token_hex(8) if budget else "",
    )
    async with asyncio.timeout(ACK_TIMEOUT):
        token = await context.tokens.create(owner, valid)
    if token is None:
        return f"You have {MAX_TOKENS} valid tokens, the maximum. Revoke all with `/sweep token revoke`."
    audit.info("user=%s channel=%s budget=%s: got a token of the API", user, channel, budget or "none")
    until = local_time(context.now() + valid)
    limit = (
        f" Above {amount_of(budget).text()} in a month, its sweeps wait for your approval." if budget else ""
    )
    return (
        f"Your token for the HTTP API, shown only now: `{token}`\nValid until {until}. Its sweeps have their "
        f"threads in this channel.{limit} Who has it can act as you: if others saw it, run "
        "`/sweep token revoke`."
    )


def _budget_problem(text: str, config: Config) -> str:
    """Return why nothing could be counted against this budget; "" if it can, or if there is none."""
    if not text:
        return ""
    try:
        _, is_money = read_budget(text, config.currency)
    except ValueError as error:
        return f'budget= must be {error}; got "{quoted(text)}".'
    is_unpriced = is_money and not config.prices
    return "No prices are configured, so budget= must be GPU-hours, for example 40." if is_unpriced else ""
