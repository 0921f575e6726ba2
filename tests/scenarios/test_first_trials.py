"""Problems of a first trial's pod, from the fault in the cluster to the message in the thread."""

from dataclasses import replace

import pytest

from bot.core.record import Phase
from tests.bot.factories import REQUEST
from tests.bot.sweep.features.health import real_messages
from tests.scenarios.failing_trials import FailingTrials
from tests.scenarios.pod_faults import (
    MINUTE,
    NOW,
    disk_fills,
    ends,
    event,
    infinite,
    no_metrics,
    node_fails,
    node_fails_early,
    node_fails_unobserved,
    reserved,
    runs,
    sandbox_then_pulls,
    says,
    too_large,
    unbound,
    unscheduled,
    waits,
    without_gpus,
)

# rule number and name -> the fault of each pod, the seconds until it is reported, and the text. One for each
# way on which a fault is observed and timed: tests/bot/sweep/features/health/ has every real message.
STORIES = {
    "6 no free GPU": (
        unscheduled(real_messages.UNSCHEDULABLE),
        MINUTE,
        ["isn't running yet", "not enough free GPUs on 4 nodes", "0/4 nodes"],
    ),
    "6 the nodes with GPUs are reserved": (
        reserved,
        MINUTE,
        ["untolerated taints on 1 node.", "Taint `dedicated: vision` on 1 node."],
    ),
    "6 no node has GPUs": (without_gpus, MINUTE, ["No node has GPUs; the trial requests 1."]),
    "6 no node is large enough": (
        too_large,
        NOW,
        ["requests 8 GPUs, and the largest node has 4", "`gpus=4` or fewer", "0/4 nodes"],
    ),
    "6 held back by a gate": (
        unscheduled(real_messages.GATED, "SchedulingGated"),
        MINUTE,
        ["scheduling gate"],
    ),
    "7 no such claim": (
        unscheduled(real_messages.NO_CLAIM),
        NOW,
        ["`rc-definitely-missing-pvc` doesn't exist"],
    ),
    "7 nothing fills the claim": (unbound, MINUTE, ["PersistentVolumeClaim", "default"]),
    "8 a secret to mount is missing": (
        event("FailedMount", real_messages.NO_SECRET),
        NOW,
        ["secret `compcrdwebhook-secret` doesn't exist"],
    ),
    "8 a large image": (event("Pulling", real_messages.PULLING), MINUTE, ["still pulling the image"]),
    "9 a network that came": (sandbox_then_pulls, MINUTE, ["still pulling the image"]),
    "9 no network": (
        event("FailedCreatePodSandBox", real_messages.NO_NETWORK),
        11,
        ["Node `n1` can't start the pod: network error"],
    ),
    "10 a broken GPU": (
        says(phase="Failed", reason="UnexpectedAdmissionError", message=real_messages.UNHEALTHY_GPU),
        NOW,
        ["Node `n1` couldn't allocate GPUs", "no healthy devices present"],
    ),
    "11 no such tag": (
        waits("ErrImagePull", real_messages.PULLS["image-missing"]),
        NOW,
        ["not found in the registry"],
    ),
    "11 a first failure may pass": (
        waits("ErrImagePull", real_messages.PULLS["image-pull"]),
        11,
        ["can't pull the image", "connection refused"],
    ),
    "12 no such command": (
        ends(128, "StartError", message=real_messages.NO_COMMAND),
        NOW,
        ["couldn't start the command", "executable file not found in $PATH"],
    ),
    "13 a crash": (
        ends(1, log=real_messages.TRACEBACK),
        NOW,
        [
            ":warning: <@UOWNER> Trial `",
            "failed: KeyError: 'adamw' (train.py:31)",
            "KeyError: 'adamw'",
            "width=",
        ],
    ),
    "14 out of memory": (ends(137, "OOMKilled"), NOW, ["Out of memory (RAM, not GPU)"]),
    "15 the disk is full": (
        disk_fills,
        NOW,
        [":warning: Trial `lr-brave-otter-", "the disk is full"],
    ),
    "16 the GPU's memory": (
        ends(1, log=real_messages.CUDA_OOM),
        NOW,
        [
            "CUDA out of memory. Tried to allocate 22.00 MiB.",
            "(train.py:58)\n*Fix:* Limit the batch",
            "width=",
        ],
    ),
    "17 no GPU, and it continues": (
        runs(f"{real_messages.NOT_AVAILABLE_PRINTED}, using cpu"),
        NOW,
        [":warning: Trial `lr-brave-otter-", "no usable GPU and continues on the CPU"],
    ),
    "19 NaN while it runs": (
        runs(real_messages.NAN),
        NOW,
        ["The loss became NaN at step 1200", "learning rate"],
    ),
    "19 infinite, and a success": (infinite, NOW, ["`loss` is infinite"]),
    "20 no metric": (no_metrics, NOW, ["no TensorBoard scalar `loss`", "add_scalar"]),
    "21 the collector fails": (
        ends(0, "Completed", collector=1),
        NOW,
        ["its metrics collector can't reach Katib's database", "6789: Failed to connect"],
    ),
    "22 nothing is reported": (ends(0, "Completed"), MINUTE, ["Katib received no metrics"]),
    "23 a node dies": (
        node_fails,
        NOW,
        ["Node `n1` isn't responding", real_messages.NO_KUBELET, "restore or remove `n1`"],
    ),
    "23 a node dies before": (
        node_fails_early,
        NOW,
        ["Node `n1` isn't responding", real_messages.NO_KUBELET],
    ),
    "23 a node dies, unseen": (
        node_fails_unobserved,
        NOW,
        ["Node `n1` isn't responding", real_messages.NODE_NOT_READY],
    ),
}


@pytest.mark.parametrize("scenario", STORIES)
async def test_first_trial_problem_is_reported_in_time(redis, scenario):
    happens, due, expected = STORIES[scenario]
    gpus = 8 if happens is too_large else 1
    async with FailingTrials(
        redis, happens, sweep={"request": replace(REQUEST, gpus=gpus)}
    ).started() as simulation:
        await simulation.rounds(8)
        if due:
            assert await simulation.message() is None
            await simulation.after(due)
        reported = await simulation.message()
        assert reported is not None, simulation.texts()
        for part in expected:
            assert part in reported, reported
        assert sum(reported == each for each in simulation.slack.posted) == 1


async def test_pod_that_waits_two_seconds_for_a_finishing_one_is_not_reported(redis):
    async with FailingTrials(redis, unscheduled(real_messages.UNSCHEDULABLE)).started() as simulation:
        await simulation.rounds(8)
        simulation.happens = lambda simulation, pod: simulation.runs(pod)
        await simulation.after(2)
        assert (await simulation.record()).phase is Phase.RUNNING
        await simulation.after(MINUTE)
        assert await simulation.message() is None


async def test_cause_of_a_failed_only_trial_stands_once_and_notifies_once(redis):
    oom = ends(137, "OOMKilled")
    async with FailingTrials(
        redis, oom, sweep={"request": replace(REQUEST, trials=1)}
    ).started() as simulation:
        replies, broadcasts, reply = [], [], simulation.slack.reply

        async def noted(channel, thread, message, *, broadcast=False):
            replies.append(message)
            broadcasts.append(broadcast)
            return await reply(channel, thread, message, broadcast=broadcast)

        simulation.slack.reply = noted
        await simulation.rounds(12)
        assert (await simulation.record()).phase is Phase.FAILED
        cause = "Out of memory (RAM, not GPU): the node ran out"
        end = replies[-1]
        assert end.text.startswith(f":x: *<{simulation.last.permalink}|lr-brave-otter>* · {cause}")
        assert (broadcasts.count(True), broadcasts[-1]) == (1, False), "the owner knows from the first reply"
        [block] = end.blocks
        assert block["text"]["text"].endswith("|lr-brave-otter>* · Failed: 1 trial done (1 failed).")
        assert sum(cause in (each.text if each is not end else str(each.blocks)) for each in replies) == 1
