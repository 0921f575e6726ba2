"""What people type, and what becomes of it.

The lists of words were written with the phrasings in `tuned.txt`; those in `held_out.txt` were written before
they were looked at. Of what the words hadn't seen, 93 of 100, 58 of 63, 82 of 89, and 68 of 74 were right at
first, and none started a sweep. Of two hundred by someone with other branches and habits, who also denied,
mused, and chatted, 85 of 100 (`others_a`) and 73 of 100 (`others_b`) were right at first. Since
commands are scored by weighted words, 93 of 100 (`others_c`) and 92 of 100 (`others_d`), written for the same
branches by people who hadn't seen the reader, were right at first: below the goal of 95. None started a sweep
that wasn't asked for in full. Of four hundred by one who hadn't seen the reader either, with far more chat,
stories, and wishes for what no command does, 79 of 100 (`others_e`), 66 (`others_f`), 77 (`others_g`, after
`e` and `f` were mended), and 79 (`others_h`, after `g` was mended, too) were right at first. None started or
stopped a sweep; one ("nobody should cancel it", in `others_f`) led to a button that would have. The author of
the reader judged, by the meanings that the writers had noted; complete commands
with a mistyped branch or space count as right, since a worker refuses them with a suggestion. After `h` was
mended, of two hundred by one more writer, with fewer stories than in `e` to `h`, 94 of 100 (`others_i`) were
right at first, and, after `i` was mended, 90 (`others_j`); 96 and 92 if the question which of several sweeps
is meant counts as an answer, as it did before. One (a regret, in `others_j`) led to a button that would have
extended a sweep. The classes of their misses are mended since, so no number below is one of unseen phrasings.

A line is what must happen, ` :: `, and the text. `run` starts a sweep with these options; `form` opens the
form filled with them, with `not=` in its line; `do` answers by a command; `ask` offers one as a button;
`error` answers with a text that says so.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.errors import UserError
from bot.core.record import Phase
from bot.core.request import Requester
from bot.platform.config.clusters import TrialCluster
from bot.platform.config.policy import Config
from bot.platform.config.profiles import Profile
from bot.platform.config.queues import Priority, Queue
from bot.platform.config.repositories import Repository
from bot.platform.config.teams import Team
from bot.platform.repos.catalog import GitNames, Name
from bot.platform.slack.message import Message
from bot.sweep.answers.command_parser import choose, parse_command
from bot.sweep.form.view import Draft, options_of
from bot.workspace_table import add_handlers
from handlers import any_wording, slash_sweep
from handlers.any_wording import reply_to
from handlers.app import build
from handlers.context import HandlerContext
from tests.bot.factories import ADMIN, REQUEST, a_sweep
from tests.bot.workspaces.environments.world import ENVIRONMENTS
from tests.handlers.factories import a_context

PHRASINGS = Path(__file__).parent / "phrasings"


@dataclass(frozen=True)
class Place:
    """What those who wrote the phrasings of some files had before them."""

    repositories: tuple[str, ...]
    branches: tuple[str, ...]
    spaces: tuple[str, ...]
    sweeps: dict[str, tuple[str, Phase]]
    queues: tuple[str, ...] = ("research", "prod")


VISION = Place(
    repositories=("vision", "nlp"),
    branches=("main", "dev", "foo", "fix-loss", "feature/warmup", "exp-2", "release-1.2"),
    spaces=("lr", "wd", "warmup", "batch-size", "resnet", "lr_wide"),
    sweeps={
        "lr-brave-otter": (ADMIN, Phase.RUNNING),
        "resnet-calm-fox": (ADMIN, Phase.SUCCEEDED),
        "lr-solar-crane": (ADMIN, Phase.FAILED),
        "wd-quick-lynx": ("U2", Phase.RUNNING),
    },
)
DIGITS = Place(
    repositories=("digits", "nlp"),
    branches=("main", "foo", "feat/augment", "fix-nan", "ada/longer-warmup"),
    spaces=("lr", "optimizer", "augment", "big"),
    sweeps={
        "lr-brave-otter": (ADMIN, Phase.RUNNING),
        "optimizer-calm-fox": (ADMIN, Phase.PENDING),
        "lr-sure-shark": (ADMIN, Phase.FAILED),
    },
    queues=("research", "prod", "default"),
)
HALVES = {
    "tuned": (VISION, 2),
    "held_out": (VISION, 0),
    "others_a": (DIGITS, 0),
    "others_b": (DIGITS, 0),
    "others_c": (DIGITS, 0),
    "others_d": (DIGITS, 1),
    "others_e": (DIGITS, 1),
    "others_f": (DIGITS, 1),
    "others_g": (DIGITS, 5),
    "others_h": (DIGITS, 4),
    "others_i": (DIGITS, 1),
    "others_j": (DIGITS, 1),
}  # with how many are wrong
CONFIG = Config(
    repositories=(),
    admins=(ADMIN,),
    profiles=tuple(Profile(name=name, gpus=1) for name in ("a100", "h100", "l4")),
    priorities=tuple(Priority(name=name, class_=name) for name in ("low", "normal", "high")),
    clusters=(
        TrialCluster(name="main"),
        TrialCluster(name="west", kubeconfig="/west"),
        TrialCluster(name="east", kubeconfig="/east"),
    ),
    teams=(Team(name="vision", queue="research", members=(ADMIN,)), Team(name="speech"), Team(name="nlp")),
    environments=ENVIRONMENTS,
    reservations=True,
)
LAST = {"branch": "foo", "space": "lr", "gpus": "2", "trials": "12"}


class Catalog:
    """Git's names, as a worker has stored them."""

    def __init__(self, place):
        self.place = place

    async def names(self, url, branch="", *, wait=0.0):
        there = self.place
        known = (there.spaces if branch in there.branches else ()) if branch else there.branches
        return GitNames(names=tuple(Name(name=each) for each in known))


class Drafts:
    async def last(self, _user):
        return Draft(options=LAST, channel="C1")


def cases(half):
    for line in (PHRASINGS / f"{half}.txt").read_text().splitlines():
        expected, _, text = line.partition(" :: ")
        yield expected, text.replace("\\n", "\n")


def requester(user):
    return Requester(user=user, user_name="", channel="C1")


class World:
    """An application that notes what a text leads to."""

    def __init__(self, redis, monkeypatch, place):
        self.place = place
        repositories = tuple(
            Repository(name=name, url=f"https://git.example/{name}") for name in place.repositories
        )
        queues = tuple(Queue(name=name) for name in place.queues)
        self.config = replace(CONFIG, repositories=repositories, queues=queues)
        self.context = a_context(redis, config=self.config, catalog=Catalog(place), drafts=Drafts())
        build(AsyncWebClient(token="xoxb-1"), self.context, add_handlers)
        self.done = []
        for module in (slash_sweep, any_wording):
            monkeypatch.setattr(module, "open_form", self._opened)
        monkeypatch.setattr(HandlerContext, "create_sweep", self._started)
        for prefix, (table, answer) in self.context.spoken.items():
            self.context.spoken[prefix] = table, self._noted(answer)

    async def start(self):
        for place, (name, (user, phase)) in enumerate(self.place.sweeps.items()):
            owner = requester(user)
            sweep = a_sweep(phase, id=name, request_id=f"s{place}", requester=owner, submitted=True)
            sweep = replace(sweep, plan=replace(sweep.plan, space=replace(sweep.plan.space, max_trials=12)))
            await self.context.store.create(sweep, [name], sweep.request_id)
        stored = await self.context.store.listed()  # once: no text changes a sweep

        async def listed():
            return stored

        self.context.store.listed = listed

    async def _opened(self, _context, _web, _trigger, _user, _channel, options, note=""):
        self.done.append(f"form {typed(options)} not={note}")
        return ""

    async def _started(self, request, *_):
        self.done.append(f"run {typed({'gpus': str(request.gpus)} | options_of(request)).replace('.0', '')}")
        return a_sweep(id="lr-new-newt", request=request)

    def _noted(self, answer):
        async def noted(context, command, client):
            reply = await answer(context, command, client)
            self.done.append(f"do {command['command']} {command['text']}")
            return reply

        return noted

    async def outcome(self, text, trigger, here=""):
        self.done.clear()
        prefix, _, rest = text.partition(" ")
        prefix, text = (prefix, rest) if prefix in self.context.spoken else ("/sweep", text)
        command = {"command": prefix, "text": text, "user_id": ADMIN, "channel_id": "C1"}
        command |= {"response_url": "https://hooks/1", "here": here}
        command |= {"trigger_id": trigger} if trigger else {"request_id": text}
        reply = await reply_to(self.context, command, None)
        if isinstance(reply, Message):
            return f"ask {reply.blocks[-1]['elements'][0]['value']}"
        return self.done[0] if self.done else f"error {reply}"

    async def is_right(self, expected, outcome):
        kind, _, wanted = expected.partition(" ")
        if outcome.partition(" ")[0] != kind:
            return False
        found = outcome.partition(" ")[2]
        if kind == "error":
            return wanted in outcome
        if kind in {"do", "ask"}:
            texts = wanted.split(" or ")
            return found in texts or await self._command(found) in [
                await self._command(each) for each in texts
            ]
        options, _, note = found.partition("not=")
        wanted, _, missing = wanted.partition("not=")
        wanted = (
            {"gpus=1"} | {*wanted.split()} if kind == "run" and "gpus=" not in wanted else {*wanted.split()}
        )
        return {*options.split()} == wanted and missing in note

    async def _command(self, text):
        """What a typed command means, with the names of its sweeps in full."""
        if text.startswith("/sweep "):
            try:
                parsed = parse_command(text.removeprefix("/sweep "))
                return choose(parsed, ADMIN, await self.context.store.listed(), self.config)
            except (UserError, AttributeError, TypeError):
                pass
        name, _, rest = text.partition(" ")
        parsed = self.context.spoken[name][0].parse(rest, self.config)
        return parsed.command.name, dict(parsed.options), parsed.errors


def typed(options):
    return " ".join(f"{key}={value.replace(' ', '_')}" for key, value in sorted(options.items()))


@pytest.mark.features("reservations")
@pytest.mark.parametrize("half", HALVES)
async def test_phrasings_become_the_right_form_or_answer_and_start_nothing(redis, monkeypatch, half, capsys):
    place, known_wrong = HALVES[half]
    world = World(redis, monkeypatch, place)
    await world.start()
    wrong, launched, count = [], [], 0
    for expected, text in cases(half):
        count += 1
        outcome = await world.outcome(text, f"t{count}")
        if not await world.is_right(expected, outcome):
            wrong.append(f"{text!r}: {expected!r}, not {outcome!r}")
            launched += [text] if outcome.startswith("run") else []
    with capsys.disabled():
        print(
            f"\n{half}: {count - len(wrong)} of {count} phrasings right, {len(launched)} wrong launches",
            *wrong,
            sep="\n  ",
        )
    assert launched == [], "\n".join(wrong)
    assert len(wrong) <= known_wrong, "\n".join(wrong)


async def test_change_of_two_named_sweeps_offers_none_and_names_both_commands(redis, monkeypatch):
    world = World(redis, monkeypatch, DIGITS)
    await world.start()
    for text, first, second in (
        ("cancel fox and otter", "cancel optimizer-calm-fox", "cancel lr-brave-otter"),
        (
            "extend otter and fox by 10",
            "extend lr-brave-otter trials=22",
            "extend optimizer-calm-fox trials=22",
        ),
        ("mute otter and fox", "me mute=lr-brave-otter", "me mute=optimizer-calm-fox"),
        ("unmute fox and otter", "me unmute=optimizer-calm-fox", "me unmute=lr-brave-otter"),
    ):
        asked = (
            f"error That names several sweeps. Run each command alone: `/sweep {first}` or `/sweep {second}`."
        )
        assert await world.outcome(text, "t1") == asked
    assert (
        await world.outcome("cancel the otter sweep, lr-brave-otter", "t2")
        == "ask /sweep cancel lr-brave-otter"
    )
    assert await world.outcome("mute otter, unmute fox", "t2") == "ask /sweep me mute=otter unmute=fox"
    assert await world.outcome("cancel fox rather than otter", "t3") == "ask /sweep cancel optimizer-calm-fox"


async def test_changes_without_what_they_need_say_what_is_missing_also_of_an_ended_sweep(redis, monkeypatch):
    world = World(redis, monkeypatch, DIGITS)
    await world.start()
    for text, missing in (("queue move shark", "queue="), ("raise lr-sure-shark", "budget=")):
        assert (await world.outcome(text, "t1")).startswith(f"error Missing {missing}. Usage: ")


async def test_history_without_a_space_is_of_the_last_sweep_that_was_not_refused(redis, monkeypatch):
    world = World(redis, monkeypatch, replace(DIGITS, sweeps={"lr-sure-shark": (ADMIN, Phase.REFUSED)}))
    await world.start()
    assert (await world.outcome("best of last week?", "t1")).startswith("error Missing space=. Usage: ")
    ended = a_sweep(Phase.SUCCEEDED, request=replace(REQUEST, space="big"), requester=requester(ADMIN))
    await world.context.store.create(ended, ["big-brave-otter"], "s9")
    older = replace(ended, request=REQUEST, request_id="s8", created=ended.created - timedelta(hours=1))
    await world.context.store.create(older, ["lr-brave-otter"], "s8")  # saved later
    world = World(redis, monkeypatch, replace(DIGITS, sweeps={}))
    await world.start()
    assert await world.outcome("best of last week?", "t1") == "do /sweep history big"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        *((text, "error") for text in ("nope", "nah", "hold on a sec", "hope this one works", "cause?")),
        *((text, "error") for text in ("chance it recovers?", "deadline tomorrow", "delete this thread")),
        ("cancel all but otter", "error Name the sweep."),
        *((text, "error Nothing was started or changed") for text in ("stop posting here", "stop talking")),
        ("stop after 20 trials", "error Which trial?"),
        *((text, "error Which trial?") for text in ("kill the bad ones", "stop the trials with lr > 0.1")),
        ("cancle it", "ask /sweep cancel lr-brave-otter"),
        ("pasue", "ask /sweep pause lr-brave-otter"),
        *((text, "error") for text in ("delete this picture", "remove the chart")),
        ("make a chart", "do /sweep curves lr-brave-otter"),
        ("can you summarize the results?", "do /sweep results lr-brave-otter"),
        ("mute this", "ask /sweep me mute=lr-brave-otter"),
        *((text, "ask /sweep me") for text in ("mute all except otter", "unmute everything but this")),
    ],
)
async def test_chat_in_a_thread_offers_nothing_that_is_not_asked(redis, monkeypatch, text, outcome):
    world = World(redis, monkeypatch, DIGITS)
    await world.start()
    found = await world.outcome(text, "", "lr-brave-otter")
    assert found == outcome if "/sweep" in outcome else found.startswith(outcome)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        *((text, "error Name the sweep.") for text in ("delete lab's files", "/env remove lab")),
        *((text, "error Name the sweep.") for text in ("stop everything except otter", "kill the noise")),
        *((text, "ask /sweep cancel lr-brave-otter") for text in ("stop", "kill it please", "stop my sweep")),
    ],
)
async def test_the_only_sweep_is_changed_only_by_words_that_mean_it(redis, monkeypatch, text, outcome):
    only = {"lr-brave-otter": (ADMIN, Phase.RUNNING)}
    world = World(redis, monkeypatch, replace(DIGITS, sweeps=only))
    await world.start()
    assert (await world.outcome(text, "t1")).startswith(outcome)


@pytest.mark.parametrize(
    ("text", "is_later"),
    [
        ("kill otter at 6pm", True),
        ("stop otter if it hits nan", True),
        ("cancel otter tomorrow", True),
        ("pause otter until monday", True),
        ("kill otter asap, once more", False),
        ("stop the otter sweep", False),
        ("let otter finish its trials after that", False),
        ("rerun shark with 4 gpus and ping me when it is done", False),
    ],
)
async def test_offer_of_a_change_says_that_it_does_not_wait(redis, monkeypatch, text, is_later):
    world = World(redis, monkeypatch, DIGITS)
    await world.start()
    command = {"command": "/sweep", "text": text, "user_id": ADMIN, "channel_id": "C1", "response_url": ""}
    reply = await reply_to(world.context, command | {"trigger_id": "t1"}, None)
    assert (any_wording.NOW in reply.text) is is_later


async def test_offer_without_a_time_that_is_out_of_range_shows_it_as_typed(redis, monkeypatch):
    world = World(redis, monkeypatch, DIGITS)
    await world.start()
    for typed in ("8d", "8 days"):
        command = {"command": "/env", "text": f"keep lab {typed}", "user_id": ADMIN, "channel_id": "C1"}
        reply = await reply_to(world.context, command | {"trigger_id": "t1", "response_url": ""}, None)
        assert f'HOURS must be a time from 1h to 7d; got "{typed}".' in reply.text


@pytest.mark.features("reservations")
async def test_button_of_a_message_opens_the_form_and_starts_nothing(redis, monkeypatch):
    """A pasted table is understood in full, and its button still has to open the form."""
    world = World(redis, monkeypatch, HALVES["others_h"][0])
    await world.start()
    for expected, text in cases("others_h"):
        offered = await world.outcome(text, "") if expected.startswith("form") else ""
        if offered:
            assert offered.startswith("ask /sweep"), (text, offered)
            opened = await world.outcome(offered.removeprefix("ask "), "t1")
            assert opened.startswith("form"), (text, opened)
