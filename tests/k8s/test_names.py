"""Any text becomes a valid name; shortened names stay distinct."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.names import label_value, name


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


@given(st.lists(st.text(min_size=1, max_size=90), min_size=1, max_size=3))
def test_name_is_a_dns_label(words):
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name(*words))


def test_names_with_a_long_common_prefix_stay_distinct():
    assert name("a" * 80 + "x") != name("a" * 80 + "y")


@given(st.text(max_size=200))
def test_label_value_is_valid(text):
    assert re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", label_value(text))
    assert len(label_value(text)) <= 63
