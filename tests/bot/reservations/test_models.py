"""How many placeholders hold what is reserved."""

from dataclasses import replace
from datetime import timedelta

from bot.reservations.models import Reservation, needed
from k8s.kueue import Workload
from tests.bot.factories import NOW

FIRST = Reservation(
    id="vision-1",
    team="vision",
    gpus=4,
    until=NOW + timedelta(days=1),
    by="U1",
    namespace="sweeps",
    queue="research",
    created=NOW,
)
SECOND = replace(FIRST, id="vision-2", until=NOW + timedelta(days=2))


def used(gpus, queue="research", job="trial"):
    return Workload(name=job, namespace="sweeps", job=job, job_uid="", queue=queue, gpus=gpus, admitted=True)


def test_trials_count_once_toward_the_reservations_of_their_queue():
    assert needed([FIRST, SECOND], [used(3), used(3)]) == {"vision-1": 0, "vision-2": 2}
    assert needed([FIRST, SECOND], [used(8)]) == {"vision-1": 0, "vision-2": 0}


def test_trials_of_another_queue_and_placeholders_do_not_count():
    others = [used(3, queue="urgent"), used(3, job="sweepbot-reserved-vision-1-0")]
    assert needed([FIRST, SECOND], others) == {"vision-1": 4, "vision-2": 4}
