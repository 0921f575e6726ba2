"""Slack mrkdwn on a terminal."""

import shlex

import pytest

from bot.text.terminal import as_shown, typed, without_markup
from tests.cases import cases


@cases(
    ("mrkdwn", "shown"),
    [
        ("No access. *Fix:* Set KUBECONFIG.", "No access. Fix: Set KUBECONFIG."),
        ("`kubectl get pods`; `sweepbot doctor`", "kubectl get pods; sweepbot doctor"),
        ("See <https://x.example/a|the run>.", "See the run (https://x.example/a)."),
        ("See <https://x.example/a>.", "See https://x.example/a."),
        ("cpu &lt; 4 &amp; free", "cpu < 4 & free"),
        ("0 3 * * * and 2*3*4 and **kw", "0 3 * * * and 2*3*4 and **kw"),
        ("&amp;lt; &#10; &copy;", "&lt; &#10; &copy;"),
        ("got \x1b[31mred\x1b[0m\u202e", "got  [31mred [0m "),
        ("two\nlines", "two\nlines"),
    ],
)
def test_without_markup_returns_plain_text(mrkdwn, shown):
    assert without_markup(mrkdwn) == shown


def test_as_shown_keeps_lines_between_an_unfinished_title_and_a_later_bell():
    assert as_shown("begin \x1b]0;lost\nRuntimeError: boom\ndone\x07") == (
        "begin \x1b]0;lost\nRuntimeError: boom\ndone\x07"
    )


@pytest.mark.parametrize(
    "value", ['python t.py --x "a;b"', "sh -c 'echo \"$A\"'", "a b", "two\nlines", "plain", ""]
)
def test_values_of_a_shell_arrive_as_they_were_given(value):
    text = typed(["branch=main", f"cmd={value}", "gpus=2"])
    assert shlex.split(text) == ["branch=main", f"cmd={value}", "gpus=2"]
