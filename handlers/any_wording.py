"""Answer what people type or say: run a typed command; else offer what the words mean, with notes of what a
click doesn't do, list their sweeps, or refuse, such as to cancel what is only a part of a sweep.

What changes something and isn't typed as a command is only offered, as a button: it runs when clicked. A new
sweep opens the form, filled with what was understood; for a message, which has no trigger, a button opens it.
"""

import asyncio
import contextlib
import logging
import re
from dataclasses import replace
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action
from bot.core.errors import UserError
from bot.core.record import Phase
from bot.core.sweep_summary import SweepSummary
from bot.platform.commands.grammar import Command, Parsed, Table
from bot.platform.commands.sentence import Names, read_sentence
from bot.platform.commands.speech import ASKING, CLAUSE, first_word, is_beyond, is_told
from bot.platform.commands.words import FILLERS, MAX_SENTENCE, as_pairs, clean
from bot.platform.config.policy import Config, repository
from bot.platform.slack.blocks import MAX_BUTTON_VALUE, actions, button, section, user_name
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code, cut, plain
from bot.sweep.answers.command_parser import (
    COMPARE,
    LISTING,
    OPEN,
    RERUN,
    STATUS,
    TABLE,
    ParsedCommand,
    choose,
    parse_command,
)
from bot.sweep.answers.meaning import NEW, Meaning, branch_names, meaning, space_names, sweep_names
from bot.sweep.form.view import Draft
from bot.sweep.launch.command_line import parse_options
from bot.sweep.launch.options import LAUNCH, queue_names
from bot.sweep.model.texts import linked
from bot.text.wording import listed
from handlers.context import (
    ACK_TIMEOUT,
    NOT_OPENED,
    SLACK_ERRORS,
    Answer,
    HandlerContext,
    NoTriggerError,
    unconfirmed_reply,
)
from handlers.launch_form import open_form, refused_launch
from handlers.menus import MAIN_BRANCHES

log = logging.getLogger(__name__)

RUN = "said_run"  # action id
NAMES_TIMEOUT = 0.3  # seconds to wait for the first list of branches, and of spaces
MAX_TYPED = 4  # words of a command with a typo; more are a sentence
NO_COMMAND = (
    "Nothing was started or changed: no command found. `/sweep help` lists them; `/sweep` opens a form."
)
FIELD = re.compile(r"[\s*_•>-]*+\w++[*_\s]*+[:=]")  # `• branch: main`
MIN_FIELDS = 2  # lines like that make a message one request
ONE_TRIAL = re.compile(  # one of them, or some, not the whole sweep
    r"\btrial\b|\bones\b|\b(?:trials|runs) (?:with|that|where|whose|which|above|below|over|under|[0-9])"
    r"|\b(?:bad|worst|slow|stuck|fail\w+|nan|diverg\w+|these|those|some|half|most|remaining|pending|queued|other)"
    r"(?: of)?(?: the)?(?: \S+'s)? (?:trials|runs)\b|(?<![.:])\b[0-9]{1,4}$",
    re.IGNORECASE,
)
SOME_TRIALS = re.compile(r"\b[0-9]+ (?:more )?trials\b", re.IGNORECASE)  # `stop after 20 trials`
NOT_IT = re.compile(  # what belongs to a sweep, `remove otter's budget`, or to Sweepbot
    r"\b(?:remove|delete|drop|kill|stop|end|cancel|trash|discard|clear|lift)"
    r"(?: (?:the|this|its|my|all|\S+'s))* (?:budget|limit|priority|logs?|results?|checkpoints?|charts?"
    r"|pictures?|curves?|hold(?:ing)?|paus(?:e|ing)|(?:talk|post|repl\w|answer|comment|writ|send|spamm)ing)\b",
    re.IGNORECASE,
)
OF_TRIALS = re.compile(r"\btrial (?:#|no\.? |number )?[0-9]|\bfailed trials\b", re.IGNORECASE)  # of a rerun
TOTAL = re.compile(
    r"\b(?:to|total|until|up to|max(?:imum)?|at most|no more than)\b|trials[=:]", re.IGNORECASE
)
LATER = re.compile(
    r"\b(?:(?<!me )(?<!know )(?:if|when|once|as soon as)"
    r"(?! (?:possible|you|u|that'?s|needed|more|again|and)\b)"
    r"|unless|(?:un)?till?(?! [0-9])|tomorrow|tonight|later|after(?! all\b)|next week"
    r"|(?:on|next) \w+day|at (?:[0-9]{1,2}(?::[0-9]{2}| ?[ap]m)|noon|midnight)"
    r"|in \w+ (?:min(?:ute)?|h(?:our)?|day|week)s?)\b",
    re.IGNORECASE,
)
ABSOLUTE = {"gpus", "nodes", "parallel", "budget"}  # options whose number isn't that of `2 more`
LEFT_OUT = re.compile(
    r"\b(?:all|everything|every \w+) but\b|\b(?:except|other than|apart from)\b", re.IGNORECASE
)
NOW = "The button runs it now: Sweepbot can't wait for a time or a condition."
MORE = re.compile(r"^extend\b|\b(?:more|extra|additional)\b", re.IGNORECASE)
OWN = re.compile(
    r"\b(?:it|all|everything|(?:my|the|this|that)(?: last| latest| current)? (?:sweep|run|job|experiment))\b"
)  # the only one that it can mean

Fields = dict[str, Any]


def add_command(app: AsyncApp, context: HandlerContext, table: Table, answer: Answer) -> None:
    """Add a slash command, also for what is said in messages."""
    context.spoken[table.prefix] = table, answer

    @app.command(table.prefix)
    async def typed(ack: AsyncAck, command: Fields, client: AsyncWebClient) -> None:
        reply = await reply_to(context, command, client)
        if isinstance(reply, Message):
            await ack(text=cut(reply.text), blocks=list(reply.blocks))
        else:
            await ack(text=cut(reply))


def add_wording(app: AsyncApp, context: HandlerContext) -> None:
    @app.action(RUN)
    async def run(
        ack: AsyncAck, body: Fields, action: Fields, client: AsyncWebClient, respond: AsyncRespond
    ) -> None:
        """Run an offered command as if the person had typed it. Clicks on one message are one request."""
        prefix, _, text = action["value"].partition(" ")
        message = body.get("container", {}).get("message_ts") or body["trigger_id"]
        command = {
            "command": prefix,
            "text": text,
            "user_id": body["user"]["id"],
            "user_name": user_name(body["user"]),
            "channel_id": body["channel"]["id"],
            "response_url": body["response_url"],
            "trigger_id": body["trigger_id"],
            "request_id": f"run/{body['channel']['id']}/{message}/{body['user']['id']}",
        }
        if prefix in context.spoken and (reply := await reply_to(context, command, client)):
            text = reply.text if isinstance(reply, Message) else reply
            blocks = list(reply.blocks) if isinstance(reply, Message) else [section(cut(text))]
            await respond(text=cut(text), blocks=blocks, replace_original=True)
        await ack()


async def reply_to(context: HandlerContext, command: Fields, client: AsyncWebClient) -> str | Message:
    """Return the answer to a command, or what went wrong; "" if a form is open.

    `command`: fields of a slash command. Of a message, it has no `trigger_id`, but a `request_id`, and in a
    sweep's thread `here`, the sweep.
    """
    command = _of_other_table(context, command)
    try:
        try:
            return await context.spoken[command["command"]][1](context, command, client)
        except UserError as error:
            return await _reworded(context, command, client, error)
    except NoTriggerError:
        return _offer("This needs a form.", "Open form", f"{command['command']} {command['text']}")
    except UserError as error:
        return await _linked(context, plain(str(error)))
    except (RedisError, TimeoutError) as error:
        log.error("failed to queue a command: %r", error)  # noqa: TRY400 - a busy process has no time for traces
        return unconfirmed_reply(error)
    except SLACK_ERRORS as error:
        log.warning("can't open a dialog: %r", error)
        return NOT_OPENED


def _of_other_table(context: HandlerContext, command: Fields) -> Fields:
    """Return `gpus free` and `/env list` after another command as what they are."""
    word, _, rest = command.get("text", "").strip().partition(" ")
    named = word.strip("/?!").lower()
    prefix = next(
        (each for each in (f"/{named}", f"/{named}s") if each in context.spoken), command["command"]
    )
    if prefix == command["command"]:
        return command
    try:
        context.spoken[prefix][0].find(rest)
    except UserError:
        return command
    return command | {"command": prefix, "text": rest}


async def _linked(context: HandlerContext, text: str) -> str:
    """Link the sweeps that an error names; not while Redis doesn't answer."""
    with contextlib.suppress(RedisError, TimeoutError):
        async with asyncio.timeout(ACK_TIMEOUT):
            return linked(text, await context.store.listed())
    return text


async def _reworded(
    context: HandlerContext, command: Fields, client: AsyncWebClient, error: UserError
) -> str | Message:
    """Answer a text that can't run as typed by what it means. Raises `error` if it means nothing."""
    command = _for_one(command)  # with the text as typed: of options alone, a button would start the sweep
    text, prefix = as_pairs(command["text"]), command["command"]
    if len(text) > MAX_SENTENCE:
        raise error
    async with asyncio.timeout(ACK_TIMEOUT):
        sweeps = await context.store.listed()
        last = await context.drafts.last(command["user_id"]) or Draft(channel="")
        tables = sorted(
            (table for table, _ in context.spoken.values()), key=lambda each: each.prefix != prefix
        )
        names = Names(known=_known(context.config, sweeps), config=context.config)
        typed = _typed_command(tables[0], text)
        if _can_name(typed) or NEW.search(text):
            names = await _with_git_names(context, command | {"text": text}, last, names)
    usual = _usual(last, command["user_id"], sweeps)
    meant = meaning(text, tables, names, usual, sweeps, command.get("here", ""))
    is_sweep = prefix == TABLE.prefix
    if meant is None and is_sweep and _is_no_command(typed, text):
        raise UserError(NO_COMMAND)
    is_launch = meant is not None and meant.command is LAUNCH
    if (
        meant is None
        or (is_launch and not (is_sweep and (typed in (None, LAUNCH, RERUN, OPEN) or typed.answers)))
        or (meant.command is STATUS and _needs_value(typed))
    ):
        raise error
    if is_launch:
        return await _form(context, command, client, meant, error)
    is_typed = meant.command is typed and not OWN.search(text)
    if is_typed and meant.note and not meant.parsed.options:
        raise error
    if meant.missing:
        usage = f"Missing {listed(meant.missing)}. Usage: {meant.table.usage(meant.command)}."
        raise error if is_typed else UserError(usage)
    _check_names_one(meant, command, text, names, sweeps, context.config)
    try:
        meant = _resolved(meant, command, sweeps, context.config)
    except UserError as unknown:
        is_mistyped = (
            typed is None
            and _is_typo(text)
            and not any(text.split()[0].lower() in each.verbs for each in TABLE.commands)
        )
        if meant.command is not STATUS or meant.parsed.options or is_mistyped:
            raise (error if is_typed or (meant.note and is_mistyped) else unknown) from None
        mine = Parsed(command=LISTING, options={"list": "mine"})  # `is my sweep done?`
        meant = replace(meant, parsed=mine)
    return await _run(context, command, client, meant)


def _usual(last: Draft, user: str, sweeps: list[SweepSummary]) -> dict[str, str]:
    """Return the options of the last launch, with the space of the last sweep that wasn't refused."""
    mine = sorted((each for each in sweeps if each.user == user), key=lambda each: each.created, reverse=True)
    started = [each for each in mine if each.phase is not Phase.REFUSED]
    space = next((each.space for each in started if each.space), "")
    if space or (mine and not started):
        return {**last.options, "space": space}
    return dict(last.options)


def _for_one(command: Fields) -> Fields:
    """Return a command with only its first line if it is a message; more lines of options are one request."""
    text = command.get("text", "")
    if "trigger_id" in command or len([*filter(FIELD.match, as_pairs(text).splitlines())]) >= MIN_FIELDS:
        return command | {"text": text}
    lines = [line for line in text.splitlines() if line.strip()]
    return command | {"text": lines[0] if lines else ""}  # what follows in a message is for others


async def _run(
    context: HandlerContext, command: Fields, client: AsyncWebClient, meant: Meaning
) -> str | Message:
    """Answer a question; offer a command that changes something."""
    prefix, text = meant.table.prefix, command["text"]
    if meant.command.answers:
        again = command | {"command": prefix, "text": meant.typed}
        return await context.spoken[prefix][1](context, again, client)
    whole, notes = f"{prefix} {meant.typed}", [plain(meant.note)]
    if "sweep" in meant.command.by_key and meant.command.does is not Action.DRAIN and LATER.search(text):
        notes.append(NOW)
    asked = " ".join(filter(None, [f"Run {code(whole)}?", *notes]))
    return _offer(asked, "Run command", plain(whole))


def _is_no_command(typed: Command | None, text: str) -> bool:
    """Return whether a text that means nothing isn't a command with a typo, which has its own error."""
    is_sentence = typed is LAUNCH or (typed is None and (is_beyond(text) or not _is_typo(text)))
    return "=" not in text and is_sentence


def _is_typo(text: str) -> bool:
    """Return whether the first word of a text can be a mistyped command: none of every day."""
    words = text.split()
    return clean(words[0]).lower() not in FILLERS | ASKING and len(words) <= MAX_TYPED


def _typed_command(table: Table, text: str) -> Command | None:
    """Return the command with whose name a text begins: its error is about what was typed."""
    try:
        return table.find(text)[0]
    except UserError:
        return None


def _can_name(typed: Command | None) -> bool:
    """Return whether a text that begins with this command can name a branch or a space."""
    return typed in (None, COMPARE, OPEN) or bool(typed.by_key.keys() & {"branch", "space"})


def _needs_value(typed: Command | None) -> bool:
    """Return whether a command that changes a sweep has a required option: `queue move fox` lacks it."""
    return typed is not None and not typed.answers and any(each.required for each in typed.options)


async def _form(
    context: HandlerContext, command: Fields, client: AsyncWebClient, meant: Meaning, error: UserError
) -> str | Message:
    """Open the form; if Slack can't, the error says what is wrong with the command."""
    user, channel = command["user_id"], command["channel_id"]
    if refusal := refused_launch(context, user, channel):
        return refusal
    options = dict(meant.parsed.options)
    note = meant.note or _conflict(command["text"], error)
    if not (trigger := command.get("trigger_id")):
        understood = (
            f"Understood: {code(meant.parsed.typed)}." if options else "To start a sweep, open the form."
        )
        text = f"{understood} {plain(note)}".strip()
        return _offer(text, "Open form", f"{command['command']} {command['text']}")
    failed = await open_form(context, client, trigger, user, channel, options, note)
    return f"{plain(str(error))}\n{failed}" if failed else ""


def _conflict(text: str, error: UserError) -> str:
    """Return the error of options of which each was understood; "" for a sentence."""
    try:
        parse_options(text)
    except UserError:
        return ""
    return str(error)


def _check_names_one(
    meant: Meaning, command: Fields, text: str, names: Names, sweeps: list[SweepSummary], config: Config
) -> None:
    """Raise UserError if a text names several sweeps for a command that changes one, or a trial unclearly."""
    options = meant.parsed.options
    usage = f"Usage: {meant.table.usage(meant.command)}."
    if meant.command.does is Action.CANCEL:
        if NOT_IT.search(text):
            raise UserError(NO_COMMAND)
        clauses = CLAUSE.split(text.rstrip(" .!"))
        while clauses and first_word(clauses[-1]) == "it" and is_told(clauses[-1]):
            clauses.pop()  # the reason: `cancel otter, it has failed runs`
        is_some = "trial" not in options and ONE_TRIAL.search("\n".join(clauses))
        if SOME_TRIALS.search(text) or is_some:
            raise UserError(f"Which trial? {usage}")
    if meant.command is RERUN and OF_TRIALS.search(text):
        raise UserError("`rerun` repeats a sweep, not some of its trials. `promote` repeats the best one.")
    is_by = re.search(r"\bby\b", text) and not TOTAL.search(text)
    adds = meant.adds or (meant.command.does is Action.BUDGET and is_by)
    if adds and (totals := sorted(ABSOLUTE & options.keys())):
        raise UserError(f"{totals[0]}= is the new number, not what is added. {usage}")
    keys = [each for each in ("sweep", "mute", "unmute") if each in options]
    if meant.command.answers or len(keys) != 1:  # `mute fox, unmute otter` is one command
        return
    named = read_sentence(text, TABLE, COMPARE, names).parsed.options.get("sweep", "").split()
    found = dict[str, None]()
    for name in named if {*named} <= names.known["sweep"].keys() else ():
        status = ParsedCommand(action=Action.STATUS, sweep=name)
        is_own = keys == ["sweep"]  # its command chooses which sweep it is for
        sweep = name if is_own else choose(status, command["user_id"], sweeps, config).sweep
        parsed = replace(meant.parsed, options={**options, keys[0]: sweep})
        one = _resolved(replace(meant, parsed=parsed), command, sweeps, config)
        found[code(f"{one.table.prefix} {one.typed}")] = None
    if len(found) > 1:
        raise UserError(f"That names several sweeps. Run each command alone: {listed([*found], 'or')}.")


def _resolved(meant: Meaning, command: Fields, sweeps: list[SweepSummary], config: Config) -> Meaning:
    """Return the command with the full name of its sweep. Raises UserError if there are none or several."""
    if meant.table.prefix != TABLE.prefix or "sweep" not in meant.command.by_key:
        return meant
    parsed = parse_command(meant.typed, command.get("here", ""))
    found = choose(parsed, command["user_id"], sweeps, config)
    if "sweep" not in meant.parsed.options and not meant.command.answers and _is_unsure(meant, command):
        raise UserError(f"Name the sweep. Usage: {meant.table.usage(meant.command)}.")
    options = {**meant.parsed.options, "sweep": " ".join((found.sweep, *found.others))}
    has = next((each.trials for each in sweeps if each.id == found.sweep), 0)
    trials = found.options.get("trials", 0)
    if trials and (
        meant.adds or (not TOTAL.search(command["text"]) and (trials <= has or MORE.search(command["text"])))
    ):  # `extend fox 10`
        options |= {"trials": str(trials + has)}
    return replace(meant, parsed=replace(meant.parsed, options=options))


def _is_unsure(meant: Meaning, command: Fields) -> bool:
    """Return whether a text that names no sweep is about something else: `all but otter`, `lab's files`."""
    text, is_of_sweep = command["text"], meant.table.prefix == command["command"]
    is_known = command.get("here") or (is_of_sweep and not (meant.note and not OWN.search(text)))
    return bool(LEFT_OUT.search(text)) or not is_known


def _offer(text: str, label: str, typed: str) -> Message | str:
    if len(typed) > MAX_BUTTON_VALUE:
        return "This message is too long. Use `/sweep` instead."
    return Message(text=text, blocks=(section(text), actions(button(RUN, label, typed))))


def _known(config: Config, sweeps: list[SweepSummary]) -> dict[str, dict[str, str]]:
    called = sweep_names(sweeps)
    return {
        "repo": {each.name.lower(): each.name for each in config.repositories},
        "profile": {each.name.lower(): each.name for each in config.profiles},
        "queue": {each: each for each in queue_names(config)},
        "sweep": called,
        "mute": called,
        "unmute": called,
    }


async def _with_git_names(context: HandlerContext, command: Fields, last: Draft, names: Names) -> Names:
    """Add the branches, and the spaces of the branch that is named or usual. Raises RedisError."""
    text, known = command.get("text", ""), dict(names.known)
    said = read_sentence(text, TABLE, LAUNCH, names).parsed.options
    own = context.config.channel_repos.get(command["channel_id"]) or last.options.get("repo")
    try:
        url = repository(said.get("repo") or own, context.config).url
    except UserError:
        return names
    branches = [each.name for each in (await context.catalog.names(url, wait=NAMES_TIMEOUT)).names]
    known["branch"] = branch_names(branches)
    said = read_sentence(text, TABLE, LAUNCH, replace(names, known=known)).parsed.options
    usual = (last.options.get("branch", ""), *MAIN_BRANCHES)
    if branch := said.get("branch") or next((each for each in usual if each in branches), ""):
        found = await context.catalog.names(url, branch.partition(",")[0], wait=NAMES_TIMEOUT)
        known["space"] = space_names([each.name for each in found.names])
    return replace(names, known=known)
