"""ps, retry, release, and recover, and the answers to /sweep admin."""

from dataclasses import replace

import pytest

from bot.core.commands import Action, Command
from bot.core.errors import UnknownNameError, UserError
from bot.core.work_item import OPERATOR
from bot.operate.commands import answer_commands
from bot.operate.words import COMMANDS
from tests.bot.factories import ADMIN, OWNER
from tests.bot.operate.stage import ITEM, Stage
from tests.scenarios.sweep_in_memory import SWEEP


@pytest.fixture
async def stage(redis):
    one = Stage(redis)
    async with one.simulation.started():
        await one.begun(3)
        yield one


async def test_ps_lists_sweeps_in_trouble_with_their_last_error(stage):
    await stage.failed("git", "git.example doesn't respond")
    [summary, row] = await stage.run("ps")
    assert summary == "1 unfinished sweep; 0 quarantined, 1 failing; workers running."
    assert row.split()[:1] == [SWEEP]
    assert "failed 3 times: git: git.example doesn't respond" in row


async def test_ps_without_a_worker_says_so(stage, redis):
    await redis.delete("sweepbot:resync")
    assert (await stage.run("ps"))[0].endswith("no worker is running.")


async def test_retry_makes_a_delayed_sweep_ready(stage):
    await stage.failed("git", "down")
    assert await stage.queue.get(wait=0) is None
    assert await stage.run("retry", SWEEP) == [f"{SWEEP} queued: a worker reconciles it now."]
    assert (await stage.queue.get(wait=0)).item == ITEM


@pytest.mark.parametrize(
    ("word", "name", "error"),
    [
        ("retry", "lr-no-such", "No unfinished sweep lr-no-such"),
        ("release", SWEEP, "isn't quarantined. Quarantined: none."),
        ("inspect", "", "Usage: inspect SWEEP."),
        ("ps", "x", "Usage: ps."),
        ("top", "", "Unknown command top. Available: ps"),
    ],
)
async def test_command_that_does_not_apply_says_why(stage, word, name, error):
    with pytest.raises(UserError, match=error):
        await stage.run(word, name)


@pytest.mark.parametrize("word", ["inspect", "retry", "release"])
async def test_unknown_sweep_is_an_error_of_its_own_and_an_answer_in_slack(stage, redis, word):
    with pytest.raises(UnknownNameError, match="lr-no-such"):
        await stage.run(word, "lr-no-such")
    text = await asked(stage, redis, f"{word} lr-no-such")
    assert "lr-no-such" in text


async def test_end_of_a_name_is_enough(stage):
    end = SWEEP.rpartition("-")[2]
    assert await stage.run("retry", end) == [f"{SWEEP} queued: a worker reconciles it now."]
    assert (await stage.run("inspect", end))[0].startswith(f"{SWEEP}: ")


async def test_name_of_several_sweeps_lists_them(stage):
    record = await stage.simulation.record()
    await stage.simulation.store.restore(replace(record, id="lr-calm-finch", version=0))
    with pytest.raises(UserError, match=r"lr matches 2 sweeps: .*lr-calm-finch"):
        await stage.run("retry", "lr")


async def test_release_retries_a_quarantined_sweep(stage):
    for _ in range(6):
        await stage.queue.add(ITEM)
        lease = await stage.queue.get(wait=0)
        await stage.queue.fail(lease, permanent="" if lease.quarantined else "KeyError")
    with pytest.raises(UserError, match="is quarantined"):
        await stage.run("retry", SWEEP)
    assert await stage.run("release", SWEEP) == [f"{SWEEP} released. Sweepbot is retrying now."]
    assert (await stage.queue.get(wait=0)).item == ITEM


async def test_recover_restores_what_redis_lost_once(stage, redis):
    before = await stage.simulation.record()
    await redis.flushall()
    assert await stage.run("recover") == ["1 unfinished sweep queued; 1 restored.", f"restored: {SWEEP}"]
    assert (await stage.simulation.store.get(SWEEP)).phase is before.phase
    assert (await stage.queue.get(wait=0)).item == ITEM
    assert await stage.run("recover") == ["1 unfinished sweep queued; 0 restored."]


class PrivateAnswers:
    def __init__(self):
        self.texts = []

    async def post_ephemeral(self, user, text, response_url):
        self.texts.append((user, text))


async def asked(stage, redis, words, user=ADMIN):
    slack = PrivateAnswers()
    command = Command(action=Action.OPERATE, user=user, user_name="root", changes=words)
    await stage.simulation.store.add_command(str(OPERATOR), command)
    await answer_commands("now", replace(stage.clients, slack=slack), redis)
    assert await stage.simulation.store.commands(str(OPERATOR)) == []
    [(recipient, text)] = slack.texts
    assert recipient == user
    return text


async def test_answer_in_slack_has_the_cause_first_and_no_mentions(stage, redis):
    await stage.failed("git", "<!channel> ``` down")
    text = await asked(stage, redis, "ps")
    assert text.splitlines()[0] == "1 unfinished sweep; 0 quarantined, 1 failing; workers running."
    assert "<!" not in text
    assert text.count("```") == 2


async def test_command_of_someone_who_is_no_admin_changes_nothing(stage, redis, caplog):
    caplog.set_level("INFO", "sweepbot.audit")
    await stage.failed("git", "down")
    assert await asked(stage, redis, f"retry {SWEEP}", OWNER) == f"Only admins can do that: <@{ADMIN}>."
    assert await stage.queue.get(wait=0) is None
    assert f"user={OWNER} action=operate sweep={SWEEP} (retry): denied" in caplog.text


async def test_answer_in_slack_to_a_mistake_says_what_is_wrong(stage, redis):
    assert "No unfinished sweep lr-no-such in Redis" in await asked(stage, redis, "retry lr-no-such")


def test_words_are_the_documented_ones():
    assert list(COMMANDS) == ["ps", "inspect", "retry", "release", "recover"]
