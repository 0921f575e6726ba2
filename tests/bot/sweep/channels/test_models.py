"""What was set up in Slack, laid over the configuration; its forms as values."""

from dataclasses import replace

from bot.platform.config.digest_times import DigestSchedule
from bot.platform.config.policy import Config, repository
from bot.platform.config.repositories import Repository
from bot.platform.config.teams import Team, granted_team, team_of
from bot.sweep.channels.models import (
    ChannelSetup,
    Group,
    Person,
    Setup,
    applied,
    entry,
    read,
    team_by_mail,
    with_groups,
)
from bot.sweep.channels.views import all_zones, greeting, read_setup, saved, setup_form, zones
from local.slack import validation
from local.slack.views import initial
from tests.bot.factories import REPOSITORY

OTHER = Repository(name="vision", url="https://git.example/vision.git")
CONFIG = Config(
    repositories=(REPOSITORY, OTHER),
    teams=(Team(name="see", members=("U11", "Grace@lab.example")), Team(name="hear")),
    digests=(DigestSchedule(channel="C1", hour=9),),
)
WORST = "ﷺ*_~`<!channel>&" * 20


def test_channel_has_what_its_settings_and_the_configuration_allow():
    place = ChannelSetup(repo="vision", team="see", hour=7, timezone="Europe/Berlin")
    after = applied(CONFIG, Setup(channels={"C2": place}))
    assert repository(None, after, "C2").name == "vision"
    assert repository("digits", after, "C2").name == "digits"
    assert repository(None, after, "C1").name == repository(None, after).name == "digits"
    assert after.digests == (
        DigestSchedule(channel="C1", hour=9),
        DigestSchedule(channel="C2", hour=7, timezone="Europe/Berlin", team="see"),
    )
    assert applied(CONFIG, Setup(channels={"C1": replace(place, hour=7)})).digests[0].hour == 7
    setup = Setup(
        channels={
            "C2": ChannelSetup(namespace="see"),
            "C3": ChannelSetup(namespace="kube-system"),
            "C4": ChannelSetup(),
        }
    )
    assert applied(replace(CONFIG, namespaces=("see",)), setup).channel_namespaces == {"C2": "see"}
    place = ChannelSetup(repo="gone", team="gone", hour=7)
    after = applied(CONFIG, Setup(channels={"C2": place}, people={"U22": Person(team="gone")}))
    assert repository(None, after, "C2").name == "digits"
    assert after.digests[1].team == ""
    assert after.teams == CONFIG.teams
    places = {"C2": replace(place, hour=24), "C3": replace(place, timezone="Europe/Berln")}  # by hand
    after = applied(CONFIG, Setup(channels=places))
    assert [(each.channel, each.timezone) for each in after.digests] == [("C1", "UTC"), ("C3", "UTC")]


def test_user_team_follows_the_file_then_the_choice_and_the_address():
    after = applied(CONFIG, Setup(people={"U11": Person(team="hear"), "U22": Person(team="hear")}))
    assert (team_of(after.teams, "", "U11"), team_of(after.teams, "", "U22")) == ("see", "hear")
    people = {user: Person(team="hear", chosen=True) for user in ("U11", "U22")}
    assert applied(CONFIG, Setup(people=people)).self_assigned == {"U22"}
    assert team_by_mail("grace@LAB.example", CONFIG) == "see"
    assert team_by_mail("", CONFIG) == team_by_mail("u1", replace(CONFIG, teams=())) == ""
    grace = Setup(people={"U22": Person(team="see", mail="grace@lab.example")})
    assert team_of(applied(CONFIG, grace).teams, "", "U22") == "see"
    see, hear = CONFIG.teams
    without = replace(CONFIG, teams=(replace(see, members=("U11",)), hear))
    assert team_of(applied(without, grace).teams, "", "U22") == ""
    former = Setup(people={"U22": Person(team="see")})  # of a version that kept no address: looked up again
    assert team_of(applied(without, former).teams, "", "U22") == "see"
    assert former.people["U22"].is_outdated


def test_members_of_a_user_group_are_in_its_team_as_if_the_file_named_them():
    """An ID in the file wins, then the first team with a group, then what a person chose."""
    see, hear = CONFIG.teams
    config = replace(
        CONFIG, teams=(replace(see, members=(*see.members, "S11")), replace(hear, members=("S22",)))
    )
    groups = {"S11": Group(members=("U22", "U33")), "S22": Group(members=("U11", "U33", "U44"))}
    chosen = {user: Person(team="see", chosen=True) for user in ("U44", "U55")}
    after = applied(config, Setup(groups=groups, people=chosen))
    users = ("U11", "U22", "U33", "U44", "U55", "S11")
    assert [team_of(after.teams, "", user) for user in users] == ["see", "see", "see", "hear", "see", "see"]
    assert after.self_assigned == {"U55"}
    assert granted_team(after.teams, "U44", after.self_assigned).name == "hear"
    once = with_groups(config, Setup(groups=groups))
    assert with_groups(once, Setup(groups=groups)) == once
    assert team_of(applied(CONFIG, Setup(groups=groups)).teams, "", "U22") == "", "no team names the group"


def test_entries_are_stored_separately_and_invalid_ones_ignored():
    place, person = ChannelSetup(repo="vision", hour=0), Person(team="see")
    group = Group(members=("U22",))
    kept = {"C2": entry(place), "U22": entry(person), "C3": "{", "U33": '{"team": 3}', "S22": entry(group)}
    assert read(kept) == Setup(channels={"C2": place}, people={"U22": person}, groups={"S22": group})


def chosen(view):
    """As Slack returns it, untouched."""
    assert validation.view_complaints(view, "modal") == []
    blocks = validation.completed(view["blocks"])
    values = {block: {one["action_id"]: initial(one)} for block, one in validation.elements(blocks)}
    return view | {"state": {"values": values}}


def test_form_round_trips_the_settings_and_offers_what_there_is():
    names = [f"x{number}" for number in range(150)]
    many = Config(
        repositories=tuple(replace(OTHER, name=name) for name in names),
        namespaces=tuple(names),
        teams=tuple(Team(name=name) for name in names),
    )
    view = setup_form("C2", ChannelSetup(repo="x149", namespace="x148", team="x147"), many)
    assert validation.view_complaints(view, "modal") == []
    menus = [block["element"] for block in view["blocks"] if block["type"] == "input"]
    assert [menu["initial_option"]["value"] for menu in menus] == ["x149", "x148", "x147", "-", "UTC"]
    for place in (
        ChannelSetup(repo="vision", team="see", hour=0, timezone="Asia/Tokyo"),
        ChannelSetup(repo="digits"),
    ):
        assert read_setup(chosen(setup_form("C2", place, CONFIG))) == ("C2", place)
    assert read_setup(chosen(setup_form("C2", ChannelSetup(), CONFIG))) == ("C2", ChannelSetup(repo="digits"))
    more = replace(CONFIG, namespaces=("see", "hear"))
    for place in (ChannelSetup(repo="digits", namespace="hear"), ChannelSetup(repo="digits")):
        assert read_setup(chosen(setup_form("C2", place, more))) == ("C2", place)
    reply = saved("C2", ChannelSetup(repo="digits", namespace="hear"))["blocks"][0]["text"]["text"]
    assert "repository `digits`, trials in `hear`, no daily digest." in reply
    assert [one["value"] for one in zones("new york")] == ["America/New_York"]
    assert validation.options_complaints({"options": zones("")}) == []
    assert len(zones("")) == 100 < len(all_zones())
    many = tuple(Team(name=f"t{n}" * 20) for n in range(300))
    repos = tuple(Repository(name=f"r{n}" * (60 - n % 40), url="https://git.example/x") for n in range(300))
    config = Config(repositories=repos, teams=many)
    chosen(setup_form("C2", ChannelSetup(timezone="x" * 60), config))
    chosen(saved("C2", ChannelSetup(repo=WORST, team=WORST, timezone=WORST)))
    for name, team in ((WORST, ""), (WORST, "t" * 63)):
        message = greeting(name, team, config)
        assert validation.complaints(list(message.blocks)) == []
        assert len(message.text) < 4000
