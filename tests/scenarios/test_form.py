"""The form, from /sweep alone to a sweep in the queue: a person, Bolt's dispatch, and turns that ask git."""

import asyncio
import threading
from dataclasses import replace

import pytest

from bot.config.policy import Launch
from tests.bot.factories import COMMIT, CONFIG
from tests.scenarios.slack_user import ADA, SPACE, a_desk


@pytest.fixture(autouse=True)
def slack_shows_answers_at_once(monkeypatch):
    monkeypatch.setattr("handlers.launch_form.PREVIEW_DELAY", 0)


@pytest.fixture
async def desk(redis):
    async with a_desk(redis) as made:
        yield made


async def test_form_fills_previews_and_launches_a_sweep(desk):
    slack = desk.slack
    assert await slack.command("ada", "sweeps", "/sweep", "") == ""
    assert desk.modal()["title"]["text"] == "New sweep"
    assert [one["value"] for one in await desk.offered("sweep_branch", "ma")] == ["main", "ma"]
    await desk.choose("sweep_branch", "main")
    lr, _ = await desk.offered("sweep_space")
    assert (lr["value"], lr["description"]["text"]) == ("lr", "How fast it may learn")
    await desk.choose("sweep_space", "lr")
    await slack.enter("ada", "gpus", "2")
    assert await slack.submit("ada") == {}
    assert "Checking the branch" in desk.shows()
    await desk.turns()
    for fact in ("`main` @ `01234567` “Try a wider net”", "3 of 3 combinations, grid", "4 (2 trials × 2)"):
        assert fact in desk.shows()
    assert "python train.py --width=a" in desk.shows()
    await slack.submit("ada")
    [sweep] = await desk.turns()
    assert f"Sweep `{sweep}` queued" in desk.shows()
    record = await desk.door.store.get(sweep)
    assert (record.request.gpus, record.requester.user, record.requester.channel) == (2, ADA, "C01SWEEPS00")


async def test_launch_uses_the_previewed_commit(desk):
    slack = desk.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main")
    await desk.choose("sweep_space", "lr")
    await slack.submit("ada")
    await desk.turns()
    desk.git.tip = "89ab" * 10  # somebody pushes
    await slack.submit("ada")
    [sweep] = await desk.turns()
    assert (await desk.door.store.get(sweep)).request.commit == COMMIT
    await slack.command("ada", "sweeps", "/sweep", "")
    await slack.submit("ada")
    await desk.turns()
    assert "`main` @ `89ab89ab`" in desk.shows()  # the next form begins with the branch, not the commit


@pytest.mark.parametrize(("then", "stands"), [("launch", "queued"), ("change", "Updates go to")])
async def test_late_preview_does_not_overwrite_later_input(desk, then, stands):
    slack = desk.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main")
    await desk.choose("sweep_space", "lr")
    await slack.submit("ada")
    await desk.turns()
    await slack.press("ada", "sweep_again")
    await (slack.submit("ada") if then == "launch" else slack.press("ada", "sweep_change"))
    await desk.turns()
    assert stands in str(desk.modal()["blocks"])


async def test_launch_clicked_twice_starts_one_sweep(desk):
    slack = desk.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main")
    await desk.choose("sweep_space", "lr")
    await slack.submit("ada")
    await desk.turns()
    await asyncio.gather(slack.submit("ada"), slack.submit("ada"))
    assert len(await desk.turns()) == 1
    assert len(await desk.door.store.active()) == 1


async def test_git_error_is_shown_at_its_field(desk):
    slack = desk.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=mian")
    await desk.choose("sweep_space", "lr")
    await slack.submit("ada")
    await desk.turns()
    assert desk.modal()["callback_id"] == "sweep_form"
    assert "Did you mean main?" in desk.shows()
    await desk.choose("sweep_branch", "main")
    await desk.choose("sweep_space", "wide")
    await slack.submit("ada")
    await desk.turns()
    assert "parameters.width: min must be less than max; got min 1, max 0" in desk.shows()
    await desk.choose("sweep_space", "lr")
    await slack.submit("ada")
    await desk.turns()
    assert desk.modal()["callback_id"] == "sweep_launch"
    await slack.press("ada", "sweep_change")
    assert desk.modal()["callback_id"] == "sweep_form"


async def test_inline_space_is_launched(desk):
    slack = desk.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main")
    await slack.press("ada", "sweep_write")
    await slack.enter("ada", "text", SPACE.replace("minimize", "smallest"))
    [(field, sentence)] = (await slack.submit("ada")).items()
    assert (field, sentence) == (
        "text",
        'your space:3: objective.goal: must be minimize or maximize; got "smallest"',
    )
    await slack.enter("ada", "text", SPACE)
    assert await slack.submit("ada") == {}
    await desk.turns()
    await slack.submit("ada")
    [sweep] = await desk.turns()
    assert (await desk.door.store.get(sweep)).request.text == SPACE.rstrip()


async def test_inline_space_that_takes_long_to_parse_delays_no_other_command(desk, monkeypatch):
    parsing, end = threading.Event(), threading.Event()

    def slow(*_):
        parsing.set()
        end.wait()

    slack = desk.slack
    monkeypatch.setattr("bot.launch.form.parse_space", slow)
    await slack.command("ada", "sweeps", "/sweep", "branch=main")
    await slack.press("ada", "sweep_write")
    await slack.enter("ada", "text", SPACE)
    submission = asyncio.create_task(slack.submit("ada"))
    assert await asyncio.to_thread(parsing.wait, 60)
    assert "queued" in await slack.command("grace", "sweeps", "/sweep", "branch=main space=lr")
    end.set()
    assert await submission == {}


async def test_inline_space_with_a_late_parser_is_an_error_below_its_field(desk, monkeypatch):
    end = threading.Event()
    monkeypatch.setattr("bot.launch.form.parse_space", lambda *_: end.wait())
    slack = desk.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main")
    await slack.press("ada", "sweep_write")
    await slack.enter("ada", "text", SPACE)
    monkeypatch.setattr("handlers.launch_form.ACK_TIMEOUT", 0.05)
    found = await slack.submit("ada")
    end.set()
    assert found == {"text": "Checking the space took more than 2 s. Try again, or commit it as a file."}


async def test_next_form_is_prefilled_with_the_last_launch(desk):
    await desk.slack.command("ada", "sweeps", "/sweep", "branch=dev space=lr gpus=3 trials=2 algorithm=grid")
    await desk.turns()
    await desk.slack.command("ada", "vision", "/sweep", "gpus=1")
    values = {k: v for entered in desk.modal()["state"]["values"].values() for k, v in entered.items()}
    chosen = {k: (v.get("selected_option") or {}).get("value", v.get("value")) for k, v in values.items()}
    assert chosen == {
        "sweep_repo": "digits",
        "sweep_branch": "dev",
        "sweep_space": "lr",
        "gpus": "1",
        "parallel": None,
        "trials": "2",
        "algorithm": "grid",
        "gate": "-",
        "max_hours": None,
        "goal": "-",
        "metric": None,
        "metrics": "-",
        "flags": "-",
        "seeds": None,
        "cmd": None,
        "notify": "channel",
    }
    await desk.turns()
    offered = [one["value"] for one in await desk.offered("sweep_branch")]
    assert offered == ["dev", "main"]


async def test_unreachable_git_host_is_named_in_menu_and_form(desk):
    desk.git.away = True
    await desk.slack.command("ada", "sweeps", "/sweep", "")
    offered = await desk.offered("sweep_branch", "mai")
    assert [one["value"] for one in offered] == ["mai", "-"]
    assert "didn't respond" in offered[1]["text"]["text"]
    await desk.choose("sweep_branch", "main")
    await desk.choose("sweep_space", "lr")
    await desk.slack.submit("ada")
    await desk.turns()
    assert "The git host isn't responding. Try again." in desk.shows()


async def test_menu_does_not_wait_for_a_worker(desk):
    """Nobody takes turns: Slack hears so within its three seconds, and what is typed can be taken."""
    await desk.slack.command("ada", "sweeps", "/sweep", "")
    assert [one["value"] for one in await desk.slack.options("ada", "sweep_branch", "mai")] == ["mai", "-"]


async def test_form_without_permission_is_denied_with_a_message(redis):
    async with a_desk(redis, replace(CONFIG, launch=Launch(people=("U2",)))) as desk:
        answer = await desk.slack.command("ada", "sweeps", "/sweep", "")
        assert "You don't have permission to start sweeps" in answer
        assert desk.slack.modals("ada") == []


async def test_form_with_a_lost_draft_says_so(desk, redis):
    await desk.slack.command("ada", "sweeps", "/sweep", "branch=main")
    await desk.choose("sweep_space", "lr")
    await desk.slack.submit("ada")
    await desk.turns()
    await redis.flushall()
    await desk.slack.submit("ada")
    assert "This form has expired" in desk.shows()
