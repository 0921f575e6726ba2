"""The form, from `/sweep` to a sweep in the queue: a user, Bolt's dispatch, and jobs that read git."""

import asyncio
import threading
from dataclasses import replace

import pytest

from bot.platform.config.limits import Launch
from bot.platform.config.profiles import Profile
from tests.bot.factories import COMMIT, CONFIG
from tests.scenarios.slack_user import ADA, SPACE, a_slack_user


@pytest.fixture(autouse=True)
def slack_shows_answers_at_once(monkeypatch):
    monkeypatch.setattr("handlers.launch_form.SUBMISSION_DELAY", 0)


@pytest.fixture
async def ada(redis):
    async with a_slack_user(redis) as made:
        yield made


async def test_form_fills_previews_and_launches_the_previewed_commit_once(ada, redis):
    slack = ada.slack
    assert await slack.command("ada", "sweeps", "/sweep", "") == ""
    assert ada.modal()["title"]["text"] == "New sweep"
    # No worker runs yet: Slack gets a response within three seconds, and typed values are accepted.
    assert [one["value"] for one in await slack.options("ada", "sweep_branch", "mai")] == ["mai", "-"]
    assert [one["value"] for one in await ada.offered("sweep_branch", "ma")] == ["main", "ma"]
    await ada.choose("sweep_branch", "main")
    lr, _ = await ada.offered("sweep_space")
    assert (lr["value"], lr["description"]["text"]) == ("lr", "How fast it may learn, token=***")
    await ada.choose("sweep_space", "lr")
    await slack.enter("ada", "gpus", "2")
    assert await slack.submit("ada") == {}
    assert "Checking the branch" in ada.shows()
    await ada.runs()
    for fact in (
        "`main` @ `01234567` “Try a wider net”",
        "3 of 3 combinations, grid search",
        "4 (2 trials × 2 GPUs)",
    ):
        assert fact in ada.shows()
    assert "python train.py --width=a" in ada.shows()
    ada.git.tip = "89ab" * 10  # a new commit is pushed
    await asyncio.gather(slack.submit("ada"), slack.submit("ada"))
    [sweep] = await ada.runs()
    assert await ada.context.store.active() == {sweep}
    assert f"Sweep `{sweep}` queued" in ada.shows()
    record = await ada.context.store.get(sweep)
    assert (record.request.gpus, record.requester.user, record.requester.channel) == (2, ADA, "C01SWEEPS00")
    assert record.request.commit == COMMIT
    await slack.command("ada", "sweeps", "/sweep", "")
    await slack.submit("ada")
    await ada.runs()
    assert "`main` @ `89ab89ab`" in ada.shows()  # the next form starts with the branch, not the commit
    await redis.flushall()
    await slack.press("ada", "sweep_again")
    assert "This form has expired" in ada.shows()


async def test_launch_of_an_expired_form_says_so(ada, redis):
    await ada.slack.command("ada", "sweeps", "/sweep", "branch=main")
    await ada.choose("sweep_space", "lr")
    await ada.slack.submit("ada")
    await ada.runs()
    await redis.flushall()
    await ada.slack.submit("ada")
    assert "This form has expired" in ada.shows()


@pytest.mark.parametrize(("then", "stands"), [("launch", "queued"), ("change", "Updates go to")])
async def test_late_preview_does_not_overwrite_later_input(ada, then, stands):
    slack = ada.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main")
    await ada.choose("sweep_space", "lr")
    await slack.submit("ada")
    await ada.runs()
    await slack.press("ada", "sweep_again")
    await (slack.submit("ada") if then == "launch" else slack.press("ada", "sweep_change"))
    await ada.runs()
    assert stands in str(ada.modal()["blocks"])


async def test_git_error_is_shown_at_its_field(ada):
    slack = ada.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=mian")
    await ada.choose("sweep_space", "lr")
    await slack.submit("ada")
    await ada.runs()
    assert ada.modal()["callback_id"] == "sweep_form"
    assert "Did you mean main?" in ada.shows()
    await ada.choose("sweep_branch", "main")
    await ada.choose("sweep_space", "wide")
    await slack.submit("ada")
    await ada.runs()
    assert "parameters.width: min must be less than max; got min 1, max 0" in ada.shows()
    await ada.choose("sweep_space", "lr")
    await slack.submit("ada")
    await ada.runs()
    assert ada.modal()["callback_id"] == "sweep_launch"
    await slack.press("ada", "sweep_change")
    assert ada.modal()["callback_id"] == "sweep_form"


async def test_inline_space_is_launched_and_delays_no_other_command_while_it_is_parsed(ada, monkeypatch):
    slack, parsing, end = ada.slack, threading.Event(), threading.Event()

    def slow(*_):
        parsing.set()
        end.wait()

    await slack.command("ada", "sweeps", "/sweep", "branch=main")
    await slack.press("ada", "sweep_write")
    await slack.enter("ada", "text", SPACE.replace("minimize", "smallest"))
    [(field, sentence)] = (await slack.submit("ada")).items()
    assert (field, sentence) == (
        "text",
        'your space:3: objective.goal: must be minimize or maximize; got "smallest"',
    )
    await slack.enter("ada", "text", SPACE)
    with monkeypatch.context() as late:
        late.setattr("bot.sweep.form.view.parse_space", slow)
        submission = asyncio.create_task(slack.submit("ada"))
        assert await asyncio.to_thread(parsing.wait, 60)
        assert "queued" in await slack.command("grace", "sweeps", "/sweep", "branch=main space=lr")
        end.set()
        assert await submission == {}
    assert len(await ada.runs()) == 1  # Grace's
    await slack.submit("ada")
    [sweep] = await ada.runs()
    assert (await ada.context.store.get(sweep)).request.text == SPACE.rstrip()


async def test_inline_space_with_a_late_parser_is_an_error_below_its_field(ada, monkeypatch):
    end = threading.Event()
    monkeypatch.setattr("bot.sweep.form.view.parse_space", lambda *_: end.wait())
    slack = ada.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main")
    await slack.press("ada", "sweep_write")
    await slack.enter("ada", "text", SPACE)
    monkeypatch.setattr("handlers.launch_form.ACK_TIMEOUT", 0.05)
    found = await slack.submit("ada")
    end.set()
    assert found == {"text": "Checking the space took more than 2 s. Try again, or commit it as a file."}


async def test_next_form_is_prefilled_with_the_last_launch_without_its_earlier_points(ada):
    typed = "branch=dev space=lr gpus=3 trials=2 algorithm=grid from=lr-brave-otter"
    await ada.slack.command("ada", "sweeps", "/sweep", typed)
    await ada.runs()
    await ada.slack.command("ada", "vision", "/sweep", "gpus=1")
    values = {k: v for entered in ada.modal()["state"]["values"].values() for k, v in entered.items()}
    chosen = {k: (v.get("selected_option") or {}).get("value", v.get("value")) for k, v in values.items()}
    assert chosen == {
        "sweep_repo": "digits",
        "sweep_branch": "dev",
        "sweep_space": "lr",
        "gpus": "1",
        "trials": "2",
        "algorithm": "grid",
    }
    await ada.runs()
    offered = [one["value"] for one in await ada.offered("sweep_branch")]
    assert offered == ["dev", "main"]


async def test_unreachable_git_host_is_named_in_menu_and_form(ada):
    ada.git.away = True
    await ada.slack.command("ada", "sweeps", "/sweep", "")
    offered = await ada.offered("sweep_branch", "mai")
    assert [one["value"] for one in offered] == ["mai", "-"]
    assert "didn't respond" in offered[1]["text"]["text"]
    await ada.choose("sweep_branch", "main")
    await ada.choose("sweep_space", "lr")
    await ada.slack.submit("ada")
    await ada.runs()
    assert "The git host isn't responding. Try again." in ada.shows()


async def test_form_without_permission_is_denied_with_a_message(redis):
    async with a_slack_user(redis, replace(CONFIG, launch=Launch(people=("U2",)))) as ada:
        answer = await ada.slack.command("ada", "sweeps", "/sweep", "")
        assert "You don't have permission to start sweeps" in answer
        assert ada.slack.modals("ada") == []


async def test_form_with_a_profile_that_no_machine_can_run_is_an_error_below_its_field(redis):
    profiles = (Profile(name="1xh100", gpus=1), Profile(name="8xh100", gpus=8))
    async with a_slack_user(redis, replace(CONFIG, profiles=profiles)) as ada:
        store, sizes = ada.clients.cluster.store, {"nvidia.com/gpu": "4"}
        node = store.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        store.set_status(node, {"capacity": sizes, "allocatable": sizes})
        await ada.slack.command("ada", "sweeps", "/sweep", "branch=main profile=8xh100")
        await ada.choose("sweep_space", "lr")
        await ada.slack.submit("ada")
        await ada.runs()
        assert "The largest machine that it can use (node n1) has 4 GPUs." in ada.shows()
        assert "*Fix:* Use gpus=4 or profile=1xh100." in ada.shows()
        await ada.slack.enter("ada", "gpus", "4")
        await ada.slack.submit("ada")
        await ada.runs()
        assert "`8xh100`: 4 GPUs per trial" in ada.shows()
