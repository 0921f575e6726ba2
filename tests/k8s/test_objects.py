"""Which recorded objects have not ended."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.objects import label_value, name, still_live
from tests.cases import cases
from tests.recordings.__init__ import body

HARD = "aZ09-_. /:\n\x00äß字\u202e😀"


@cases(
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


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (("build", "digits", "abc123"), "build-digits-abc123"),
        (("Vision Team",), "vision-team-4082fd2e"),
        (("naïve",), "na-ve-f86fd89d"),
        (("___",), "bda25155"),
    ],
)
def test_name_of_words_is_a_slug(words, made):
    assert name(*words) == made


@given(st.lists(st.text(HARD, min_size=1, max_size=90), min_size=1, max_size=3))
def test_name_is_a_dns_label(words):
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name(*words))


def test_names_with_a_long_common_prefix_stay_distinct():
    assert name("a" * 80 + "x") != name("a" * 80 + "y")
    assert len(name("a" * 80)) == 63


@given(st.text(HARD, max_size=200))
def test_label_value_is_valid(text):
    assert re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", label_value(text))
    assert len(label_value(text)) <= 63
