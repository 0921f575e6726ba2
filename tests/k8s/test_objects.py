"""Which recorded objects have not ended."""

import pytest

from k8s.objects import still_live
from tests.recordings.__init__ import body


@pytest.mark.parametrize(
    ("recording", "lives"),
    [
        ("04-pod-pending-fresh", True),
        ("04-pod-running", True),
        ("07-pod-terminating", True),
        ("04-pod-oomkilled", False),
        ("05-pod-succeeded", False),
        ("04-job-running", True),
        ("04-job-failed", False),
        ("05-job-complete", False),
        ("14-experiment-backoff6-still-running", True),
        ("13-experiment-final", False),
        ("15-experiment-failed", False),
    ],
)
def test_is_active_until_finished(recording, lives):
    assert still_live(body(recording)) is lives
