"""The benchmark's table: what counts as a goal met, and what a failing group does."""

import json
import subprocess
from functools import partial

import pytest

import bench.__main__ as command
from bench import commits, document, table
from bench.document import BEGIN, END
from bench.table import Row, bounded, compared, interleaved, part, spread, summary


def test_compared_takes_the_median_ratio_of_rounds_on_a_drifting_machine():
    row = compared("ack", "Bolt", [1.0, 10.0, 3.0], [2.0, 20.0, 5.0], unit="ms", at_most=0.5)
    assert (row.ratio, row.goal, row.met) == (0.5, "at most 0.5x", True)
    assert row.measured == "3 ms (1-10) vs 5 ms (2-20)"
    assert row.samples == {"ours": [1.0, 10.0, 3.0], "theirs": [2.0, 20.0, 5.0]}


@pytest.mark.parametrize(
    ("goal", "met"),
    [({"at_most": 0.4}, False), ({"at_least": 0.6}, False), ({"at_least": 0.5}, True), ({}, None)],
)
def test_compared_with_a_goal_reports_whether_it_is_met(goal, met):
    assert compared("enqueue", "raw", [1.0], [2.0], unit="s", **goal).met is met


def test_bounded_figures_over_the_limit_miss_it():
    assert [bounded("p99", [310.0], unit="ms", at_most=limit).met for limit in (300, 310)] == [False, True]


def test_spread_of_equal_figures_has_no_range():
    assert (spread([1234.5], "MB"), spread([2, 2], "s")) == ("1,234 MB", "2 s")


def test_summary_counts_only_rows_with_a_goal():
    rows = [Row(what="a", against="b", measured="c", met=met) for met in (True, False, None)]
    assert summary(rows) == "goals met 1 of 2"


async def test_interleaved_alternates_and_drops_the_first_round():
    calls = []

    def measure(name):
        async def run():
            calls.append(name)
            return len(calls)

        return run

    ours, theirs = await interleaved(2, measure("a"), measure("b"))
    assert "".join(calls) == "baabba"
    assert (ours, theirs) == ([3, 6], [4, 5])


def test_failed_group_misses_its_goal_and_hides_no_other(monkeypatch, tmp_path, capsys):
    async def fine():
        return [bounded("fine", [1.0], unit="s", at_most=2)]

    async def broken():
        raise ExceptionGroup("children", [TimeoutError(), RuntimeError("no peer")])

    groups = {"bench.fine": fine, "bench.broken": broken}
    monkeypatch.setattr(command, "GROUPS", ("broken", "fine"))
    monkeypatch.setattr(command, "import_module", lambda name: type("Group", (), {"run": groups[name]}))
    monkeypatch.setattr(command.commits, "measured_commit", lambda: "HEAD")
    monkeypatch.setattr(command.commits, "measured_code", lambda group: f"code of {group}")
    monkeypatch.setattr(command.document, "measured_code", {"fine": "code of fine"}.get)
    monkeypatch.setattr(command, "write", partial(table.write, folder=tmp_path))
    monkeypatch.setattr(command.document, "RESULTS", tmp_path)
    page = tmp_path / "RESULTS.md"
    monkeypatch.setattr(command.document, "DOCUMENT", page)
    page.write_text(f"before {BEGIN} old {END} after")
    monkeypatch.setattr(command, "NAMED", ("never ran",))
    monkeypatch.setattr(command, "ALL", ("broken", "fine", "never ran"))
    monkeypatch.setattr("sys.argv", ["bench"])
    assert command.main() == 1
    printed = capsys.readouterr().out.splitlines()
    assert "failed: TimeoutError" in printed[1]
    assert "not measured: run make bench GROUP=never ran" in printed[3]
    assert [line.partition(":")[0] for line in printed[4:6]] == ["- `broken`", "- `fine`"]
    assert [line.split(": ")[:2] for line in printed if "changed since" in line] == [["outdated", "broken"]]
    assert printed[-1] == "goals met 1 of 2"
    kept = json.loads((tmp_path / "fine.json").read_text())
    assert {"date", "seconds", "machine", "versions"} < kept.keys()
    assert (kept["machine"]["commit"], kept["machine"]["code"]) == ("HEAD", "code of fine")
    assert kept["rows"][0]["samples"] == {"ours": [1.0]}
    written = page.read_text()
    assert "| fine |  | 1 s |  | at most 2 s | yes |" in written
    assert (written.startswith(f"before {BEGIN}\n\nGoals met 1 of 2."), "old" in written) == (True, False)
    assert written.endswith(f"{END} after")


def test_results_name_a_commit_and_the_code_that_they_measured(monkeypatch, tmp_path):
    def git(*arguments):
        author = ("-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *author, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(commits, "ROOT", tmp_path)
    for name in ("search/ask.py", "bench/results/search.json", "bot.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    commit, code = commits.measured_commit(), commits.measured_code("search")
    (tmp_path / "bench/results/search.json").write_text("written by a run")
    (tmp_path / "bot.py").write_text("2")
    with pytest.raises(RuntimeError, match=r"commit first, .* M bot\.py$"):
        commits.measured_commit()
    git("commit", "-qam", "second")
    assert (commits.measured_commit() != commit, commits.measured_code("search")) == (True, code)
    (tmp_path / "search/ask.py").write_text("2")
    git("commit", "-qam", "third")
    assert commits.measured_code("search") != code
    assert commits.MEASURED.keys() == set(command.ALL)


def test_document_has_the_results_of_the_last_runs():
    """`make bench` writes them."""
    assert document.results(command.ALL) in document.DOCUMENT.read_text()


async def test_part_that_fails_is_a_missed_goal_that_says_why() -> None:
    async def broken() -> list[Row]:
        raise TimeoutError("no line in 120 s")

    [row] = await part("queue", broken())
    assert (row.what, row.measured, row.met) == ("queue", "failed: TimeoutError: no line in 120 s", False)
