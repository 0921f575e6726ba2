"""The answer to `/sweep queue` with texts of others, and with many Workloads."""

from bot.platform.config.queues import QueuePolicy
from bot.sweep.answers.queue_job import MAX_TEXT, QueueView, queues_text
from k8s.kueue import Workload
from tests.bot.sweep.features.health import real_messages

EVIL = "<!channel> \u202e<https://evil.example|x>\nHeld: `root`"


def a_workload(number, **facts):
    name = f"job-{number}"
    return Workload(name=name, namespace="sweeps", job=name, job_uid=name, queue="q", gpus=1, **facts)


def shown(*workloads, order=None):
    view = QueueView(name="q", namespace="sweeps", workloads=workloads, cluster_queue="lab", order=order)
    return queues_text([view], [], QueuePolicy())


def test_texts_of_other_people_stay_on_their_line_and_mention_nothing():
    text = shown(a_workload(1, waits=EVIL, priority_class=EVIL, sweep=EVIL))
    assert len(text.splitlines()) == 2
    assert "<" not in text
    assert "\u202e" not in text


def test_many_workloads_fit_into_a_message_with_the_number_of_the_others():
    many = [a_workload(number, waits="x" * 500) for number in range(2_000)]
    text = shown(*many, order={each.name: 2 * number for number, each in enumerate(many[:1_000])})
    assert len(text) <= MAX_TEXT + 100
    head, first, second, *_, last = text.splitlines()
    assert head.endswith("2000 waiting")
    assert first.startswith("1. `job-0`, 1 GPU: ")
    assert second.startswith("2. `job-1`, 1 GPU (place 3 in ClusterQueue `lab`, behind 1 of other queues): ")
    assert last.startswith("… and ")


def test_workload_with_quota_waits_for_its_checks_ahead_of_the_queue():
    starting = a_workload(1, reserved=True, checks="machines are created")
    head, first, second = shown(a_workload(2), starting, order={"job-2": 0}).splitlines()
    assert head.endswith("0 running (0 GPUs), 2 waiting")
    assert first == "`job-1`, 1 GPU: has quota, but is waiting for machines: machines are created"
    assert second == "1. `job-2`, 1 GPU"
    assert shown(a_workload(1, reserved=True)).endswith("\n`job-1`, 1 GPU")


def test_trials_without_a_reason_of_their_own_wait_for_what_an_equal_one_waits_for():
    def waiting(number, words, **facts):
        return a_workload(number, waits=words, sweep="lr-brave-otter", **facts)

    both = [waiting(n, real_messages.BYPASSED, reason="WaitingForQuota") for n in (1, 3)]
    equal = [both[0], waiting(2, real_messages.NO_QUOTA), both[1], waiting(4, "")]
    [_, line] = shown(*equal).splitlines()
    assert line == "1 to 4. `lr-brave-otter`, 4 trials × 1 GPU: needs 2 more GPUs in gpu-a100"
    assert shown(*both).endswith(": needs more quota")
