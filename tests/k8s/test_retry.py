"""A policy's delays stay within its bounds, however many calls failed."""

import pytest

from k8s.retry import Retry


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (Retry(base=2.0), {1: 2.0, 2: 2.0, 100_000: 2.0}),
        (Retry(base=1.0, factor=2, max=30.0), {1: 1.0, 2: 2.0, 5: 16.0, 6: 30.0, 1_100: 30.0, 100_000: 30.0}),
        (Retry(base=0.5, factor=10, max=7.0), {1: 0.5, 2: 5.0, 3: 7.0, 100_000: 7.0}),
    ],
    ids=["constant", "doubled up to a bound, also after a day of failures", "another factor"],
)
def test_retry_delay_grows_by_its_factor_up_to_its_bound(policy, delays):
    assert {failures: policy.seconds(failures) for failures in delays} == delays
    assert {failures: policy.delay(failures).total_seconds() for failures in delays} == delays


def test_retry_jitter_shortens_delays_by_up_to_its_share():
    delays = [Retry(base=10.0, jitter=0.2).seconds() for _ in range(200)]
    assert 8.0 <= min(delays) < 8.5
    assert 9.5 < max(delays) <= 10.0


@pytest.mark.parametrize(("attempts", "exhausted"), [(None, []), (2, [2, 3]), (0, [0, 1, 2, 3])])
def test_retry_gives_up_after_its_attempts(attempts, exhausted):
    policy = Retry(base=1.0, attempts=attempts)
    assert [failures for failures in range(4) if policy.exhausted(failures)] == exhausted
