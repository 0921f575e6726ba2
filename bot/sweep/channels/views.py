"""The form of /sweep setup with its time zones, what it answers, and the greeting of a new user with its menu
of teams. Pure.
"""

from functools import cache
from typing import Any
from zoneinfo import available_timezones

from bot.platform.config.policy import Config
from bot.platform.slack.blocks import (
    MAX_OPTIONS,
    MAX_VALUE,
    NOTHING,
    Block,
    Option,
    View,
    actions,
    modal,
    option,
    plain_text,
    section,
)
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code, plain
from bot.sweep.channels.models import ChannelSetup

SETUP_FORM, ZONE, TEAM_CHOICE = "setup_form", "setup_zone", "greet_team"  # callback id; action ids


def setup_form(channel: str, settings: ChannelSetup, config: Config) -> View:
    repos = {each.name: each.name for each in config.repositories if len(each.name) <= MAX_VALUE}
    homes = {NOTHING: "Default"} | {name: name for name in config.namespaces}
    teams = {NOTHING: "All teams"} | {team.name: team.name for team in config.teams}
    hours = {NOTHING: "Off"} | {str(hour): f"{hour:02}:00" for hour in range(24)}
    hour = NOTHING if settings.hour is None else str(settings.hour)
    home = _choice("namespace", homes, settings.namespace)
    zone: Block = {"type": "external_select", "action_id": ZONE, "min_query_length": 0}
    blocks = [
        section(f"Settings for <#{channel}>"),
        _input("repo", "Default repository", _choice("repo", repos, settings.repo)),
        *([_input("namespace", "Namespace for trials", home)] if config.namespaces else []),
        _input("team", "Digest covers", _choice("team", teams, settings.team)),
        _input("hour", "Daily digest", _choice("hour", hours, hour)),
        _input("zone", "Time zone", zone | {"initial_option": option(settings.timezone)}),
    ]
    more: dict[str, Any] = {
        "callback_id": SETUP_FORM,
        "submit": plain_text("Save"),
        "private_metadata": channel,
    }
    return modal("Set up this channel", blocks, close="Cancel", **more)


def read_setup(view: View) -> tuple[str, ChannelSetup]:
    """Return the channel and its chosen settings."""
    chosen = {
        block: (entered["selected_option"] or {}).get("value", "")
        for block, inside in view["state"]["values"].items()
        for entered in inside.values()
    }
    home, team, hour = (chosen.get(key, "").removeprefix(NOTHING) for key in ("namespace", "team", "hour"))
    settings = ChannelSetup(
        repo=chosen["repo"],
        namespace=home,
        team=team,
        hour=int(hour) if hour else None,
        timezone=chosen["zone"] or "UTC",
    )
    return view["private_metadata"], settings


def zones(typed: str) -> list[Option]:
    wanted = typed.strip().lower().replace(" ", "_")
    return [option(zone) for zone in all_zones() if wanted in zone.lower()][:MAX_OPTIONS]


@cache
def all_zones() -> list[str]:
    return sorted(available_timezones())  # reads hundreds of files


def saving() -> View:
    return modal("Set up this channel", [section(":hourglass_flowing_sand: Saving…")])


def saved(channel: str, settings: ChannelSetup) -> View:
    return modal("Set up this channel", [section(f":white_check_mark: {summary(channel, settings)}")])


def summary(channel: str, settings: ChannelSetup) -> str:
    team = f" for team {code(settings.team)}" if settings.team else ""
    hour = f"{settings.hour:02}:00 {plain(settings.timezone)}" if settings.hour is not None else ""
    digest = f"digest{team} at {hour}" if hour else "no daily digest"
    namespace = f", trials in {code(settings.namespace)}" if settings.namespace else ""
    return f"Saved. <#{channel}>: repository {code(settings.repo)}{namespace}, {digest}."


def greeting(name: str, team: str, config: Config) -> Message:
    """Return the greeting. `team`: the user's team; "" adds a menu of teams, if there are any."""
    lines = [
        f"Hi {plain(name[:80])}! I run hyperparameter sweeps of your code on the cluster's GPUs.",
        "• Start a sweep with `/sweep`, which opens a form, or directly: `/sweep branch=main space=lr`.",
        "• Each sweep posts its progress in one thread, with buttons for trials, logs, and results.",
        "• `/gpus` shows free GPUs. My Home tab shows your sweeps, your team's, and the queue.",
    ]
    if team:
        lines.append(f"You're in team {code(team)}.")
    blocks = [section("\n".join(lines))]
    if not team and config.teams:
        teams = {each.name: each.name for each in config.teams[:MAX_OPTIONS]}
        ask = {"type": "static_select", "action_id": TEAM_CHOICE, "placeholder": plain_text("Your team")}
        options = [option(each) for each in teams]
        blocks += [section("Which team are you in?"), actions(ask | {"options": options})]
    return Message(text="\n".join(lines), blocks=tuple(blocks))


def _choice(action: str, choices: dict[str, str], chosen: str) -> Block:
    """Return a menu with the chosen option, or the first, selected; it is kept if there are too many."""
    options = {value: option(value, text=text) for value, text in choices.items()}
    shown = list(options.values())[:MAX_OPTIONS]
    now = options.get(chosen, shown[0])
    if now not in shown:
        shown[-1] = now
    return {"type": "static_select", "action_id": action, "options": shown, "initial_option": now}


def _input(block_id: str, label: str, element: Block) -> Block:
    return {"type": "input", "block_id": block_id, "label": plain_text(label), "element": element}
