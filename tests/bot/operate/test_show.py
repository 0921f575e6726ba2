"""Findings in a terminal, as JSON, and in Slack, where errors come first and no entry is cut."""

import json

from bot.core.finding import broken, ok, warning
from bot.operate.findings import MAX_SLACK, findings_json, findings_lines, findings_mrkdwn
from bot.operate.show import lines_mrkdwn

FOUND = [ok("Redis", "7.4"), warning("DNS", "3 of 5", "getent hosts x"), broken("MLflow", "<down>", "curl x")]


def test_text_lists_findings_with_commands_and_counts_last():
    assert findings_lines(FOUND).splitlines() == [
        "ok       Redis: 7.4",
        "warning  DNS: 3 of 5",
        "           getent hosts x",
        "broken   MLflow: <down>",
        "           curl x",
        "1 broken, 1 warning, 1 ok",
    ]


def test_json_has_the_same_findings():
    assert json.loads(findings_json(FOUND))[2] == {
        "check": "MLflow",
        "level": "broken",
        "found": "<down>",
        "fix": "curl x",
    }


def test_slack_message_puts_errors_first_and_ok_in_one_line():
    _, *lines = findings_mrkdwn(FOUND).splitlines()
    assert lines == [
        ":x: *MLflow*: &lt;down&gt;",
        "        `curl x`",
        ":warning: *DNS*: 3 of 5",
        "        `getent hosts x`",
        ":white_check_mark: Redis",
    ]


def test_long_message_is_cut_between_findings():
    many = [broken(f"check {number}", "x" * 300, "y" * 100) for number in range(30)]
    text = findings_mrkdwn(many)
    assert len(text) < MAX_SLACK + 100
    assert text.endswith("… and 22 more: run `sweepbot doctor` for all.")


def test_long_list_in_slack_keeps_its_beginning_where_trouble_is():
    lines = ["9 unfinished sweeps.", *(f"lr-{number:03}  running  {'x' * 60}" for number in range(99))]
    shown = lines_mrkdwn(lines)
    assert "lr-000 " in shown
    assert "lr-098 " not in shown
    assert "more" in shown.splitlines()[-2]
