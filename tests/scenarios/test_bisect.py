"""A bisect over real commits of a git host: who broke the trial, and in which line."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.core.events import Event, Progress
from bot.core.record import Building, Phase
from bot.core.request import Bisection
from bot.platform.slack.client import NotInChannelError
from bot.platform.slack.mrkdwn import code
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.sweep.lifecycle.texts import RESULTS
from bot.sweep.lifecycle.trials import ended
from bot.sweep.model.observation import Observation
from bot.sweep.reports import bisect
from bot.sweep.reports.bisect_evidence import _nearest_change
from bot.sweep.results.models import TrialResult
from bot.sweep.sweeps.notifier import POSTERS
from k8s.engine import TrialState
from tests.bot.factories import CONFIG, NOW, OWNER, PLAN, a_sweep
from tests.bot.platform.repos.conftest import git, repo, url  # noqa: F401
from tests.bot.sweep.results.factories import some_results
from tests.scenarios.fakes import FakeSlack

ORIGIN = "lr-brave-otter"
VALUES = {"lr": "0.1", "layers": "3", "optimizer": "adam"}
BISECT = Command(action=Action.BISECT, user=OWNER, user_name="ada", request_id="trigger-9")
LOG = """Traceback (most recent call last):
  File "/app/src/train.py", line 9, in <module>
    raise ValueError("too deep")
ValueError: too deep"""


class Kept:
    """The results of ended sweeps."""

    def __init__(self, *results):
        self.results = results

    async def get(self, name):
        return next((each for each in self.results if each.sweep == name), None)

    async def of_space(self, _):
        for each in self.results:
            yield each


class Pods:
    """The cluster with the pod of each sweep's only trial, which failed."""

    conditions = ()

    async def list(self, kind, namespace, *, labels, only):
        state = {"terminated": {"exitCode": 1, "reason": "Error"}}
        statuses = [{"name": "main", "state": state}]
        meta = {
            "name": "p",
            "labels": {"batch.kubernetes.io/job-name": "t1", "katib.kubeflow.org/trial": "t1"},
        }
        spec = {"containers": [{"name": "main"}], "nodeName": "n1"}
        status = {"phase": "Failed", "containerStatuses": statuses, "conditions": [*self.conditions]}
        return [{"metadata": meta, "spec": spec, "status": status}]


class World(SimpleNamespace):
    """The clients of a bisect, and what the steps' sweeps would do."""

    def of(self, _):
        return self

    async def tail(self, *_):
        return LOG

    async def ends(self, sweep_id, phase, **progress):
        sweep = await self.store.get(sweep_id)
        sweep = replace(sweep, phase=phase, progress=Progress(**progress))
        await self.store.save(sweep)
        await bisect.follow(sweep_id, self)


def world(redis, git, *results):  # noqa: F811
    queue = Queue(redis)
    return World(
        store=Store(redis),
        queue=queue,
        git=git,
        slack=FakeSlack(),
        kept_results=Kept(*results),
        trials=Pods(),
        config=CONFIG,
        now=lambda: NOW,
    )


def planted(repo, broken, commits):  # noqa: F811
    """Push a commit that works, and more of which one breaks the training. Return all."""
    lines = [f"line {n}" for n in range(12)]
    made = [repo.commit("Start", {"src/train.py": "\n".join(lines)})]
    for number in range(1, commits + 1):
        lines[0] = f"version {number}"
        if number == broken:
            lines[8] = 'raise ValueError("too deep")'
        files = {"src/train.py": "\n".join(lines)} if number == broken else {"notes.md": f"{number}"}
        made.append(repo.commit(f"Change {number}", files))
    repo.push("main")
    return made


def stories(url, made):  # noqa: F811
    """Return the ended sweep whose trial failed, and what is stored of it and of the earlier one."""
    failed = TrialResult(name="t1", state=TrialState.FAILED, parameters=VALUES)
    worked = replace(failed, name="t0", state=TrialState.SUCCEEDED, value=0.1)
    origin = a_sweep(
        Phase.FAILED, id=ORIGIN, submitted=True, thread="7.0", plan=replace(PLAN, commit=made[-1])
    )
    now = some_results(
        failed, sweep=ORIGIN, commit=made[-1], repo_url=url, request_id=origin.request_id, ended=origin.since
    )
    return origin, now, some_results(worked, sweep="lr-old", commit=made[0], repo_url=url)


async def begun(redis, repo, url, git, *, broken, commits):  # noqa: F811
    """Begin a bisect. Return its world, the commits, and the first step."""
    made = planted(repo, broken, commits)
    origin, *results = stories(url, made)
    here = world(redis, git, *results)
    await bisect.begin(origin, Observation(), BISECT, here)
    (step,) = await here.store.active()
    return here, made, step


@pytest.mark.parametrize(("broken", "commits", "trials"), [(11, 32, 5), (1, 4, 2), (4, 4, 2)])
async def test_bisect_finds_a_planted_commit(redis, repo, url, git, broken, commits, trials):  # noqa: F811
    made = planted(repo, broken, commits)
    origin, *results = stories(url, made)
    here = world(redis, git, *results)
    answer = await bisect.begin(origin, Observation(), BISECT, here)
    assert answer.startswith(f"Bisecting {commits} commits after `{made[0][:8]}`, whose trial finished: ")
    steps = []
    while not here.slack.posted:
        (step,) = await here.store.active() - {*steps}
        steps.append(step)
        works = made.index((await here.store.get(step)).request.commit) < broken
        end = (Phase.SUCCEEDED, {"succeeded": 1}) if works else (Phase.FAILED, {"failed": 1})
        await here.ends(step, end[0], **end[1])
        if not here.slack.posted:
            await bisect.follow(step, here)  # a repeated job starts nothing twice
    [text] = here.slack.posted
    assert len(steps) == trials
    assert text.startswith(
        f":white_check_mark: <@{OWNER}> First failing commit: `{made[broken][:8]}` “Change {broken}” by *Ada*"
    )
    assert f"of {commits} commits, found with {trials} trials" in text
    assert text.endswith('\n`src/train.py:9` `+raise ValueError("too deep")`'), "not the other changed line"


LONG = [f"x = {number}" for number in range(2_500)]


@pytest.mark.parametrize(
    ("changed", "row", "found"),
    [
        ({2_300: "x = 0"}, 2_301, ("a.py:2301", "+x = 0")),
        ({0: "import y\nx = 0"}, 2_000, ("a.py:1", "+import y")),
        ({5: "x = 0", 2_300: "x = 0"}, 2_301, None),  # too far apart to be compared in time
        ({}, 1, None),
    ],
)
def test_changed_line_of_a_long_file_is_found_between_its_first_and_its_last_change(changed, row, found):
    after = [changed.get(number, line) for number, line in enumerate(LONG)]
    assert _nearest_change("a.py", "\n".join(LONG), "\n".join(after), row) == found


async def test_two_bisects_begun_by_clicks_have_steps_of_their_own(redis, repo, url, git):  # noqa: F811
    made = planted(repo, 3, 8)
    origin, *results = stories(url, made)
    here = world(redis, git, *results)
    for message in ("1.0", "2.0"):  # the id of a click on an offered command has slashes
        click = replace(BISECT, request_id=f"run/C1/{message}/{OWNER}")
        await bisect.begin(origin, Observation(), click, here)
    first, second = steps = await here.store.active()
    for step in steps:
        await here.ends(step, Phase.SUCCEEDED, succeeded=1)
    assert len(await here.store.active() - {first, second}) == 2


async def next_step(here, *earlier):
    (step,) = await here.store.active() - {*earlier}
    return await here.store.get(step)


@pytest.mark.parametrize(
    ("phase", "why"),
    [(Phase.REFUSED, "Your limit is 4 GPUs"), (Phase.FAILED, "Declined by grace: too much")],
)
async def test_bisect_of_a_step_that_ran_no_trial_stops_with_the_range(
    redis,
    repo,  # noqa: F811
    url,  # noqa: F811
    git,  # noqa: F811
    phase,
    why,
):
    here, made, step = await begun(redis, repo, url, git, broken=3, commits=8)
    await here.store.save(replace(await here.store.get(step), reason=why))
    await here.ends(step, phase)
    [text] = here.slack.posted
    tried = f"`{step}` ran no trial of commit `{made[4][:8]}`: {why}."
    assert text.startswith(f":warning: <@{OWNER}> Bisect stopped: {tried} The commit that fails is between")


async def test_bisect_skips_commits_that_do_not_build_and_names_what_is_left(redis, repo, url, git):  # noqa: F811
    here, made, step = await begun(redis, repo, url, git, broken=3, commits=4)
    building = Building(started=NOW)
    await here.store.save(replace(await here.store.get(step), building=building))
    await here.ends(step, Phase.FAILED)  # its build failed
    first = await next_step(here, step)
    assert (made.index((await here.store.get(step)).request.commit), made.index(first.request.commit)) == (
        2,
        1,
    )
    await here.store.save(replace(first, image="image"))
    await here.ends(first.id, Phase.SUCCEEDED, succeeded=1)
    second = await next_step(here, step, first.id)
    assert made.index(second.request.commit) == 3
    await here.store.save(replace(second, image="image"))
    await here.ends(second.id, Phase.FAILED, failed=1)
    [text] = here.slack.posted
    good, unbuilt, bad = (code(made[number][:8]) for number in (1, 2, 3))
    assert text == (
        f":warning: <@{OWNER}> Bisect stopped: the first failing commit is one of the 2 after {good} up to "
        f"{bad}. No image could be built of {unbuilt}."
    )


async def test_step_that_the_cluster_stopped_runs_again_and_says_nothing_of_its_commit(redis, repo, url, git):  # noqa: F811
    here, made, step = await begun(redis, repo, url, git, broken=3, commits=8)
    steps = [step]
    here.trials.conditions = ({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"},)
    for _ in range(2):
        await here.ends(steps[-1], Phase.FAILED, failed=1)
        again = await next_step(here, *steps)
        assert (again.request.commit, again.request.bisects.bad) == (made[4], made[-1])
        steps.append(again.id)
    await here.ends(steps[-1], Phase.FAILED, failed=1)
    [text] = here.slack.posted
    assert text.startswith(
        f":warning: <@{OWNER}> Bisect stopped: the cluster stopped the trial of commit `{made[4][:8]}` 3"
    )


async def test_own_fault_that_a_node_reports_counts_as_bad(redis, repo, url, git):  # noqa: F811
    here, made, step = await begun(redis, repo, url, git, broken=3, commits=8)
    over = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": over}
    here.trials.conditions = (target,)
    await here.ends(step, Phase.FAILED, failed=1)
    assert (await next_step(here, step)).request.bisects.bad == made[4]


async def test_bisect_starts_after_a_commit_that_is_named(redis, repo, url, git):  # noqa: F811
    made = planted(repo, 3, 8)
    origin, now, _ = stories(url, made)
    here = world(redis, git, now)
    answer = await bisect.begin(origin, Observation(), replace(BISECT, changes=f"good={made[1][:7]}"), here)
    assert answer.startswith(f"Bisecting 7 commits after `{made[1][:8]}`: up to 3 trials, the first in")
    assert (await next_step(here)).request.bisects.good == made[1]
    for wrong, why in (
        ("f" * 40, "an earlier commit"),
        (made[-1], "an earlier commit"),
        ("main", "a commit's hash"),
    ):
        with pytest.raises(UserError, match=f"good= must be {why}"):
            await bisect.begin(origin, Observation(), replace(BISECT, changes=f"good={wrong}"), here)


async def test_commits_that_a_force_push_removed_end_the_bisect(redis, repo, url, git):  # noqa: F811
    here, made, step = await begun(redis, repo, url, git, broken=3, commits=8)
    sweep = await here.store.get(step)
    gone = replace(sweep.request.bisects, bad="e" * 40)
    await here.store.save(replace(sweep, request=replace(sweep.request, bisects=gone)))
    await here.ends(step, Phase.SUCCEEDED, succeeded=1)
    assert here.slack.posted == [
        f":warning: <@{OWNER}> Bisect stopped: {url} no longer has eeeeeeee: a force-push removed it."
    ]
    origin, now, worked = stories(url, made)
    here = world(redis, git, now, replace(worked, commit="d" * 40))
    with pytest.raises(UserError, match="No earlier sweep"):
        await bisect.begin(origin, Observation(), BISECT, here)


async def test_bisect_stops_if_a_failing_commit_lacks_the_one_that_worked(redis, repo, url, git):  # noqa: F811
    here, made, step = await begun(redis, repo, url, git, broken=3, commits=8)
    sweep = await here.store.get(step)
    older = replace(sweep.request, commit=made[1], bisects=replace(sweep.request.bisects, good=made[2]))
    await here.store.save(replace(sweep, request=older))  # as before a merge of the branch that worked
    await here.ends(step, Phase.FAILED, failed=1)
    [text] = here.slack.posted
    assert f"commit `{made[1][:8]}` fails as well, but doesn't contain `{made[2][:8]}`" in text


async def test_answer_waits_for_the_end_of_its_last_step(redis, repo, url, git):  # noqa: F811
    here, _, step = await begun(redis, repo, url, git, broken=1, commits=2)
    end = Event(
        kind=RESULTS, text="Failed"
    )  # Slack is busy: it will be posted again, and queue the job again
    await here.store.save(replace(await here.store.get(step), outbox=(end,)))
    await here.ends(step, Phase.FAILED, failed=1)
    assert await bisect.follow(step, here)
    assert here.slack.posted == []
    await here.store.save(replace(await here.store.get(step), outbox=()))
    assert await bisect.follow(step, here) is None
    assert len(here.slack.posted) == 1


async def test_answer_that_the_thread_refuses_is_sent_to_who_asked(redis, repo, url, git):  # noqa: F811
    here, _, step = await begun(redis, repo, url, git, broken=1, commits=2)

    async def archived(*_):
        raise NotInChannelError("is_archived")

    here.slack.reply = archived
    await here.ends(step, Phase.FAILED, failed=1)
    [(user, text)] = here.slack.ephemeral_messages
    assert (user, text.startswith(":white_check_mark: First failing commit: ")) == (OWNER, True)
    assert text.endswith(f"\nSweepbot can't post in the thread of `{ORIGIN}` (Slack error `is_archived`).")


async def test_bisect_needs_an_earlier_trial_with_the_same_values(redis, repo, url, git):  # noqa: F811
    made = planted(repo, 3, 8)
    origin, now, _ = stories(url, made)
    with pytest.raises(UserError, match="No earlier sweep"):
        await bisect.begin(origin, Observation(), BISECT, world(redis, git, now))
    nothing = replace(now, trials=())
    with pytest.raises(UserError, match="has no failed trial"):
        await bisect.begin(origin, Observation(), BISECT, world(redis, git, nothing))


async def test_end_of_a_step_queues_the_next_one_also_without_trials(redis, git):  # noqa: F811
    here = world(redis, git)
    step = replace(a_sweep(Phase.STOPPING, thread="7.0"), reason="image build failed", ending=Phase.FAILED)
    bisection = Bisection(sweep=ORIGIN, channel="C1", thread="7.0", url="u", good="a" * 40, bad="b" * 40)
    step = replace(step, request=replace(step.request, bisects=bisection))
    sweep = ended(step, Phase.FAILED, NOW)
    await POSTERS[sweep.outbox[0].kind](sweep, sweep.outbox[0], here)
    assert await here.queue.is_due(bisect.item(sweep.id))
    assert "image build failed" in here.slack.posted[-1]
