"""A person's settings: typed in Slack, kept in the cluster, and in effect on what sweeps post."""

import contextlib
import os
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.record import Phase
from bot.core.request import Notify
from bot.platform.config.live_policy import LivePolicy
from bot.platform.config.personal import Personal
from bot.platform.slack.blocks import section
from bot.platform.slack.client import Slack
from bot.platform.slack.message import File, Message
from bot.sweep.channels import quiet
from bot.sweep.channels.models import OWN, Person, entry
from bot.sweep.channels.quiet import QuietHours
from bot.sweep.channels.store import REQUESTS, SetupRequest, SetupWriter, dump
from local.slack.workspace import GRACE
from tests.bot.factories import CONFIG, NOW, OWNER, a_sweep
from tests.scenarios.slack_session import PLACE, open_session
from tests.scenarios.slack_user import ADA, a_slack_user
from tests.scenarios.sweep_in_memory import SWEEP, Clock, CrashingProxy, SimulatedSweep, WorkerCrash

DM = "D01ADALOVEL"
NOON = Personal(name="ada", quiet="10:00-18:00", zone="Etc/UTC")  # it is 12:00
AFTERWARDS = NOW + timedelta(hours=6)
FAILED = Message(
    text=f":x: <@{ADA}> *lr-brave-otter* · Failed\nlog", blocks=(section(f"<@{ADA}> and <@U01GRACEHOP>"),)
)


@pytest.fixture
async def ada(redis):
    async with a_slack_user(redis) as made:
        await made.setups.refresh()
        await made.context.channel_setup.refresh()
        store, queue = made.context.store, made.context.queue
        hours = QuietHours(store, queue, lambda: made.clients.config.people, lambda: made.now)
        made.clients.slack = Slack(made.clients.slack._web, quiet=hours)
        yield made


async def types(ada, text, person="ada"):
    answer = await ada.slack.command(person, "sweeps", "/sweep", text)
    await ada.runs()
    await ada.context.channel_setup.refresh()
    return answer


def direct(ada):
    return [each["text"] for each in ada.slack.messages(DM) if "quiet hours" in each["text"]]


async def test_settings_are_typed_shown_and_kept(ada, redis):
    assert await types(ada, "me quiet=22-7") == (
        "Saved. Notify of your sweeps: Mention me in the channel. Quiet hours: 22:00-07:00 (Etc/UTC): what "
        "comes then is in one message at their end."
    )
    assert (await types(ada, "me notify=dm zone=europe/berlin")).startswith(
        "Saved. Notify of your sweeps: Send "
    )
    await ada.context.store.create(a_sweep(), [SWEEP], "r")
    assert (await types(ada, "me mute=otter")).endswith(f" Muted: `{SWEEP}`.")
    await redis.flushall()
    await ada.setups.refresh()
    own = Personal(name="ada", notify="dm", quiet="22:00-07:00", zone="Europe/Berlin", muted=(SWEEP,))
    assert ada.clients.config.people == {ADA: own}
    assert ada.setups.setup.people == {ADA: Person()}
    await types(ada, "me unmute=brave quiet=off")
    assert (await types(ada, "me")).startswith("Notify of your sweeps: ")
    assert ada.clients.config.people == {ADA: replace(own, quiet="", muted=())}
    [hello] = ada.slack.messages(DM)
    assert hello["text"].startswith("Hi Ada Lovelace!")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("me quiet=22", 'quiet= must be hours such as 22:00-07:00, or off; got "22".'),
        ("me quiet=7-7", 'quiet= must be hours such as 22:00-07:00, or off; got "7-7".'),
        ("me zone=Berlin", 'zone= must be a time zone such as Europe/Berlin; got "Berlin".'),
        ("me notify=mail", 'notify= must be channel, dm, or none; got "mail".'),
        ("me mute=lr-calm-lynx", "No sweep named `lr-calm-lynx`."),
        ("me mute=lynx", "No sweep named `lynx`."),
        ("me unmute=lynx", 'unmute= must be one of your muted sweeps; got "lynx". Muted: none.'),
    ],
)
async def test_what_cannot_be_set_is_explained(ada, text, sentence):
    assert sentence in await types(ada, text)
    assert ada.clients.config.people == {}


async def test_time_zone_that_slack_does_not_say_has_to_be_typed(ada):
    ada.slack.stumble("users.info", "fatal_error", "fatal_error")
    assert await types(ada, "me quiet=22-7") == (
        "Slack doesn't say your time zone. Add it, for example zone=Europe/Berlin."
    )


async def test_own_notify_is_the_default_of_commands_and_of_the_form(ada):
    await types(ada, "me notify=none")
    for text, expected in (("", Notify.NONE), (" notify=dm", Notify.DM)):
        answer = await types(ada, f"branch=main space=lr{text}")
        sweep = await ada.context.store.get(answer.split("`")[1])
        assert sweep.request.notify is expected
    await ada.slack.command("ada", "sweeps", "/sweep", "branch=main")
    assert '"none"' in str(ada.modal()).replace("'", '"')


async def test_quiet_hours_keep_mentions_and_direct_messages_and_end_with_one_message(ada):
    ada.clients.config = replace(CONFIG, people={ADA: NOON})
    slack = ada.clients.slack
    thread = await slack.post(PLACE, FAILED)
    await slack.notify(ADA, ":white_check_mark: *lr-calm-lynx* in <#C1> · Finished")
    await slack.post_ephemeral(ADA, "The answer to a command.")
    [posted] = ada.slack.messages("sweeps")
    assert posted["text"].startswith(":x: ada *lr-brave-otter* · Failed")
    assert posted["blocks"][0]["text"]["text"] == "ada and <@U01GRACEHOP>"
    assert [each["text"] for each in ada.slack.messages(DM)] == ["The answer to a command."]
    await slack.update(PLACE, thread, FAILED)
    [edited] = ada.slack.messages("sweeps")
    assert edited["text"].startswith(":x: ada *lr-brave-otter* · Failed")
    assert await quiet.send(ADA, ada.clients) == timedelta(minutes=10)
    ada.now = AFTERWARDS
    assert await quiet.send(ADA, ada.clients) is None
    assert await quiet.send(ADA, ada.clients) is None
    [_, summary] = [each["text"] for each in ada.slack.messages(DM)]
    head, first, second = summary.split("\n")
    assert head == "2 messages came in your quiet hours:"
    assert first.startswith("• :x: ada *lr-brave-otter* · Failed (<")
    assert thread.replace(".", "") in first
    assert second == "• :white_check_mark: *lr-calm-lynx* in <#C1> · Finished"
    await slack.post(PLACE, FAILED)
    assert f"<@{ADA}>" in ada.slack.messages("sweeps")[-1]["text"]


async def test_quiet_hours_keep_nothing_of_direct_messages_of_others_and_each_of_equal_texts(ada):
    """A mention in a direct message notifies nobody but its receiver."""
    ada.clients.config = replace(CONFIG, people={ADA: NOON})
    slack = ada.clients.slack
    grace = await slack.open_dm(GRACE.id)
    await slack.post(grace, Message(text=f"<@{ADA}> asks whether you need it"))
    await slack.notify(GRACE.id, f":x: <@{ADA}>'s sweep failed")
    assert all(f"<@{ADA}>" in each["text"] for each in ada.slack.messages(grace))
    assert await ada.context.store.requests(str(quiet.item(ADA))) == []
    threads = [await slack.post(PLACE, Message(text=name)) for name in ("first", "second")]
    ada.slack.stumble("files.completeUploadExternal", "missing_scope")
    log = File(name="trial.log", content="Killed")
    await slack.upload_files(PLACE, threads[0], f":x: <@{ADA}> The trial failed.", [log])
    for _ in range(2):  # a worker died in between
        await slack.reply(PLACE, threads[1], f":x: <@{ADA}> The trial failed.")
    kept = await ada.context.store.requests(str(quiet.item(ADA)))
    assert [each.decode().split(" (<")[0] for each in kept] == [":x: ada The trial failed."] * 2


async def test_message_of_quiet_hours_is_kept_without_a_link_rather_than_posted_again(ada, monkeypatch):
    ada.clients.config = replace(CONFIG, people={ADA: NOON})

    async def fails(*_, **__):
        raise TimeoutError

    monkeypatch.setattr(ada.clients.slack._web, "chat_getPermalink", fails)
    await ada.clients.slack.post(PLACE, FAILED)
    assert await ada.context.store.requests(str(quiet.item(ADA))) == [
        b":x: ada *lr-brave-otter* \xc2\xb7 Failed"
    ]


async def test_full_configmap_and_settings_of_a_newer_version_keep_no_later_request_waiting(ada):
    ada.clients.config = CONFIG
    for own in ({"notify": "dm" * 2**20}, {"quiet": "", "color": "blue"}, {"mute": "lr-gone-owl"}):
        await ada.context.add_request(str(REQUESTS), dump(SetupRequest(user=ADA, own=own)))
    await ada.runs()
    assert ada.clients.config.people == {ADA: Personal()}, "without the sweep that doesn't exist any more"
    assert await ada.context.store.requests(str(REQUESTS)) == []
    assert ada.slack.messages(DM)[-1]["text"].startswith("Your settings couldn't be saved")


async def test_full_configmap_repeats_no_greeting_and_loses_mutes_of_deleted_sweeps_first(ada, caplog):
    stored, old = ada.setups._stored, Personal(name="grace", muted=("lr-gone-owl", "lr-gone-lynx"))
    await stored.write({"C01OTHER": "x" * 2**20})
    await ada.setups.run(ADA)  # it isn't repeated as a failed one is
    assert len(ada.slack.messages(DM)) == 1
    assert "ConfigMap sweepbot-setup is full" in caplog.text
    text = entry(old)
    await stored.write({f"{OWN}{GRACE.id}": text, "C01OTHER": "x" * (2**20 - len(text))})
    assert (await types(ada, "me notify=dm")).startswith("Saved.")
    assert ada.clients.config.people == {
        ADA: Personal(name="ada", notify="dm"),
        GRACE.id: replace(old, muted=()),
    }


async def test_many_messages_are_one_that_fits(ada):
    ada.clients.config = replace(CONFIG, people={ADA: NOON})
    for number in range(60):
        await ada.clients.slack.notify(ADA, f":x: *lr-{number}* {'<https://x.example|y> ' * 40}")
    ada.now = AFTERWARDS
    await quiet.send(ADA, ada.clients)
    [summary] = ada.slack.messages(DM)
    head, *lines, more = summary["text"].split("\n")
    assert (head, lines[0][:13]) == ("60 messages came in your quiet hours:", "• :x: *lr-0* ")
    assert more == f"• and {60 - len(lines)} more; each is in its thread"


async def test_quiet_hours_that_are_turned_off_end_at_once(ada):
    await types(ada, "me quiet=10:00-18:00")
    await ada.clients.slack.notify(ADA, ":x: *lr-brave-otter* · Failed")
    ada.job_handlers["quiet"] = lambda user: quiet.send(user, ada.clients)
    await ada.runs()
    assert direct(ada) == []
    await types(ada, "me quiet=off")
    assert direct(ada) == ["1 message came in your quiet hours:\n• :x: *lr-brave-otter* · Failed"]


@pytest.mark.parametrize("crash_at", range(1, 25, int(os.environ.get("CRASH_EVERY", "6"))))
async def test_crash_at_any_call_loses_nothing(ada, redis, crash_at):
    """Of settings, of what is kept, and of the message at the end, which can come twice."""
    clock = Clock(crash_at)
    own = {name: CrashingProxy(getattr(ada.clients, name), clock) for name in ("cluster", "store", "queue")}
    clients = replace(ada.clients, **own)
    hours = QuietHours(clients.store, clients.queue, lambda: ada.clients.config.people, lambda: ada.now)
    clients.slack = Slack(CrashingProxy(ada.clients.slack._web, clock), quiet=hours)
    values = {"quiet": NOON.quiet, "zone": NOON.zone, "name": "ada"}
    await ada.context.add_request(str(REQUESTS), dump(SetupRequest(user=ADA, own=values)))

    async def until_done(run):
        for _ in range(2):
            with contextlib.suppress(WorkerCrash):
                await run()
                return

    await until_done(lambda: SetupWriter(clients, redis, LivePolicy(CONFIG)).run("now"))
    await ada.setups.refresh()
    assert ada.clients.config.people == {ADA: NOON}
    await until_done(lambda: clients.slack.post(PLACE, FAILED))
    await until_done(lambda: clients.slack.notify(ADA, ":x: *lr-calm-lynx* · Failed"))
    ada.now = AFTERWARDS
    await until_done(lambda: quiet.send(ADA, replace(clients, now=lambda: ada.now)))
    texts = direct(ada)
    assert 1 <= len(texts) <= 2
    assert {line.split(" (<")[0] for line in texts[0].split("\n")} == {
        "2 messages came in your quiet hours:",
        "• :x: ada *lr-brave-otter* · Failed",
        "• :x: *lr-calm-lynx* · Failed",
    }
    assert await ada.context.store.requests(str(quiet.item(ADA))) == []


@pytest.mark.parametrize("notify", [Notify.CHANNEL, Notify.DM])
async def test_sweep_that_ends_in_quiet_hours_is_told_once_at_their_end(redis, notify):
    config = replace(CONFIG, people={ADA: NOON})
    request = replace(a_sweep().request, notify=notify)
    async with open_session(redis, image=True, config=config, sweep={"request": request}) as session:
        await session.until(Phase.SUCCEEDED)
        await session.rounds(4)
        assert not [text for text in session.thread() if f"<@{ADA}>" in text]
        assert [text for text in session.thread() if "Finished" in text]
        assert DM not in session.slack.workspace.channels
        clients = session.simulation.clients
        assert await quiet.send(ADA, clients) == timedelta(minutes=10)
        await quiet.send(ADA, replace(clients, now=lambda: AFTERWARDS))
        [summary] = session.slack.messages(DM)
        assert "lr-brave-otter" in summary["text"]
        assert "Finished" in summary["text"]
        assert summary["text"].startswith("1 message came in your quiet hours:\n• :white_check_mark: ")


@pytest.mark.parametrize("notify", [Notify.CHANNEL, Notify.DM])
@pytest.mark.parametrize("crashes", [False, "seen"])
async def test_muted_sweep_mentions_its_owner_nowhere(redis, notify, crashes):
    request = replace(a_sweep().request, notify=notify)
    story = SimulatedSweep(redis, Clock(None), image=True, crash=crashes, sweep={"request": request})
    muted = {OWNER: Personal(name="ada", muted=(SWEEP,))}
    story.clients.config = replace(story.clients.config, people=muted)
    await story.run()
    assert story.last.phase.final
    assert story.slack.ephemeral_messages == []
    assert not [text for text in story.slack.posted if f"<@{OWNER}>" in text]
    assert [text for text in story.slack.posted if " ada " in text] or notify is Notify.DM
