"""/sweep setup, and the greeting of a new person: views and messages out, what was chosen back. Pure."""

from typing import Any
from zoneinfo import available_timezones

from bot.channels.models import ChannelSetup
from bot.config.policy import Config
from bot.slack.blocks import (
    MOST,
    NOTHING,
    VALUE,
    Block,
    Option,
    View,
    actions,
    modal,
    option,
    plain_text,
    section,
)
from bot.slack.message import Message
from bot.slack.mrkdwn import code, plain

SETUP, ZONE, TEAM = "setup_form", "setup_zone", "greet_team"  # callback id; action ids
ZONES = tuple(sorted(available_timezones()))


def setup_form(channel: str, place: ChannelSetup, config: Config) -> View:
    repos = {each.name: each.name for each in config.repositories if len(each.name) <= VALUE}
    homes = {NOTHING: "the installation's"} | {name: name for name in config.namespaces}
    teams = {NOTHING: "everybody"} | {team.name: team.name for team in config.teams}
    hours = {NOTHING: "no digest"} | {str(hour): f"{hour}:00" for hour in range(24)}
    hour = NOTHING if place.hour is None else str(place.hour)
    home = _choice("namespace", homes, place.namespace)
    zone: Block = {"type": "external_select", "action_id": ZONE, "min_query_length": 0}
    blocks = [
        section(f"What holds in <#{channel}>:"),
        _input("repo", "Repository, when a sweep names none", _choice("repo", repos, place.repo)),
        *([_input("namespace", "Namespace of its trials", home)] if config.namespaces else []),
        _input("team", "Team that the digest is about", _choice("team", teams, place.team)),
        _input("hour", "Digest of idle GPUs", _choice("hour", hours, hour)),
        _input("zone", "In the timezone", zone | {"initial_option": option(place.timezone)}),
    ]
    more: dict[str, Any] = {"callback_id": SETUP, "submit": plain_text("Save"), "private_metadata": channel}
    return modal("Set up this channel", blocks, close="Cancel", **more)


def read_setup(view: View) -> tuple[str, ChannelSetup]:
    """The channel, and what was chosen for it."""
    said = {
        block: (entered["selected_option"] or {}).get("value", "")
        for block, inside in view["state"]["values"].items()
        for entered in inside.values()
    }
    home, team, hour = (said.get(key, "").removeprefix(NOTHING) for key in ("namespace", "team", "hour"))
    place = ChannelSetup(
        repo=said["repo"],
        namespace=home,
        team=team,
        hour=int(hour) if hour else None,
        timezone=said["zone"] or "UTC",
    )
    return view["private_metadata"], place


def zones(typed: str) -> list[Option]:
    wanted = typed.strip().lower().replace(" ", "_")
    return [option(zone) for zone in ZONES if wanted in zone.lower()][:MOST]


def saving() -> View:
    return modal("Set up this channel", [section(":hourglass_flowing_sand: Saving.")])


def saved(channel: str, place: ChannelSetup) -> View:
    return modal("Set up this channel", [section(f":white_check_mark: {told(channel, place)}")])


def told(channel: str, place: ChannelSetup) -> str:
    whose = f" of team {code(place.team)}" if place.team else ""
    hour = f"{place.hour}:00 {plain(place.timezone)}" if place.hour is not None else ""
    digest = f"the digest{whose} comes at {hour}" if hour else "there is no digest"
    home = f", their trials run in {code(place.namespace)}" if place.namespace else ""
    return f"In <#{channel}> sweeps are of {code(place.repo)}{home} and {digest}."


def greeting(name: str, team: str, config: Config) -> Message:
    """`team` is what is known already; else it can be chosen, where there are any."""
    lines = [
        f"Hello {plain(name[:80])}! I build a branch of yours and search hyperparameters on the lab's GPUs.",
        "• `/sweep` opens a form that knows branches and spaces; `/sweep branch=main space=lr` needs none.",
        "• A sweep's story is told in one thread, with buttons for its trials, logs and results.",
        "• `/gpus` says which GPUs are free, and my home tab shows your sweeps, your team's and what waits.",
    ]
    if team:
        lines.append(f"You are in team {code(team)}.")
    blocks = [section("\n".join(lines))]
    if not team and config.teams:
        teams = {each.name: each.name for each in config.teams[:MOST]}
        ask = {"type": "static_select", "action_id": TEAM, "placeholder": plain_text("Your team")}
        options = [option(each) for each in teams]
        blocks += [section("Which team are you in?"), actions(ask | {"options": options})]
    return Message(text="\n".join(lines), blocks=tuple(blocks))


def _choice(action: str, choices: dict[str, str], chosen: str) -> Block:
    """Without a choice so far it is the first. Of too many the last are left out, but not this one."""
    options = {value: option(value, text=text) for value, text in choices.items()}
    shown = list(options.values())[:MOST]
    now = options.get(chosen, shown[0])
    if now not in shown:
        shown[-1] = now
    return {"type": "static_select", "action_id": action, "options": shown, "initial_option": now}


def _input(block_id: str, label: str, element: Block) -> Block:
    return {"type": "input", "block_id": block_id, "label": plain_text(label), "element": element}
