"""The Slack app manifests: valid by Slack's rules, as narrow as the code allows, and alike in both modes."""

import copy
import re
from pathlib import Path

import pytest
import yaml

SLACK = Path(__file__).parents[2] / "deploy" / "slack"
FILES = {mode: SLACK / f"manifest-{mode}.yaml" for mode in ("socket", "http")}


def text(least, most, pattern=""):
    return lambda value: (
        isinstance(value, str) and least <= len(value) <= most and bool(re.search(pattern, value))
    )


def flag(value):
    return isinstance(value, bool)


# The rules of https://github.com/slackapi/manifest-schema, manifest.schema.2.0.0.json, for the parts in
# use here; keys with a ! are required, unknown ones refused.
SCOPES = [text(0, 50), 255]
RULES = {
    "_metadata": {"major_version": lambda value: value == 2},
    "display_information!": {
        "name!": text(1, 35),
        "description": text(1, 140),
        "background_color": text(4, 7, "^#[0-9a-fA-F]{3}([0-9a-fA-F]{3})?$"),
        "long_description": text(175, 4000),
    },
    "features": {
        "app_home": {
            "home_tab_enabled": flag,
            "messages_tab_enabled": flag,
            "messages_tab_read_only_enabled": flag,
        },
        "bot_user": {"display_name!": text(1, 80), "always_online": flag},
        "slash_commands": [
            {
                "command!": text(2, 32, "^/"),
                "url": text(0, 3000, "^https?://"),
                "description!": text(1, 2000),
                "usage_hint": text(1, 1000),
                "should_escape": flag,
            },
            50,
        ],
    },
    "oauth_config": {"scopes": {"bot": SCOPES, "bot_optional": SCOPES, "user": SCOPES}},
    "settings": {
        "interactivity": {
            "is_enabled!": flag,
            "request_url": text(0, 3500, "^https?://"),
            "message_menu_options_url": text(0, 3500, "^https?://"),
        },
        "event_subscriptions": {
            "request_url": text(0, 3500, "^https?://"),
            "bot_events": [text(0, 50), 100],
        },
        "socket_mode_enabled": flag,
        "org_deploy_enabled": flag,
        "token_rotation_enabled": flag,
    },
}


def broken(value, rule, path="manifest"):
    """The paths of what Slack would refuse."""
    if isinstance(rule, list):
        each, most = rule
        if not isinstance(value, list) or len(value) > most:
            return [path]
        return [trouble for item in value for trouble in broken(item, each, f"{path}[]")]
    if not isinstance(rule, dict):
        return [] if rule(value) else [path]
    if not isinstance(value, dict):
        return [path]
    rules = {key.rstrip("!"): each for key, each in rule.items()}
    found = [f"{path}.{key}" for key in value if key not in rules]
    found += [f"{path}.{key[:-1]}" for key in rule if key.endswith("!") and key[:-1] not in value]
    return found + [
        trouble
        for key in value
        if key in rules
        for trouble in broken(value[key], rules[key], f"{path}.{key}")
    ]


def manifest(mode):
    return yaml.safe_load(FILES[mode].read_text())


@pytest.mark.parametrize("mode", FILES)
def test_slack_manifest_is_valid(mode):
    assert broken(manifest(mode), RULES) == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda m: m.pop("display_information"), ".display_information"),
        (lambda m: m["display_information"].update(name="x" * 36), ".display_information.name"),
        (lambda m: m["features"]["slash_commands"][0].update(command="sweep"), ".slash_commands[].command"),
        (lambda m: m["settings"]["interactivity"].pop("is_enabled"), ".interactivity.is_enabled"),
        (lambda m: m["settings"].update(socket_mode_enabled="yes"), ".settings.socket_mode_enabled"),
        (lambda m: m["settings"].update(socket_mode=True), ".settings.socket_mode"),
    ],
)
def test_slack_manifest_rules_reject_what_slack_rejects(change, path):
    changed = copy.deepcopy(manifest("socket"))
    change(changed)
    [found] = broken(changed, RULES)
    assert found.endswith(path)


@pytest.mark.parametrize("mode", FILES)
def test_slack_manifest_requests_only_used_scopes_with_their_reasons(mode):
    scopes = manifest(mode)["oauth_config"]["scopes"]
    speak, know = (
        ["chat:write", "files:write", "im:write", "app_mentions:read", "im:history"],
        ["users:read", "users:read.email", "usergroups:read"],
    )
    members = ["channels:read", "groups:read"]
    assert scopes == {"bot": ["commands", *speak, *know], "bot_optional": members}
    histories = [scope for scope in scopes["bot"] if scope.endswith(":history")]
    assert histories == ["im:history"]  # it reads no messages in channels
    reasons = re.findall(r"^ +- ([a-z_.:]+) +# \w+", FILES[mode].read_text(), re.MULTILINE)
    events = manifest(mode)["settings"]["event_subscriptions"]["bot_events"]
    assert events == ["app_home_opened", "app_mention", "message.im"]
    assert reasons == [*scopes["bot"], *members, *events]


def test_slack_manifests_of_both_modes_differ_only_in_their_connection():
    socket, http = manifest("socket"), manifest("http")
    (address,) = {command.pop("url") for command in http["features"]["slash_commands"]}
    for settings, key in (
        ("interactivity", "request_url"),
        ("interactivity", "message_menu_options_url"),
        ("event_subscriptions", "request_url"),
    ):
        assert address == http["settings"][settings].pop(key)
    assert address.startswith("https://")
    assert address.endswith("/slack/events")
    assert (socket["settings"].pop("socket_mode_enabled"), http["settings"].pop("socket_mode_enabled")) == (
        True,
        False,
    )
    assert socket == http
