"""/sweep setup and the greeting, through Bolt's real dispatch, into the cluster's ConfigMap and back."""

import contextlib
from dataclasses import replace

import pytest
from slack_sdk.errors import SlackApiError

from bot.platform.config.live_policy import LivePolicy
from bot.platform.config.teams import Team, team_of
from bot.platform.slack.client import SlackBusyError
from bot.sweep.channels.models import ChannelSetup, Person, Setup, applied, entry
from bot.sweep.channels.store import CONFIGMAP_NAME, REQUESTS, SetupReader, SetupRequest, SetupWriter, dump
from k8s.objects import Ref
from tests.bot.factories import CONFIG, REPOSITORY
from tests.scenarios.slack_user import ADA, a_slack_user
from tests.scenarios.sweep_in_memory import Clock, CrashingProxy, WorkerCrash

VISION = "C01VISION00"
GRACE = Person(team="see", mail="grace@lab.example")
HOUSE = replace(
    CONFIG,
    admins=(ADA,),
    namespaces=("speech",),
    repositories=(REPOSITORY, replace(REPOSITORY, name="vision", url="https://git.example/vision.git")),
    teams=(Team(name="see", members=("grace@lab.example",)), Team(name="hear")),
)


@pytest.fixture
async def ada(redis):
    async with a_slack_user(redis, HOUSE) as made:
        await made.setups.refresh()
        await made.context.channel_setup.refresh()
        yield made


def option(value):
    return {"text": {"type": "plain_text", "text": value}, "value": value}


async def set_up(ada):
    assert await ada.slack.command("ada", "vision", "/sweep", "setup") == ""
    await ada.slack.enter("ada", "repo", option("vision"))
    await ada.slack.enter("ada", "namespace", option("speech"))
    await ada.slack.enter("ada", "hour", option("7"))
    [zone] = await ada.slack.options("ada", "setup_zone", "berlin")
    await ada.slack.enter("ada", "setup_zone", zone)
    assert await ada.slack.submit("ada") == {}
    await ada.runs()


async def test_channel_setup_selects_the_repository_of_its_sweeps(ada):
    await set_up(ada)
    assert (
        f"Saved. <#{VISION}>: repository `vision`, trials in `speech`, digest at 07:00 "
        "Europe/Berlin." in ada.shows()
    )
    await ada.context.channel_setup.refresh()
    place = ChannelSetup(repo="vision", namespace="speech", hour=7, timezone="Europe/Berlin")
    assert ada.context.channel_setup.setup.channels == {VISION: place}
    assert ada.clients.config.channel_namespaces == {VISION: "speech"}
    assert ada.clients.config.channel_repos == {VISION: "vision"}
    assert [each.channel for each in ada.clients.config.digests] == [VISION]
    await ada.slack.dismiss("ada")
    await ada.slack.command("ada", "vision", "/sweep", "branch=main")
    values = {k: v for each in ada.modal()["state"]["values"].values() for k, v in each.items()}
    assert values["sweep_repo"]["selected_option"]["value"] == "vision"


async def test_channel_setup_is_logged_with_its_user(ada, caplog):
    caplog.set_level("INFO", "sweepbot.audit")
    await set_up(ada)
    reply = '{"repo":"vision","namespace":"speech","team":"","hour":7,"timezone":"Europe/Berlin"}'
    assert [record.message for record in caplog.records if record.name == "sweepbot.audit"] == [
        f"user={ADA} action=setup channel={VISION} settings={reply}"
    ]


async def test_channel_setup_survives_a_lost_redis(ada, redis):
    await set_up(ada)
    await redis.flushall()
    await ada.setups.refresh()
    again_opened = SetupReader(redis, ada.context.queue, LivePolicy(HOUSE))
    await again_opened.refresh()
    assert again_opened.config.channel_repos == {VISION: "vision"}


async def test_channel_setup_is_for_admins(ada):
    answer = await ada.slack.command("grace", "vision", "/sweep", "setup")
    assert answer == f"Only admins can do that: <@{ADA}>."
    assert ada.slack.modals("grace") == []


async def test_new_user_is_greeted_once_and_found_by_email(ada):
    for _ in range(2):
        await ada.slack.command("grace", "sweeps", "/sweep", "help")
        await ada.runs()
        await ada.context.channel_setup.refresh()
    [hello] = ada.slack.messages("D01GRACEHOP")
    assert hello["text"].startswith("Hi Grace Hopper!")
    assert "You're in team `see`." in hello["text"]
    assert ada.context.channel_setup.setup.people == {"U01GRACEHOP": GRACE}


@pytest.mark.parametrize(("teams", "found"), [(HOUSE.teams, GRACE), ((), Person())])
async def test_entry_of_a_former_version_is_replaced_without_a_greeting(ada, teams, found):
    entries = {"U01GRACEHOP": entry(Person(team="see"))}
    meta = {"name": CONFIGMAP_NAME, "namespace": "sweeps"}
    await ada.clients.cluster.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": entries}
    )
    ada.setups._policy.config = replace(HOUSE, teams=teams)
    await ada.setups.refresh()
    await ada.context.channel_setup.refresh()
    await ada.slack.command("grace", "sweeps", "/sweep", "help")
    await ada.runs()
    assert ada.setups.setup.people == {"U01GRACEHOP": found}
    assert ada.slack.workspace.channels.keys() == {"C01SWEEPS00", VISION, "C01RANDOM00"}


async def test_entry_of_a_former_version_whose_user_the_file_names_needs_no_email(ada):
    ada.setups._policy.config = replace(HOUSE, teams=(Team(name="see", members=("U01GRACEHOP",)),))
    meta = {"name": CONFIGMAP_NAME, "namespace": "sweeps"}
    data = {"U01GRACEHOP": entry(Person(team="see"))}
    await ada.clients.cluster.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    )

    async def without_mail(_):
        return "Grace Hopper", ""

    ada.clients.slack.profile = without_mail
    await ada.setups.run("U01GRACEHOP")
    await ada.context.channel_setup.refresh()
    assert ada.setups.setup.people == {"U01GRACEHOP": Person()}
    assert not ada.context.channel_setup.is_new("U01GRACEHOP"), "each of her commands would ask Slack"


async def test_team_follows_a_user_group_of_slack(ada, redis, caplog):
    """Also for the handlers, after a loss of Redis and of the ConfigMap, and while Slack can't say."""
    ada.setups._policy.config = replace(HOUSE, teams=(Team(name="hear", members=("S0HEAR",)),))
    groups = ada.slack.workspace.groups
    groups["S0HEAR"] = ["U01LINUSPAU", "U01GRACEHOP"]

    async def team_now(user="U01LINUSPAU", *, due=True):
        if due:
            await redis.delete("sweepbot:group:S0HEAR", "sweepbot:group:S0HEAR:unknown")
        await ada.setups.refresh_groups()
        await ada.context.channel_setup.refresh()
        handlers = applied(ada.setups._policy.config, ada.context.channel_setup.setup)
        found = {team_of(config.teams, "", user) for config in (ada.clients.config, handlers)}
        [team] = found
        return team

    assert await team_now() == "hear"
    groups["S0HEAR"] = ["U01GRACEHOP"]
    assert await team_now(due=False) == "", "asked once more, because the group was unknown"
    groups["S0HEAR"].append("U01LINUSPAU")
    assert await team_now(due=False) == "", "Slack is asked every ten minutes"
    assert await team_now() == "hear"
    ada.slack.stumble("usergroups.users.list", "missing_scope")
    assert await team_now() == "hear"
    assert "can't read the members of user group S0HEAR: missing_scope" in caplog.text
    await redis.flushall()
    await ada.clients.cluster.delete(Ref("ConfigMap", "sweeps", CONFIGMAP_NAME))
    await ada.setups.refresh()
    assert await team_now(due=False) == "hear"
    del groups["S0HEAR"]
    assert await team_now() == ""
    assert "user group S0HEAR of a team has no members, or doesn't exist" in caplog.text


async def test_greeting_waits_while_slack_limits_the_look_up_of_the_address_or_is_down(ada):
    await ada.slack.command("grace", "sweeps", "/sweep", "help")
    ada.slack.stumble("users.info", "ratelimited")
    ada.slack.stumble("chat.postMessage", "internal_error")
    for error in (SlackBusyError, SlackApiError):
        with pytest.raises(error):
            await ada.setups.run("U01GRACEHOP")
    assert "D01GRACEHOP" not in ada.slack.workspace.channels
    await ada.setups.run("U01GRACEHOP")
    assert len(ada.slack.messages("D01GRACEHOP")) == 1
    assert ada.setups.setup.people == {"U01GRACEHOP": GRACE}


async def test_user_without_a_team_chooses_one(ada):
    await ada.slack.command("linus", "sweeps", "/sweep", "help")
    await ada.runs()
    [hello] = ada.slack.messages("D01LINUSPAU")
    where = ("linus", "D01LINUSPAU", hello["ts"], "greet_team")
    assert await ada.slack.click(*where, option("hear")) is None
    await ada.runs()
    assert ada.slack.messages("D01LINUSPAU")[-1]["text"] == "You're now in team `hear`."
    kept = await ada.clients.cluster.get(Ref("ConfigMap", "sweeps", CONFIGMAP_NAME))
    assert kept["data"] == {"U01LINUSPAU": '{"team":"hear","chosen":true}'}
    assert ada.clients.config.teams[1].members == ("U01LINUSPAU",)


async def test_greeting_and_setup_wait_until_the_stored_entries_are_known(redis):
    async with a_slack_user(redis, HOUSE) as ada:
        assert "Try again" in (await ada.slack.command("ada", "vision", "/sweep", "setup") or "")
        await ada.slack.command("grace", "sweeps", "/sweep", "help")
        await ada.runs()
        assert ada.slack.workspace.channels.keys() == {"C01SWEEPS00", VISION, "C01RANDOM00"}


@pytest.mark.parametrize("crash_at", range(1, 14))
async def test_crash_at_any_call_greets_at_most_twice_and_writes_once(redis, crash_at):
    async with a_slack_user(redis, HOUSE) as ada:
        clock = Clock(crash_at)
        crashing = replace(
            ada.clients,
            cluster=CrashingProxy(ada.clients.cluster, clock),
            slack=CrashingProxy(ada.clients.slack, clock),
        )
        place = ChannelSetup(repo="vision", hour=7)
        request = SetupRequest(user=ADA, channel=VISION, settings=place)
        await ada.context.add_request(str(REQUESTS), dump(request))
        for _ in range(3):
            with contextlib.suppress(WorkerCrash):
                await SetupWriter(crashing, redis, LivePolicy(HOUSE)).run("U01GRACEHOP")
        greetings = ada.slack.messages("D01GRACEHOP")
        assert 1 <= len(greetings) <= 2
        await ada.setups.refresh()
        assert ada.setups.setup == Setup(channels={VISION: place}, people={"U01GRACEHOP": GRACE})
        assert await ada.context.store.requests(str(REQUESTS)) == []


DAMAGED = (
    b"{",
    b"null",
    b"\xff",
    b'{"user":1}',
    b'{"user":"U1","channel":"no/id","settings":{"repo":"vision"}}',
)


@pytest.mark.parametrize("damaged", DAMAGED)
async def test_damaged_request_is_dropped_with_one_log_line_and_later_ones_are_applied(
    ada, redis, caplog, damaged
):
    await ada.context.store.add_request(str(REQUESTS), damaged)
    await set_up(ada)
    assert ada.setups.setup.channels[VISION].repo == "vision"
    assert await ada.context.store.requests(str(REQUESTS)) == []
    assert len([each for each in caplog.records if "setup request dropped" in each.message]) == 1
