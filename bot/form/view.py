"""The launch form: convert a draft to a view, and a view's state to a draft. Pure.

Values are keyed by the options of the command and read by the same readers.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bot.config.policy import Config
from bot.config.policy_keys import GOALS
from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.request import SEEDS, Notify, SweepRequest
from bot.core.space import ALGORITHMS, MetricSource
from bot.launch.capacity import profile_size
from bot.launch.command_line import conflicts, missing_options, read_values
from bot.slack.blocks import (
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
from bot.slack.mrkdwn import code, cut, direct, place, plain
from bot.spaces.space import INLINE, parse_space

FORM, LAUNCH = "sweep_form", "sweep_launch"  # callback ids
REPO_MENU, BRANCH_MENU, SPACE_MENU = "sweep_repo", "sweep_branch", "sweep_space"  # action ids of the menus
TOGGLE_INLINE, EDIT, CHECK_AGAIN = "sweep_write", "sweep_change", "sweep_again"  # action ids of the buttons

MAX_INPUT = 3000  # characters: Slack's limit for an input
MAX_METADATA = 3000
MAX_OPTION, MAX_PROFILES = 75, 99  # characters of an option of a menu; its options without the default
MAX_QUEUES = 99  # in a menu, without the default: Slack's limit is 100
MAX_FIELD_ERROR = 1000  # characters of the error below an input
FIELDS = {
    *("repo", "branch", "space", "text", "seeds", "profile", "gpus", "nodes"),
    *("parallel", "trials"),
    *("algorithm", "metric", "goal", "metrics", "flags", "cmd", "notify", "gate", "max_hours"),
    *("queue", "priority", "cluster"),
}
HIDDEN_OPTIONS = (
    "repo",
    "branch",
    "name",
    "image",
)  # in private_metadata: Slack sends menus no view state
EXAMPLE_SPACE = """\
command: python train.py
objective: {metric: loss, goal: minimize}
parameters:
  lr: {min: 1e-4, max: 1e-1, scale: log}
"""
NOTIFY = {
    Notify.CHANNEL: "Mention me in the channel",
    Notify.DM: "Send me a direct message",
    Notify.NONE: "Thread only",
}
DEFAULT = "Use the space's value"
ALGORITHM_CHOICES = {NOTHING: DEFAULT} | {word: word for word in ALGORITHMS}
METRICS_CHOICES = {NOTHING: DEFAULT} | {
    MetricSource.TENSORBOARD.value: "TensorBoard",
    MetricSource.STDOUT.value: "Output (stdout)",
    MetricSource.PUSH.value: "Katib's report_metrics (push)",
}
FLAGS_CHOICES = {NOTHING: DEFAULT} | {style.value: style.value for style in FlagStyle}
GATE_CHOICES = {
    NOTHING: "Use the default",
    "on": "One trial first, the others once it is healthy",
    "off": "All parallel trials at once",
}
PARALLEL_HINT = "1 to {0}, or auto to follow free GPUs (auto:{0} sets a maximum)"
GOAL_CHOICES = {NOTHING: DEFAULT} | {word: word.capitalize() for word in GOALS}


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The values entered so far, by option of the command; `text` is an inline space."""

    options: Mapping[str, str] = field(default_factory=dict)
    channel: str
    inline: bool = False  # whether the space is written inline

    def without(self, *keys: str) -> "Draft":
        return replace(self, options={key: value for key, value in self.options.items() if key not in keys})


def options_of(request: SweepRequest) -> dict[str, str]:
    """Return the options of a request that differ from their defaults, without the commit."""
    default = SweepRequest(branch="", space="")
    pairs = {key: getattr(request, key) for key in SweepRequest.__dataclass_fields__ if key != "commit"}
    options = {key: str(value) for key, value in pairs.items() if value != getattr(default, key)}
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
    """Return the form. `errors`: errors in mrkdwn by key, shown below their fields; "" is the whole form."""
    errors = errors or {}
    blocks = [*_error_block(errors.get("", ""))]
    for key, block in _fields(draft, config).items():
        blocks += [block, *_error_block(errors.get(key, ""))]
    blocks.append(context(_destination(draft.channel)))
    return modal(
        "New sweep",
        blocks,
        close="Cancel",
        callback_id=FORM,
        submit=plain_text("Preview"),
        private_metadata=metadata(draft),
    )


def _destination(channel: str) -> str:
    if direct(channel):
        where = "your direct messages, where commands don't work"
        return f"Updates go to {where}. To use a channel, run `/sweep` there."
    return f"Updates go to {place(channel)}."


def _fields(draft: Draft, config: Config) -> dict[str, Block]:
    """Return the inputs by key, in order."""
    options, limits = draft.options, config.limits
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
        "seeds": _optional(
            "seeds", "Seeds", _line("seeds", options, "Instead of a space: a number, or seeds such as 0-4,7")
        ),
        **_machine_fields(options, config),
        "parallel": _optional(
            "parallel", "Parallel trials", _line("parallel", options, PARALLEL_HINT.format(limits.parallel))
        ),
        "trials": _optional("trials", "Max trials", _number("trials", options, 1, limits.trials, DEFAULT)),
        "algorithm": _input("algorithm", "Algorithm", _choice("algorithm", options, ALGORITHM_CHOICES)),
        "metric": _optional(
            "metric", "Metric", _line("metric", options, "Overrides the space, for example: loss")
        ),
        "goal": _input("goal", "Goal", _choice("goal", options, GOAL_CHOICES)),
        "metrics": _input("metrics", "Metrics from", _choice("metrics", options, _metrics(options))),
        "flags": _input("flags", "Pass parameters as", _choice("flags", options, FLAGS_CHOICES)),
        "cmd": _optional(
            "cmd", "Command", _line("cmd", options, "Overrides the space, for example: python train.py")
        ),
        "gate": _input("gate", "Start", _choice("gate", options, GATE_CHOICES)),
        "max_hours": _optional(
            "max_hours", "Max hours", _line("max_hours", options, "For the whole sweep, for example: 12")
        ),
        **_queue_fields(options, config),
        "notify": _input(
            "notify",
            "Notify on first failure and at the end",
            _choice("notify", options, {str(each): words for each, words in NOTIFY.items()}),
        ),
    }


def _machine_fields(options: Mapping[str, str], config: Config) -> dict[str, Block]:
    """Return the inputs for the size of a trial; with profiles, GPUs only scale the chosen one."""
    most = config.limits.gpus_per_trial
    if not config.profiles:
        number = _number("gpus", options, 0, most, default="1")
        return {"gpus": _input("gpus", "GPUs per trial", number), **_nodes(options, config)}
    choices = {
        each.name: f"{each.name}: {profile_size(each, config)}"[:MAX_OPTION] for each in config.profiles
    }
    default = f"Default ({config.profiles[0].name})"
    menu = _choice("profile", options, {NOTHING: default} | dict([*choices.items()][:MAX_PROFILES]))
    number = _number("gpus", options, 0, most, "The profile's")
    return {
        "profile": _input("profile", "Profile", menu),
        "gpus": _optional("gpus", "GPUs per trial", number),
        **_nodes(options, config),
    }


def _nodes(options: Mapping[str, str], config: Config) -> dict[str, Block]:
    most = config.limits.nodes_per_trial
    if most == 1:
        return {}
    number = _number("nodes", options, 1, most, "Default: the space's or profile's")
    hint = {"hint": plain_text("Each node has the GPUs above.")}
    return {"nodes": _optional("nodes", "Nodes per trial", number) | hint}


def _queue_fields(options: Mapping[str, str], config: Config) -> dict[str, Block]:
    """Return menus for what the configuration has: a cluster or a queue only if there are several."""
    fields, policy = dict[str, Block](), config.queueing
    if len(config.clusters) > 1:
        clusters = {NOTHING: "Where most GPUs are free"} | {each.name: each.name for each in config.clusters}
        fields["cluster"] = _input("cluster", "Cluster", _choice("cluster", options, clusters))
    if len(policy.queues) > 1:
        queues = {NOTHING: "Use the default"} | {each.name: each.name for each in policy.queues[:MAX_QUEUES]}
        fields["queue"] = _input("queue", "Queue", _choice("queue", options, queues))
    if policy.priorities:
        names = {NOTHING: "Use the default"} | {
            each.name: each.name.capitalize() for each in policy.priorities
        }
        fields["priority"] = _input("priority", "Priority", _choice("priority", options, names))
    return fields


def _metrics(options: Mapping[str, str]) -> dict[str, str]:
    """Return the menu of sources, with the path of a file if one was typed in the command."""
    path = options.get("metrics", "")
    return METRICS_CHOICES | (
        {path: f"File {path[-60:]}"} if path.startswith("/") and len(path) <= MAX_VALUE else {}
    )


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
    return Draft(options=options, channel=hidden["channel"], inline=hidden["inline"])


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
            errors[key] = f"That's a note from git, not a {key}. Choose another option or type a name."
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
    about = {"channel": draft.channel, "inline": draft.inline} | more
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
