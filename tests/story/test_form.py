"""The form, from /sweep alone to a sweep in the queue: a person, Bolt's dispatch, and turns that ask git."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot import drafts, previewing
from bot.catalogue import Catalogue
from bot.config import Launch
from bot.git import GitUnavailable, Tip
from bot.models import UserError
from bot.outside import Outside
from bot.slack import Slack
from handlers.app import build
from handlers.socket import Socket
from local.slack import serve
from tests.bot.doors import a_door
from tests.bot.sweeps import COMMIT, CONFIG, FILES, NOW, SETTINGS

ADA = "U01ADALOVEL"
SPACE = """\
# How fast it may learn
command: python train.py
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {parallel: 2}
parameters:
  width: [a, b, c]
"""


class Repository:
    """`away`: nobody answers."""

    def __init__(self):
        self.spaces = {"lr": SPACE, "wide": SPACE.replace("[a, b, c]", "{min: 1, max: 0}")}
        self.heads, self.away = ["dev", "main"], False

    async def branches(self, url):
        if self.away:
            raise GitUnavailable(f"{url} did not answer within 60 s")
        return self.heads

    async def resolve(self, url, branch):
        if branch not in await self.branches(url):
            raise UserError(f"branch={branch} is not in {url}. Did you mean main?")
        return Tip(f"refs/heads/{branch}", COMMIT)

    async def names(self, url, commit, folder):
        return [f"{name}.yaml" for name in self.spaces] if folder else list(FILES)

    async def read(self, url, commit, path):
        return self.spaces.get(path.removeprefix("sweeps/").removesuffix(".yaml"), FILES.get(path))

    async def subject(self, url, commit):
        return "Try a wider net"


class Desk:
    """Ada's Slack, the bot's doors, and a worker whose turns are taken by hand."""

    def __init__(self, slack, redis, config):
        self.slack, self.git = slack, Repository()
        web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        self.door = a_door(redis, config=config)
        self.app = build(web, self.door)
        parts = dict.fromkeys(("cluster", "registry", "results"))
        self.outside = Outside(
            **parts,
            store=self.door.store,
            queue=self.door.queue,
            git=self.git,
            slack=Slack(web),
            settings=SETTINGS,
            config=config,
            now=lambda: NOW,
        )
        self.errands = {
            drafts.ITEM: partial(previewing.show, outside=self.outside, drafts=self.door.drafts),
            Catalogue.ITEM: partial(self.door.catalogue.look, git=self.git),
        }

    async def turns(self, wait=0.05):
        """All that the queue has, sweeps aside; their ids are returned."""
        sweeps = []
        while lease := await self.door.queue.get(wait=wait):
            errand = self.errands.get(lease.item.partition(": ")[0])
            await errand(lease.item) if errand else sweeps.append(lease.item)
            await self.door.queue.done(lease)
        return sweeps

    async def offered(self, menu, typed=""):
        """What a menu offers while a worker takes its turns."""
        working = asyncio.create_task(self.turns(wait=0.3))
        found = await self.slack.options("ada", menu, typed)
        await working
        return found

    async def choose(self, menu, value):
        option = {"text": {"type": "plain_text", "text": value}, "value": value}
        assert await self.slack.enter("ada", menu, option) is None

    def modal(self):
        [view] = self.slack.modals("ada")
        return view

    def shows(self):
        return "\n".join(
            block["text"]["text"]
            if "text" in block
            else "\n".join(each["text"] for each in block.get("fields", []))
            for block in self.modal()["blocks"]
        )


@asynccontextmanager
async def a_desk(redis, config=CONFIG):
    slack = await serve()
    desk = Desk(slack, redis, config)
    socket = Socket(desk.app, slack.app_token)
    await socket.open()
    yield desk
    await socket.finish()
    await slack.close()


@pytest.fixture(autouse=True)
def slack_shows_answers_at_once(monkeypatch):
    monkeypatch.setattr("handlers.views.SETTLED", 0)


@pytest.fixture
async def desk(redis):
    async with a_desk(redis) as made:
        yield made


async def test_a_sweep_is_put_together_previewed_and_launched(desk):
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
    assert "Looking at the branch" in desk.shows()
    await desk.turns()
    for fact in ("`main` at `01234567` “Try a wider net”", "3 trials of 3 combinations, grid", "4: 2 trials"):
        assert fact in desk.shows()
    assert "python train.py --width=a" in desk.shows()
    await slack.submit("ada")
    [sweep] = await desk.turns()
    assert f"On it: `{sweep}`" in desk.shows()
    record = await desk.door.store.get(sweep)
    assert (record.request.gpus, record.asker.user, record.asker.channel) == (2, ADA, "C01SWEEPS00")


async def test_launch_pressed_twice_starts_one_sweep(desk):
    slack = desk.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main")
    await desk.choose("sweep_space", "lr")
    await slack.submit("ada")
    await desk.turns()
    await asyncio.gather(slack.submit("ada"), slack.submit("ada"))
    assert len(await desk.turns()) == 1
    assert len(await desk.door.store.active()) == 1


async def test_what_git_knows_better_is_said_at_its_field_in_the_form(desk):
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
    assert "parameters.width: min (1) must be less than max (0)" in desk.shows()
    await desk.choose("sweep_space", "lr")
    await slack.submit("ada")
    await desk.turns()
    assert desk.modal()["callback_id"] == "sweep_launch"
    await slack.press("ada", "sweep_change")
    assert desk.modal()["callback_id"] == "sweep_form"


async def test_a_space_is_written_in_the_form(desk):
    slack = desk.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main")
    await slack.press("ada", "sweep_write")
    await slack.enter("ada", "text", SPACE.replace("minimize", "smallest"))
    [(field, sentence)] = (await slack.submit("ada")).items()
    assert (field, sentence) == (
        "text",
        'your space:3: objective.goal: "smallest" must be minimize or maximize',
    )
    await slack.enter("ada", "text", SPACE)
    assert await slack.submit("ada") == {}
    await desk.turns()
    await slack.submit("ada")
    [sweep] = await desk.turns()
    assert (await desk.door.store.get(sweep)).request.text == SPACE.rstrip()


async def test_the_next_form_is_filled_with_what_was_launched_last(desk):
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
        "cmd": None,
        "notify": "channel",
    }
    await desk.turns()
    offered = [one["value"] for one in await desk.offered("sweep_branch")]
    assert offered == ["dev", "main"]


async def test_a_git_host_that_is_away_is_named_in_the_menu_and_in_the_form(desk):
    desk.git.away = True
    await desk.slack.command("ada", "sweeps", "/sweep", "")
    offered = await desk.offered("sweep_branch", "mai")
    assert [one["value"] for one in offered] == ["mai", "-"]
    assert "did not answer" in offered[1]["text"]["text"]
    await desk.choose("sweep_branch", "main")
    await desk.choose("sweep_space", "lr")
    await desk.slack.submit("ada")
    await desk.turns()
    assert "The git host does not answer; try again." in desk.shows()


async def test_a_menu_does_not_wait_for_a_worker(desk):
    """Nobody takes turns: Slack hears so within its three seconds, and what is typed can be taken."""
    await desk.slack.command("ada", "sweeps", "/sweep", "")
    assert [one["value"] for one in await desk.slack.options("ada", "sweep_branch", "mai")] == ["mai", "-"]


async def test_who_may_not_launch_is_told_in_words_without_a_form(redis):
    async with a_desk(redis, replace(CONFIG, launch=Launch(people=("U2",)))) as desk:
        answer = await desk.slack.command("ada", "sweeps", "/sweep", "")
        assert "You may not start sweeps here" in answer
        assert desk.slack.modals("ada") == []


async def test_a_form_whose_draft_was_lost_says_so(desk, redis):
    await desk.slack.command("ada", "sweeps", "/sweep", "branch=main")
    await desk.choose("sweep_space", "lr")
    await desk.slack.submit("ada")
    await desk.turns()
    await redis.flushall()
    await desk.slack.submit("ada")
    assert "my memory was lost" in desk.shows()
