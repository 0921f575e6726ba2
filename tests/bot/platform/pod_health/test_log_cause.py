"""The line of a failed log that goes into the headline, for a table of logs in the forms seen in the wild.

`failure_logs.jsonl`: `id`, `kind`, `exit_code`, `log`, `cause` (what the headline must contain; empty if the
log names none), and `distractors` (what it must not contain).
"""

import json
import re
from collections import Counter
from pathlib import Path

from bot.platform.pod_health.log_cause import find_cause, quoted
from tests.cases import cases

LOGS = [json.loads(line) for line in Path(__file__).with_name("failure_logs.jsonl").read_text().splitlines()]


def verdict(case):
    named = find_cause(case["log"])
    if any(each in named.text for each in case["distractors"]):
        return "wrong"
    words, place = re.fullmatch(r"(.*?)(?: (\([\w/]+\.py:\d+\)))?", case["cause"]).groups("")
    if not named.text:
        return "missed" if words else "right"
    if not words:
        return "wrong"
    return "right" if words.rstrip(".") in named.text and place in named.text else "other"


def test_causes_are_those_that_a_person_would_quote():
    counts = {kind: Counter() for kind in dict.fromkeys(case["kind"] for case in LOGS)}
    not_right = {}
    for case in LOGS:
        found = verdict(case)
        counts[case["kind"]][found] += 1
        if found != "right":
            not_right[case["id"]] = find_cause(case["log"]).text
    for kind, each in counts.items():
        print(f"{kind:12}", *(f"{name} {each[name]:2}" for name in ("right", "other", "missed", "wrong")))
    assert len(LOGS) >= 40
    assert not_right == {}


@cases("case", LOGS)
def test_quoted_lines_contain_the_cause(case):
    named = find_cause(case["log"])
    shown = quoted(case["log"], named)
    assert len(shown.splitlines()) <= 20
    if named.text:
        assert case["log"].splitlines()[named.number] in shown


def test_long_cause_ends_after_a_sentence_or_is_cut_in_the_middle():
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. "
        + "GPU 0 is full of it " * 40
    )
    assert find_cause(oom).text == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB"
    log = "ERROR: No version satisfies numpy==99.0 (from versions: " + "1.26.4, " * 300 + "2.4.6)"
    [shown] = quoted(log, find_cause(log)).splitlines()
    assert (shown[:40], " … " in shown, shown[-6:]) == (log[:40], True, "2.4.6)")
    assert len(shown) < 450
