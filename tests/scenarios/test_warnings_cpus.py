"""Trials without GPUs: warnings about their CPUs and memory, by what Prometheus would say of their pods."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action
from bot.measure.gpus.models import NoGpuDataError
from bot.measure.sources.cpu_use import CpuUse
from bot.platform.config.idle_thresholds import IdleThresholds
from k8s.objects import SWEEP_LABEL
from k8s.trial_kinds import TRIAL_LABEL
from tests.bot.factories import NOW, OWNER, PLAN
from tests.bot.watch.idle.test_detector import QUIET, a_pod
from tests.scenarios.simulated_monitor import TRIAL, SimulatedMonitor

GIB = 2**30
SWEEP = "lr-brave-otter"


class FakeCpus:
    """Use by window in minutes, else of all windows; None: Prometheus doesn't answer."""

    def __init__(self):
        self.cores, self.ram, self.burst, self.peak, self.asked = 7.5, 40 * GIB, 1.0, 0, []
        self.second_ram = 0  # of a second pod

    async def use(self, window, namespaces):
        self.asked.append((window / timedelta(minutes=1), *namespaces))
        if self.cores is None:
            raise NoGpuDataError("no series")
        rams = {"a": self.ram, "b": self.second_ram}
        return {("sweeps", f"{TRIAL}-{pod}"): CpuUse(cores=self.cores, ram=ram) for pod, ram in rams.items()}

    async def bursts(self, window, namespaces):
        return {("sweeps", f"{TRIAL}-a"): self.burst}

    async def peaks(self, window, namespaces, pods):
        self.life = window
        return dict.fromkeys(pods, self.peak)


def a_trial(minutes, cpu="8", memory="64Gi", gpus=None, pod="a"):
    """A pod that has run for so long."""
    started = (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    main = {"name": "main", "image": "x"}
    main["resources"] = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}
    main["resources"]["limits"] |= {"nvidia.com/gpu": gpus} if gpus else {}
    labels = {SWEEP_LABEL: SWEEP, TRIAL_LABEL: TRIAL, "batch.kubernetes.io/job-name": TRIAL}
    meta = {"name": f"{TRIAL}-{pod}", "namespace": "sweeps", "labels": labels}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": TRIAL, "uid": "j", "controller": True}
    running = {"name": "main", "state": {"running": {"startedAt": started}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | {"ownerReferences": [owner]},
        "spec": {"containers": [main], "nodeName": "cpu-1"},
        "status": {"phase": "Running", "containerStatuses": [running]},
    }


async def a_simulation(redis, *pods, **plan):
    simulation = SimulatedMonitor(redis, cpus=FakeCpus())
    simulation.cpus = simulation.watching.cpus
    await simulation.sweep(plan=replace(PLAN, gpus=0, **plan))
    for pod in pods:
        status = pod.pop("status")
        simulation.kubernetes.set_status(simulation.kubernetes.create(pod), status)
    return simulation


async def test_idle_cpus_are_reported_in_the_thread_snoozed_and_never_stopped(redis):
    simulation = await a_simulation(redis, a_trial(60))
    config = simulation.watching.clients.config
    simulation.watching.clients.config = replace(config, warnings=IdleThresholds(stop_minutes=30))
    await simulation.run()
    assert simulation.slack.posted == {}
    assert sorted(simulation.cpus.asked) == [(30, "sweeps"), (120, "sweeps")], "one query of a window for all"
    simulation.cpus.cores = 0.02
    await simulation.run(3)
    [(channel, thread, message)] = simulation.slack.posted.values()
    assert (channel, thread) == ("C1", "1.1")
    assert f"Trial `{TRIAL}`: 8 CPUs idle for 30 min, since" in simulation.texts()[0]
    assert "Is the program hung, or waiting for data" in simulation.texts()[0]
    assert "less than 1% of the requested CPUs" in str(message.blocks)
    assert "never stops a trial without GPUs" in str(message.blocks)
    assert "frees its CPUs and memory" in str(message.blocks)
    await simulation.run(60)
    assert await simulation.store.commands(SWEEP) == []
    await simulation.click(Action.MEASURES)
    await simulation.run(61)
    assert simulation.slack.ephemeral_messages[-1][1] == (
        "CPU and memory use over the last 30 min (Prometheus):\n"
        f"• `{TRIAL}`: mean 0.2% of 8 CPUs, memory max 40 GiB of 64 GiB"
    )
    await simulation.click(Action.KEEP, hours=4)
    await simulation.run(62)
    assert "Snoozed by" in simulation.texts()[0]
    simulation.cpus.cores = 7.0
    await simulation.run(70)
    assert simulation.texts() == [
        f":white_check_mark: Trial `{TRIAL}` is busy again after 97 min with 8 CPUs idle."
    ]


@pytest.mark.parametrize(
    ("use", "pod", "text"),
    [
        ({"cores": 0.5}, a_trial(130), "8 CPUs underused for 2 h (6% average), since"),
        ({"cores": 0.5, "burst": 6.0}, a_trial(130), ""),  # sometimes it uses most of them
        ({"cores": 0.5}, a_trial(100), ""),
        ({"cores": 0.02}, a_trial(39), ""),
        ({"cores": 0.01}, a_trial(130, cpu="2"), ""),  # small
        ({"ram": 60 * GIB}, a_trial(2), "memory limit of 64 GiB nearly reached (94%)."),
        ({"ram": 57 * GIB}, a_trial(130), ""),
        ({"ram": 3 * GIB, "peak": 4 * GIB}, a_trial(300), "64 GiB of memory hardly used since the start"),
        ({"ram": 3 * GIB, "peak": 30 * GIB}, a_trial(300), ""),  # loading the data needed it
        ({"ram": 1 * GIB, "peak": 1 * GIB}, a_trial(300, memory="16Gi"), ""),
        ({"cores": 0.02}, a_trial(130, gpus="1"), ""),  # GPUs have their own warnings
    ],
)  # fmt: skip
async def test_trial_without_gpus_is_reported_if_it_requests_much_more_than_it_uses(redis, use, pod, text):
    simulation = await a_simulation(redis, pod)
    vars(simulation.cpus).update(use)
    await simulation.run()
    assert len(simulation.texts()) == bool(text)
    flag = ":warning:" if "limit" in text else ":zzz:"
    assert not text or f"{flag} <@{OWNER}> Trial `{TRIAL}`: {text}" in simulation.texts()[0]
    for minutes in (40, 130) if text else ():
        await simulation.run(minutes)
    assert simulation.slack.number == len(simulation.texts()), "posted once"


async def test_measures_of_a_trial_without_requested_cpus_say_so(redis):
    simulation = await a_simulation(redis, a_trial(60, cpu="0"))
    simulation.cpus.ram = 60 * GIB
    await simulation.run()
    await simulation.click(Action.MEASURES, alert=f"full/sweeps/{TRIAL}")
    await simulation.run(1)
    reply = simulation.slack.ephemeral_messages[-1][1]
    assert f"• `{TRIAL}`: no CPUs requested, memory max 60 GiB of 64 GiB" in reply


async def test_trial_of_several_pods_counts_from_the_last_start_and_by_the_fullest_pod(redis):
    simulation = await a_simulation(redis, a_trial(60), a_trial(60, pod="b"), a_trial(60, pod="gone"))
    simulation.kubernetes.delete("Pod", "sweeps", f"{TRIAL}-gone")  # it still terminates
    second = simulation.kubernetes.get("Pod", "sweeps", f"{TRIAL}-b")
    waiting = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
    simulation.kubernetes.set_status(second, {"phase": "Pending", "containerStatuses": [waiting]})
    simulation.cpus.cores = 0.02
    await simulation.run()
    assert simulation.texts() == []
    simulation.kubernetes.set_status(second, a_trial(60)["status"])
    await simulation.run(3)
    assert f"Trial `{TRIAL}`: 16 CPUs idle for 30 min" in simulation.texts()[0]
    simulation.cpus.cores, simulation.cpus.second_ram = 7.5, 63 * GIB
    await simulation.run(6)
    assert "memory limit of 64 GiB nearly reached (98%)" in simulation.texts()[-1]


@pytest.mark.parametrize("off", ["idle_minutes", "memory_percent", "low_percent"])
async def test_each_warning_can_be_turned_off_for_a_sweep(redis, off):
    use = {
        "idle_minutes": {"cores": 0.02},
        "memory_percent": {"ram": 63 * GIB},
        "low_percent": {"cores": 0.9, "ram": GIB, "peak": GIB},
    }
    space = replace(PLAN.space, watch={off: 0})
    simulation = await a_simulation(redis, a_trial(60 if off == "idle_minutes" else 300), space=space)
    vars(simulation.cpus).update(use[off])
    await simulation.run()
    assert simulation.texts() == []


async def test_warnings_of_one_resource_stay_while_the_other_is_measured(redis):
    simulation = await a_simulation(redis, a_trial(60))
    simulation.cpus.cores = 0.02
    await simulation.run(0, a_pod(QUIET, namespace="vision", sweep="", team="vision"))
    before = simulation.texts()
    assert len(before) == 2
    simulation.cpus.cores = None
    for minutes in (3, 6):
        await simulation.run(minutes)
    assert simulation.texts() == before
    simulation.cpus.cores, simulation.source.now = 7.0, None
    for minutes in (9, 12):
        await simulation.run(minutes)
    assert sorted(text.split()[0] for text in simulation.texts()) == [":white_check_mark:", ":zzz:"]
    await simulation.click(Action.KILL, user=OWNER, alert=f"idle/sweeps/{TRIAL}", trial="x")
    await simulation.run(13)
    assert "This warning is over" in simulation.slack.ephemeral_messages[-1][1]
