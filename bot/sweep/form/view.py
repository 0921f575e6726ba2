"""The launch form: its fields, fixed menus, and buttons, the errors below them, and how a draft becomes a
view, and a submitted view a request. Pure.

Values are keyed by the options of the command and read by the same readers.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bot.core.errors import UserError
from bot.core.request import SEEDS, SweepRequest
from bot.platform.commands.grammar import Option
from bot.platform.commands.option_types import Choice, Number
from bot.platform.config.policy import Config
from bot.platform.slack.blocks import (
    MAX_VALUE,
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
from bot.platform.slack.mrkdwn import code, cut, direct, place, plain
from bot.sweep.launch.capacity import profile_size
from bot.sweep.launch.command_line import conflicts, missing_options, read_values
from bot.sweep.launch.options import OPTIONS
from bot.sweep.spaces.space import INLINE, parse_space

FORM, LAUNCH = "sweep_form", "sweep_launch"  # callback ids
REPO_MENU, BRANCH_MENU, SPACE_MENU = "sweep_repo", "sweep_branch", "sweep_space"  # action ids of the menus
# Action ids of the buttons
TOGGLE_INLINE, MORE, EDIT, CHECK_AGAIN = "sweep_write", "sweep_more", "sweep_change", "sweep_again"

MAX_INPUT = 3000  # characters: Slack's limit for an input
MAX_METADATA = 3000
MAX_OPTION, MAX_PROFILES = 75, 99  # characters of an option of a menu; its options without the default
MAX_QUEUES = 99  # in a menu, without the default: Slack's limit is 100
MAX_FIELD_ERROR = 1000  # characters of the error below an input
FIELDS = {"repo", "branch", "space", "text", *(each.key for each in OPTIONS if each.label)}
_OTHERS = FIELDS - {"repo", "branch", "space", "text", "gpus", "trials"}  # fields under "More options"
# In private_metadata: Slack sends menus no view state.
HIDDEN_OPTIONS = ("repo", "branch", "name", "image")
EXAMPLE_SPACE = """\
command: python train.py
objective: {metric: loss, goal: minimize}
parameters:
  lr: {min: 1e-4, max: 1e-1, scale: log}
"""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The values entered so far, by option of the command; `text` is an inline space."""

    options: Mapping[str, str] = field(default_factory=dict)
    channel: str
    inline: bool = False  # whether the space is written inline
    more: bool = False  # whether all options are fields; else those that have a value

    def without(self, *keys: str) -> "Draft":
        return replace(self, options={key: value for key, value in self.options.items() if key not in keys})


def options_of(request: SweepRequest) -> dict[str, str]:
    """Return the options of a request that differ from their defaults, without the commit."""
    default = SweepRequest(branch="", space="")
    pairs = {key: getattr(request, key) for key in SweepRequest.__dataclass_fields__ if key != "commit"}
    options = {key.rstrip("_"): str(value) for key, value in pairs.items() if value != getattr(default, key)}
    if options.pop("auto", ""):
        options["parallel"] = f"auto:{request.parallel}"
    if request.profile is not None:
        options["gpus"] = str(request.gpus)
    if request.gate is not None:
        options["gate"] = "on" if request.gate else "off"
    if request.seeds is not None:
        del options["space"]
    return options


def form(draft: Draft, config: Config, errors: Mapping[str, str] | None = None) -> View:
    """Return the form: five fields, and those of other options that have a value.

    `errors`: in mrkdwn by key, shown below their fields; "" is the whole form.
    """
    errors = errors or {}
    blocks = [*_error_block(errors.get("", ""))]
    fields = _fields(draft, config)
    for key, block in fields.items():
        if draft.more or key not in _OTHERS or key in draft.options or key in errors:
            blocks += [block, *_error_block(errors.get(key, ""))]
    blocks += [] if draft.more else [actions(button(MORE, "More options"))]
    where = "your direct messages" if direct(draft.channel) else place(draft.channel)
    blocks.append(context(f"Updates go to {where}. To choose a channel, run `/sweep` there."))
    return modal(
        "New sweep",
        blocks,
        close="Cancel",
        callback_id=FORM,
        submit=plain_text("Preview"),
        private_metadata=metadata(draft),
    )


def _fields(draft: Draft, config: Config) -> dict[str, Block]:
    """Return the inputs by key, in order."""
    options = draft.options
    repo = options.get("repo") or config.repositories[0].name
    of = hashlib.sha256(repo.encode()).hexdigest()[
        :8
    ]  # a new block id clears the menus of another repository
    return {
        "repo": _input("repo", "Repository", _menu(REPO_MENU, repo), dispatch=True),
        "branch": _input(
            f"branch:{of}", "Branch or tag", _menu(BRANCH_MENU, options.get("branch", "")), dispatch=True
        ),
        **_space_fields(draft, of),
        **{
            each.key: _field(each, options, config)
            for each in OPTIONS
            if each.label and each.key not in _unneeded(config)
        },
    }


def _unneeded(config: Config) -> set[str]:
    """Return the options between whose values this configuration has no choice."""
    needed = {
        "profile": config.profiles,
        "nodes": config.limits.nodes_per_trial > 1,
        "cluster": len(config.clusters) > 1,
        "queue": len(config.queueing.queues) > 1,
        "priority": config.queueing.priorities,
    }
    return {key for key, is_needed in needed.items() if not is_needed}


def _field(each: Option, options: Mapping[str, str], config: Config) -> Block:
    if isinstance(each.type, Choice):
        choices = _choices(each.key, each.type, each.hint, options.get(each.key, ""), config)
        return _input(each.key, each.label, _choice(each.key, options, choices))
    if not isinstance(each.type, Number):
        hint = each.hint.format(config.limits.parallel)
        return _optional(each.key, each.label, _line(each.key, options, hint))
    bounds = each.type.least, each.type.maximum(config)
    if each.key == "gpus" and not config.profiles:  # with profiles, GPUs only scale the chosen one
        return _input(each.key, each.label, _number(each.key, options, *bounds, default="1"))
    number = _optional(each.key, each.label, _number(each.key, options, *bounds, each.hint))
    return number | ({"hint": plain_text("Each node has the GPUs above.")} if each.key == "nodes" else {})


def _choices(key: str, kind: Choice, default: str, typed: str, config: Config) -> dict[str, str]:
    """Return the texts of a menu by value; the first is the default."""
    names, labels = kind.known(config), dict(kind.labels)
    if key == "profile":
        default, names = f"Default ({names[0]})", names[:MAX_PROFILES]
        labels = {p.name: f"{p.name}: {profile_size(p, config)}"[:MAX_OPTION] for p in config.profiles}
    elif key == "queue":
        names = [queue.name for queue in config.queueing.queues[:MAX_QUEUES]]
    elif key == "metrics" and typed.startswith("/") and len(typed) <= MAX_VALUE:
        names, labels[typed] = [*names, typed], f"File {typed[-60:]}"
    return ({NOTHING: default} if default else {}) | {name: labels.get(name, name) for name in names}


def _space_fields(draft: Draft, of: str) -> dict[str, Block]:
    if not draft.inline:
        menu = _optional(f"space:{of}", "Space", _menu(SPACE_MENU, draft.options.get("space", "")))
        return {"space": menu, "write": actions(button(TOGGLE_INLINE, "Write a space inline"))}
    box = {
        "type": "plain_text_input",
        "action_id": "text",
        "multiline": True,
        "max_length": MAX_INPUT,
        "initial_value": (draft.options.get("text") or EXAMPLE_SPACE)[:MAX_INPUT],
    }
    return {
        "text": _input("text", "Space", box),
        "write": actions(button(TOGGLE_INLINE, "Choose a space file")),
    }


def read(view: View) -> Draft:
    """Read a draft from a submitted view: its input values plus its private_metadata."""
    hidden = json.loads(view["private_metadata"])
    options: dict[str, str] = dict(hidden["options"])
    for entered in view.get("state", {}).get("values", {}).values():
        for action, value in entered.items():
            key, found = _key(action), _value(value)
            options.pop(key, None)
            if found and (found != NOTHING or key in {"branch", "space"}):
                options[key] = found
    kept = {key: hidden[key] for key in ("channel", "inline", "more") if key in hidden}
    return Draft(options=options, **kept)


def request(draft: Draft, config: Config) -> tuple[SweepRequest | None, dict[str, str]]:
    """Return the request, or None and errors by key."""
    options = {key: value for key, value in draft.options.items() if key != "text"}
    text = draft.options.get("text", "") if draft.inline and "seeds" not in options else None
    if "seeds" in options:
        options.pop("space", None)
    elif draft.inline:
        options["space"] = "written"
    values, errors = read_values(options, config)
    errors |= {key: f"Choose a {key}." for key in missing_options(options)}
    for key in ("branch", "space"):
        if options.get(key) == NOTHING:
            errors[key] = f"This entry is a note, not a {key}. Choose another option or type a name."
    if errors:
        return None, errors
    parsed = SweepRequest(**{"space": SEEDS} | values, text=text)
    if errors := conflicts(parsed, options):
        return None, errors
    if parsed.text is None:
        return parsed, {}
    if len(parsed.text) > MAX_INPUT:
        return None, {"text": f"The space can have at most {MAX_INPUT:,} characters. Commit it as a file."}
    try:
        parse_space(parsed.text, INLINE, parsed, config.limits)
    except UserError as error:
        return None, {error.field or "text": str(error)}
    return parsed, {}


def errors_by_block(view: View, errors: Mapping[str, str]) -> dict[str, str]:
    """Return errors by block id, as Slack expects them; errors without a field go to the first one."""
    inputs = {_key(b["element"]["action_id"]): b["block_id"] for b in view["blocks"] if b["type"] == "input"}
    first = next(iter(inputs.values()))
    found: dict[str, str] = {}
    for key, sentence in errors.items():
        block = inputs.get(key, first)
        found[block] = cut(f"{found[block]}\n{sentence}" if block in found else sentence, MAX_FIELD_ERROR)
    return found


def errors_by_field(error: UserError, draft: Draft) -> dict[str, str]:
    """Return the error, escaped, by the form's field that it concerns; "" is the whole form."""
    field = "text" if error.field == "space" and draft.inline else error.field
    return {field if field in FIELDS else "": plain(str(error))}


def checking(draft: Draft) -> View:
    """Return the view shown while a worker reads the repository."""
    words = "Checking the branch and space… This takes a few seconds."
    again = actions(button(CHECK_AGAIN, "Check again"))
    blocks = [section(f":hourglass_flowing_sand: {words}"), again]
    return modal("Checking", blocks, private_metadata=metadata(draft))


def expired(draft: Draft, words: str) -> View:
    return modal("New sweep", [section(f":warning: {words}")], private_metadata=metadata(draft))


def launched(draft: Draft, sweep_id: str) -> View:
    words = f":white_check_mark: Sweep {code(sweep_id)} queued. Follow its thread in"
    return modal("Sweep queued", [section(f"{words} {place(draft.channel)}.")])


def metadata(draft: Draft, **more: str) -> str:
    """Return the view's private_metadata; the longest values are left out if it gets too long."""
    hidden = {
        key: draft.options[key] for key in HIDDEN_OPTIONS if len(draft.options.get(key, "x" * 301)) <= 300
    }
    aside = {"text": draft.options["text"]} if "text" in draft.options and not draft.inline else {}
    options = hidden | aside
    about = {"channel": draft.channel, "inline": draft.inline, "more": draft.more} | more
    while len(found := _json(about | {"options": options})) > MAX_METADATA and options:
        del options[max(options, key=lambda key: len(_json(options[key])))]
    return found


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _key(action_id: str) -> str:
    return {REPO_MENU: "repo", BRANCH_MENU: "branch", SPACE_MENU: "space"}.get(action_id, action_id)


def _value(entered: Mapping[str, Any]) -> str:
    chosen = (entered.get("selected_option") or {}).get("value", "")
    value = str(entered.get("value") or chosen)
    return value.rstrip()  # leading spaces belong to the YAML of a space


def _menu(action: str, chosen: str) -> Block:
    menu: Block = {"type": "external_select", "action_id": action, "min_query_length": 0}
    return menu | ({"initial_option": option(chosen)} if 0 < len(chosen) <= 150 else {})


def _number(
    key: str, options: Mapping[str, str], least: int, most: int, hint: str = "", default: str = ""
) -> Block:
    value = options.get(key) or default
    number: Block = {"type": "number_input", "action_id": key, "is_decimal_allowed": False}
    number |= {"min_value": str(least), "max_value": str(most)}
    number |= {"placeholder": plain_text(hint)} if hint else {}
    fits = len(value) < 10 and value.isdecimal() and least <= int(value) <= most
    return number | ({"initial_value": value} if fits else {})


def _line(key: str, options: Mapping[str, str], hint: str) -> Block:
    line: Block = {"type": "plain_text_input", "action_id": key, "placeholder": plain_text(hint)}
    value = options.get(key, "")
    return line | ({"initial_value": value} if 0 < len(value) <= MAX_INPUT else {})


def _choice(key: str, options: Mapping[str, str], choices: Mapping[str, str]) -> Block:
    """Return a menu with the chosen option, or the first, selected."""
    menu_options = {value: {"text": plain_text(text), "value": value} for value, text in choices.items()}
    first = next(iter(menu_options.values()))
    menu = {"type": "static_select", "action_id": key, "options": list(menu_options.values())}
    return menu | {"initial_option": menu_options.get(options.get(key, ""), first)}


def _input(block_id: str, label: str, element: Block, *, dispatch: bool = False) -> Block:
    block: Block = {"type": "input", "block_id": block_id, "label": plain_text(label), "element": element}
    return block | ({"dispatch_action": True} if dispatch else {})


def _optional(block_id: str, label: str, element: Block) -> Block:
    return _input(block_id, label, element) | {"optional": True}


def _error_block(sentence: str) -> list[Block]:
    return [section(f":warning: {sentence}")] if sentence else []
