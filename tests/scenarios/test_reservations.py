"""Reserved GPUs are held, given to the team's trials, and free again at the end."""

import secrets
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.measure.gpus.command import parse_command
from bot.platform.config.profiles import Profile
from bot.platform.config.teams import Team
from bot.workspace_table import GPUS
from bot.workspaces.reservations.answer import answer_reservations, reserved_line
from bot.workspaces.reservations.hold import hold
from bot.workspaces.reservations.models import ITEM
from bot.workspaces.reservations.store import ReservationStore
from k8s.api.errors import ApiError
from k8s.kueue import QUEUE_LABEL, relabeled
from k8s.objects import GPU
from k8s.reservations import RESERVATION_LABEL, placeholder_name
from local.kubernetes.controllers.jobs import Controllers
from tests.bot.factories import ADMIN, NOW, OWNER
from tests.scenarios.queued_sweep import QueuedSweep
from tests.scenarios.sweep_in_memory import WorkerCrash

AMD = "amd.com/gpu"
TEAM = Team(name="vision", members=(OWNER,), queue="research")


async def reservations(story):
    return list((await ReservationStore(story.clients).read()).reservations)


class Reserving(QueuedSweep):
    """A sweep of team vision in a queue with a quota of four GPUs."""

    def __init__(self, redis, **scenario):
        super().__init__(redis, gpus=4, **scenario)
        config = replace(self.clients.config, teams=(TEAM,), reservations=True)
        self.clients = replace(self.clients, config=config)
        self.controllers = Controllers(self.kubernetes, backoff=0)
        self.time = NOW

    async def asks(self, text, user=ADMIN, at=NOW):
        asked = parse_command(text, self.clients.config, GPUS)
        return await answer_reservations(
            asked.view, asked.values, user=user, channel="C1", asked_at=at, clients=self.clients
        )

    async def holds(self, after=timedelta(0)):
        """One run of the work item, and what the cluster does then."""
        self.clients = replace(self.clients, now=lambda: NOW + after)
        again = await hold("now", self.clients)
        for _ in range(2):
            await self.settle()
            await self._time_passes()
        await self.settle()
        return again

    def placeholders(self, *, held=None):
        found = [j for j in self.kubernetes.list("Job") if "sweepbot-reserved" in j["metadata"]["name"]]
        return [j for j in found if held in (None, not j["spec"]["suspend"])]

    def held(self):
        pods = self.kubernetes.list("Pod")
        return [p for p in pods if "reserved" in p["metadata"]["name"] and p["status"]["phase"] == "Running"]


@pytest.fixture
async def story(redis):
    story = Reserving(redis)
    async with story.started():
        lowest = {"metadata": {"name": "sweepbot-reservation"}, "value": -1000000}
        head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "WorkloadPriorityClass"}
        story.kubernetes.create(head | lowest)
        yield story


async def test_reservation_holds_gpus_until_its_end(story):
    answer = await story.asks("reserve team=vision gpus=3 until=48h")
    assert answer.startswith("Reserved 3 GPUs for team vision until <!date^")
    assert await story.redis.zscore("life:queue:ready", str(ITEM)) is not None
    assert await story.holds() == timedelta(seconds=30)
    assert len(story.held()) == 3
    [one] = await reservations(story)
    assert f"`{one.id}`: 3 GPUs for team vision" in await story.asks("reservations", user=OWNER)
    await story.holds(timedelta(hours=47))
    assert len(story.held()) == 3
    await story.holds(timedelta(hours=48))
    assert (story.held(), story.placeholders()) == ([], [])
    await story.holds(timedelta(hours=48, minutes=1))
    assert await story.holds(timedelta(hours=48, minutes=2)) is None
    assert await reservations(story) == []


async def test_trials_of_the_team_replace_its_placeholders(story):
    await story.asks("reserve team=vision gpus=4 until=48h")
    await story.holds()
    assert len(story.held()) == 4
    assert {w["spec"]["priority"] for w in story.kubernetes.list("Workload")} == {-1000000}
    while len(story.jobs(suspended=False)) < 2:  # the sweep's two trials, although no quota was free
        await story.round()
    await story.holds()
    assert len(story.held()) == 2
    assert len(story.placeholders()) == 2, "the team has four GPUs in all, and doesn't get six"


async def test_released_reservation_frees_its_gpus(story):
    await story.asks("reserve team=vision gpus=1 until=48h")
    await story.holds()
    [one] = await reservations(story)
    assert "Unknown reservation" in await story.asks("release nothing")
    assert await story.asks(f"release {one.id}") == f"Released `{one.id}`: 1 GPU of team vision."
    remove = story.cluster.delete

    async def replaced(ref, **how):  # since the placeholders were listed
        story.cluster.delete, job = remove, story.kubernetes.get(ref.kind, ref.namespace, ref.name)
        story.kubernetes.delete(ref.kind, ref.namespace, ref.name)
        meta = {key: job["metadata"][key] for key in ("name", "namespace", "labels")}
        story.kubernetes.create(job | {"metadata": meta, "status": {}})
        return await remove(ref, **how)

    story.cluster.delete = replaced
    await hold("now", story.clients)
    assert len(story.placeholders()) == 1, "only the one that was listed is deleted"
    await hold("now", story.clients)
    assert story.placeholders() == []


async def test_reservation_ends_if_reservations_are_switched_off(story):
    await story.asks("reserve team=vision gpus=1 until=48h")
    await hold("now", story.clients)
    story.clients = replace(story.clients, config=replace(story.clients.config, reservations=False))
    await hold("now", story.clients)
    await hold("now", story.clients)
    assert story.placeholders() == []
    assert await reservations(story) == []


async def test_repeated_request_is_one_reservation(story):
    for _ in range(2):  # of all GPUs that can be reserved
        assert (await story.asks("reserve team=vision gpus=256 until=48h")).startswith("Reserved")
    [one] = await reservations(story)
    await story.asks(f"release {one.id}")
    await story.asks("reserve team=vision gpus=256 until=48h")
    assert [each.released for each in await reservations(story)] == [True]


async def test_worker_crash_at_any_call_leaves_nothing_behind(story):
    await story.asks("reserve team=vision gpus=3 until=48h")
    for after, number in ((timedelta(0), 3), (timedelta(hours=48), 0)):
        for call in range(1, 6):
            story.clock.calls, story.clock.crash_at = 0, call
            try:
                await story.holds(after)
            except WorkerCrash:
                await story.settle()
        story.clock.crash_at = None
        await story.holds(after)
        assert len(story.placeholders()) == number


async def test_gpus_that_are_not_free_are_held_once_they_are(story):
    story.job("other", gpus=3)
    story.kubernetes.patch("Job", "sweeps", "other", relabeled({QUEUE_LABEL: "urgent"}))
    await story.settle()
    await story.asks("reserve team=vision gpus=3 until=48h")
    await story.holds()
    assert len(story.placeholders(held=True)) == 1, "a running Job isn't preempted"
    story.kubernetes.delete("Job", "sweeps", "other")
    await story.holds()
    assert len(story.held()) == 3


@pytest.fixture
async def machines(story):
    """Profiles of three kinds of machines; the ClusterQueue has quotas of GPUs and of AMD's."""
    profiles = (
        Profile(name="h100", gpus=8, nodes={"gpu": ("h100", "h200"), "rack": ("a",)}),
        Profile(name="amd", gpus=1, resource=AMD, tolerations=({"key": "amd", "operator": "Exists"},)),
        Profile(name="mig", gpus=1, resource="nvidia.com/mig-3g.40gb"),
        Profile(name="cpu", gpus=0),
    )
    quota = [{"name": name, "nominalQuota": "4"} for name in (GPU, AMD)]
    group = {"coveredResources": [GPU, AMD], "flavors": [{"name": "a100", "resources": quota}]}
    story.kubernetes.patch("ClusterQueue", "", "lab", {"spec": {"resourceGroups": [group]}})
    story.clients = replace(story.clients, config=replace(story.clients.config, profiles=profiles))
    return story


async def test_gpus_of_a_profile_are_held_as_its_resource_on_its_machines(machines):
    answer = await machines.asks("reserve team=vision gpus=2 until=48h profile=amd")
    assert answer.startswith("Reserved 2 GPUs (profile amd) for team vision until")
    await machines.holds()
    pods = [pod["spec"] for pod in machines.held()]
    assert [pod["containers"][0]["resources"]["limits"] for pod in pods] == [{AMD: "1"}] * 2
    assert {"key": "amd", "operator": "Exists"} in pods[0]["tolerations"]
    assert "2 GPUs (profile amd) for team vision" in await machines.asks("reservations")
    assert "Reserved: 2 GPUs (profile amd) for team vision until" in await reserved_line(machines.clients)


async def test_reservation_of_a_profile_waits_for_machines_with_its_and_the_teams_labels(machines):
    teams = (Team(name="speech", nodes={"room": "2"}), replace(TEAM, nodes={"room": "1"}))
    machines.clients = replace(machines.clients, config=replace(machines.clients.config, teams=teams))
    await machines.asks("reserve team=vision gpus=1 until=48h profile=h100")
    await machines.holds()
    [job] = machines.placeholders()
    pod = job["spec"]["template"]["spec"]
    [term] = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert pod["nodeSelector"] == {"rack": "a", "room": "1"}
    assert term["matchExpressions"] == [{"key": "gpu", "operator": "In", "values": ["h100", "h200"]}]
    assert "podAffinity" not in pod["affinity"]


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("profile=mig", "Queue research has no quota for nvidia.com/mig-3g.40gb. *Fix:* Add the resource"),
        ("profile=cpu", "profile= must be a profile with GPUs; cpu has none. Available: h100, amd, and mig."),
        ("profile=h10", 'profile= must be a configured profile; got "h10". Did you mean h100?'),
    ],
)
async def test_profile_that_cannot_be_reserved_is_rejected(machines, profile, words):
    assert words in await machines.asks(f"reserve team=vision gpus=1 until=48h {profile}")
    assert await reservations(machines) == []


async def test_profile_is_required_where_none_has_the_usual_resource(machines):
    profiles = [each for each in machines.clients.config.profiles if each.name == "amd"]
    machines.clients = replace(
        machines.clients, config=replace(machines.clients.config, profiles=(*profiles,))
    )
    answer = await machines.asks("reserve team=vision gpus=1 until=48h")
    assert answer == f"Missing profile=, because no profile requests {GPU}. Available: amd."


@pytest.mark.parametrize(
    ("text", "user", "words"),
    [
        ("reserve team=vision gpus=3 until=48h", OWNER, "Only admins can do that"),
    ],
)
async def test_reservation_that_is_wrong_is_rejected(story, text, user, words):
    assert words in await story.asks(text, user=user)
    assert await reservations(story) == []


async def test_reservation_without_the_priority_class_is_rejected(redis):
    story = Reserving(redis)
    async with story.started():
        answer = await story.asks("reserve team=vision gpus=3 until=48h")
        assert answer.startswith("The WorkloadPriorityClass `sweepbot-reservation` is missing. *Fix:*")


async def test_job_of_someone_else_with_the_label_is_left_alone(story):
    names = {"theirs", "theirs-0", "other-0"}
    for name in names:
        story.job(name, gpus=0)
        story.kubernetes.patch("Job", "sweeps", name, {"metadata": {"labels": {RESERVATION_LABEL: "other"}}})
    await story.asks("reserve team=vision gpus=3 until=48h")
    await story.holds()
    assert len(story.held()) == 3
    await story.holds(timedelta(hours=48))
    assert story.held() == []
    assert names <= {job["metadata"]["name"] for job in story.kubernetes.list("Job")}


async def test_placeholder_of_a_reservation_that_is_gone_is_deleted(story):
    """A suspended worker created it after another one had removed the reservation."""
    await story.asks("reserve team=vision gpus=2 until=48h")
    await story.holds()
    kept = {job["metadata"]["uid"] for job in story.placeholders()}
    late = story.placeholders()[0]
    labels = late["metadata"]["labels"] | {RESERVATION_LABEL: "speech-1"}
    meta = {"name": placeholder_name("speech-1", 0), "namespace": "sweeps", "labels": labels}
    story.kubernetes.create(late | {"metadata": meta, "status": {}})
    assert len(story.placeholders()) == 3
    await story.holds()
    assert {job["metadata"]["uid"] for job in story.placeholders()} == kept


async def test_admin_is_notified_once_that_the_cluster_rejects_placeholders(story):
    create, rejecting = story.cluster.create, True

    async def rejected(manifest):
        if rejecting and "reserved" in manifest["metadata"]["name"]:
            raise ApiError(403, "Forbidden", f"denied by <!channel> policy, request {secrets.token_hex(4)}")
        return await create(manifest)

    async def forbidden(ref, **_):
        raise ApiError(403, "Forbidden", f"can't delete {ref.name}")

    story.cluster.create = rejected
    await story.asks("reserve team=vision gpus=3 until=48h")
    for _ in range(3):
        assert await story.holds() == timedelta(seconds=30)
    [(user, text)] = story.slack.ephemeral_messages
    assert user == ADMIN
    assert (
        "can't be held: the cluster rejects placeholders in namespace `sweeps`.\n> denied by &lt;!channel"
        in text
    )
    assert "The cluster rejects its placeholders: denied by" in await story.asks("reservations", user=OWNER)
    rejecting = False
    await story.holds()
    assert len(story.held()) == 3
    assert "rejects" not in await story.asks("reservations", user=OWNER)
    remove, story.cluster.delete = story.cluster.delete, forbidden
    await story.holds(timedelta(hours=48))
    story.cluster.delete = remove
    await story.holds(timedelta(hours=48, minutes=1))
    await story.holds(timedelta(hours=48, minutes=2))
    assert not story.kubernetes.get("ConfigMap", "sweeps", "sweepbot-reservations").get("data")
    assert len(story.slack.ephemeral_messages) == 1, "the reservation has ended"
