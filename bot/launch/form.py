"""The form that starts a sweep: a draft becomes a view, and a view's state a draft again. Pure.

What was entered is said in the words of the command, key by key, and read by the same readers.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bot.config.policy import Config
from bot.core.errors import UserError
from bot.core.request import Notify, SweepRequest
from bot.core.space import ALGORITHMS
from bot.launch.command_line import read_values
from bot.launch.space import WRITTEN, parse_space
from bot.slack.blocks import (
    NOTHING,
    Block,
    View,
    actions,
    button,
    context,
    modal,
    option,
    plain_text,
    section,
)
from bot.slack.mrkdwn import code, cut, direct, place

FORM, LAUNCH = "sweep_form", "sweep_launch"  # callback ids
REPO, BRANCH, SPACE = "sweep_repo", "sweep_branch", "sweep_space"  # action ids of menus
WRITE, CHANGE, AGAIN = "sweep_write", "sweep_change", "sweep_again"  # and of buttons

TEXT_MOST = 3000  # characters: Slack's own limit of an input
METADATA_MOST = 3000
ERROR_MOST = 1000  # characters below an input
HIDDEN = ("repo", "branch", "name", "image")  # said so far, for menus, which are not told a view's state
EXAMPLE = """\
command: python train.py
objective: {metric: loss, goal: minimize}
parameters:
  lr: {min: 1e-4, max: 1e-1, scale: log}
"""
TOLD = {
    Notify.CHANNEL: "Me, in the thread and the channel",
    Notify.DM: "Me, by direct message",
    Notify.NONE: "Nobody; the thread has it all",
}
AS_IT_SAYS = "as the space says"
ALGORITHM = {NOTHING: AS_IT_SAYS} | {word: word for word in ALGORITHMS}


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What a person has said of a sweep so far, in the words of the command; `text` is a space."""

    said: Mapping[str, str] = field(default_factory=dict)
    channel: str
    writes: bool = False  # the space stands in the form

    def without(self, *keys: str) -> "Draft":
        return replace(self, said={key: value for key, value in self.said.items() if key not in keys})


def said_of(request: SweepRequest) -> dict[str, str]:
    """The words that would ask for this; no word names a commit."""
    usual = SweepRequest(branch="", space="")
    pairs = {key: getattr(request, key) for key in SweepRequest.__dataclass_fields__ if key != "commit"}
    return {key: str(value) for key, value in pairs.items() if value != getattr(usual, key)}


def form(draft: Draft, config: Config, wrong: Mapping[str, str] | None = None) -> View:
    """`wrong`: sentences in mrkdwn by key, shown below their fields; "" is the whole form."""
    wrong = wrong or {}
    blocks = [*_trouble(wrong.get("", ""))]
    for key, block in _fields(draft, config).items():
        blocks += [block, *_trouble(wrong.get(key, ""))]
    unheard = ", where I hear no words; typed in a channel, `/sweep` has it told there"
    there = f"{place(draft.channel)}{unheard if direct(draft.channel) else ''}"
    blocks.append(context(f"Its story is told in {there}."))
    return modal(
        "New sweep",
        blocks,
        close="Cancel",
        callback_id=FORM,
        submit=plain_text("Preview"),
        private_metadata=metadata(draft),
    )


def _fields(draft: Draft, config: Config) -> dict[str, Block]:
    """By key, in the order in which one thinks."""
    said, limits = draft.said, config.limits
    repo = said.get("repo") or config.repositories[0].name
    of = hashlib.sha256(repo.encode()).hexdigest()[:8]  # another repository's branches are another input
    return {
        "repo": _input("repo", "Repository", _menu(REPO, repo), dispatch=True),
        "branch": _input(
            f"branch:{of}", "Branch or tag", _menu(BRANCH, said.get("branch", "")), dispatch=True
        ),
        **_space_fields(draft, of),
        "gpus": _input("gpus", "GPUs per trial", _number("gpus", said, 0, limits.gpus_per_trial, usual="1")),
        "parallel": _optional(
            "parallel", "Trials at a time", _number("parallel", said, 1, limits.parallel, AS_IT_SAYS)
        ),
        "trials": _optional("trials", "Trials in all", _number("trials", said, 1, limits.trials, AS_IT_SAYS)),
        "algorithm": _input("algorithm", "Algorithm", _choice("algorithm", said, ALGORITHM)),
        "cmd": _optional("cmd", "Command", _line("cmd", said, "python train.py, if not as the space says")),
        "notify": _input(
            "notify",
            "Who is told of failures and of the end",
            _choice("notify", said, {str(each): words for each, words in TOLD.items()}),
        ),
    }


def _space_fields(draft: Draft, of: str) -> dict[str, Block]:
    if not draft.writes:
        menu = _input(f"space:{of}", "Space", _menu(SPACE, draft.said.get("space", "")))
        return {"space": menu, "write": actions(button(WRITE, "Write a space here"))}
    box = {
        "type": "plain_text_input",
        "action_id": "text",
        "multiline": True,
        "max_length": TEXT_MOST,
        "initial_value": (draft.said.get("text") or EXAMPLE)[:TEXT_MOST],
    }
    return {
        "text": _input("text", "Space", box),
        "write": actions(button(WRITE, "Choose a space of the branch")),
    }


def read(view: View) -> Draft:
    """What a view says, of its state and of what it has hidden."""
    hidden = json.loads(view["private_metadata"])
    said: dict[str, str] = dict(hidden["said"])
    for entered in view.get("state", {}).get("values", {}).values():
        for action, value in entered.items():
            key, found = _key(action), _value(value)
            said.pop(key, None)
            if found and (key, found) != ("algorithm", NOTHING):
                said[key] = found
    return Draft(said=said, channel=hidden["channel"], writes=hidden["writes"])


def request(draft: Draft, config: Config) -> tuple[SweepRequest | None, dict[str, str]]:
    """What is asked for, or sentences by key."""
    said = {key: value for key, value in draft.said.items() if key != "text"}
    if draft.writes:
        said["space"] = "written"
    values, wrong = read_values(said, config)
    for key in ("branch", "space"):
        if key not in said:
            wrong[key] = f"Choose a {key}."
        elif said[key] == NOTHING:
            wrong[key] = "This line only tells what git said; choose another one, or type a name."
    if wrong:
        return None, wrong
    asked = SweepRequest(**values, text=draft.said.get("text", "") if draft.writes else None)
    if asked.text is None:
        return asked, {}
    if len(asked.text) > TEXT_MOST:
        return None, {"text": f"The space must have at most {TEXT_MOST:,} characters; commit it as a file."}
    try:
        parse_space(asked.text, WRITTEN, asked, config.limits)
    except UserError as error:
        return None, {"text": str(error)}
    return asked, {}


def errors(view: View, wrong: Mapping[str, str]) -> dict[str, str]:
    """By the view's blocks, as Slack wants them; what has no field is said at the first."""
    inputs = {_key(b["element"]["action_id"]): b["block_id"] for b in view["blocks"] if b["type"] == "input"}
    first = next(iter(inputs.values()))
    found: dict[str, str] = {}
    for key, sentence in wrong.items():
        block = inputs.get(key, first)
        found[block] = cut(f"{found[block]}\n{sentence}" if block in found else sentence, ERROR_MOST)
    return found


def about(sentence: str, draft: Draft) -> dict[str, str]:
    """A sentence of the command's world at the field that it is about, as far as that can be told."""
    key = sentence.partition("=")[0]
    if sentence.startswith(("sweeps/", "`sweeps/", WRITTEN)):
        key = "text" if draft.writes else "space"
    return {key if key in {"branch", "space", "text", "repo", "parallel", "trials", "gpus"} else "": sentence}


def checking(draft: Draft) -> View:
    """What stands there while a worker asks git."""
    words = "Looking at the branch and its space. This takes a few seconds."
    again = actions(button(AGAIN, "Look again"))
    blocks = [section(f":hourglass_flowing_sand: {words}"), again]
    return modal("One moment", blocks, private_metadata=metadata(draft))


def gone(draft: Draft, words: str) -> View:
    return modal("New sweep", [section(f":warning: {words}")], private_metadata=metadata(draft))


def launched(draft: Draft, sweep_id: str) -> View:
    words = f":white_check_mark: On it: {code(sweep_id)}. Its thread tells the story in"
    return modal("On its way", [section(f"{words} {place(draft.channel)}.")])


def metadata(draft: Draft, **more: str) -> str:
    """What the view itself remembers; a text put aside as long as there is room for it."""
    hidden = {key: draft.said[key] for key in HIDDEN if len(draft.said.get(key, "x" * 301)) <= 300}
    aside = {"text": draft.said["text"]} if "text" in draft.said and not draft.writes else {}
    said = hidden | aside
    about = {"channel": draft.channel, "writes": draft.writes} | more
    while len(found := json.dumps(about | {"said": said}, ensure_ascii=False)) > METADATA_MOST and said:
        del said[max(said, key=lambda key: len(json.dumps(said[key])))]  # quotes in it are written as two
    return found


def _key(action_id: str) -> str:
    return {REPO: "repo", BRANCH: "branch", SPACE: "space"}.get(action_id, action_id)


def _value(entered: Mapping[str, Any]) -> str:
    chosen = (entered.get("selected_option") or {}).get("value", "")
    value = str(entered.get("value") or chosen)
    return value.rstrip()  # what leads belongs to the lines of a space


def _menu(action: str, chosen: str) -> Block:
    menu: Block = {"type": "external_select", "action_id": action, "min_query_length": 0}
    return menu | ({"initial_option": option(chosen)} if 0 < len(chosen) <= 150 else {})


def _number(
    key: str, said: Mapping[str, str], least: int, most: int, hint: str = "", usual: str = ""
) -> Block:
    value = said.get(key) or usual
    number: Block = {"type": "number_input", "action_id": key, "is_decimal_allowed": False}
    number |= {"min_value": str(least), "max_value": str(most)}
    number |= {"placeholder": plain_text(hint)} if hint else {}
    fits = len(value) < 10 and value.isdecimal() and least <= int(value) <= most
    return number | ({"initial_value": value} if fits else {})


def _line(key: str, said: Mapping[str, str], hint: str) -> Block:
    line: Block = {"type": "plain_text_input", "action_id": key, "placeholder": plain_text(hint)}
    value = said.get(key, "")
    return line | ({"initial_value": value} if 0 < len(value) <= TEXT_MOST else {})


def _choice(key: str, said: Mapping[str, str], choices: Mapping[str, str]) -> Block:
    """Without a choice so far it is the first."""
    options = {value: {"text": plain_text(text), "value": value} for value, text in choices.items()}
    first = next(iter(options.values()))
    menu = {"type": "static_select", "action_id": key, "options": list(options.values())}
    return menu | {"initial_option": options.get(said.get(key, ""), first)}


def _input(block_id: str, label: str, element: Block, *, dispatch: bool = False) -> Block:
    block: Block = {"type": "input", "block_id": block_id, "label": plain_text(label), "element": element}
    return block | ({"dispatch_action": True} if dispatch else {})


def _optional(block_id: str, label: str, element: Block) -> Block:
    return _input(block_id, label, element) | {"optional": True}


def _trouble(sentence: str) -> list[Block]:
    return [section(f":warning: {sentence}")] if sentence else []
