"""The time of one step of .ci/run, from the trace that Bash writes."""

import subprocess

import pytest

from bench.suites import TRACED, seconds_of

TRACE = """+ 100.5 cd .
++ 100.6 command -v git
+ 101.25 make --jobs=2 check demo
+ 110.0 make test
+ 282.5 make slow
"""


def test_seconds_of_a_step_end_with_the_next_one():
    assert seconds_of("make test", TRACE) == 172.5


@pytest.mark.parametrize("step", ["make bench", "make slow"])
def test_seconds_of_a_step_without_an_end_are_an_error(step):
    with pytest.raises(RuntimeError, match=f"no step `{step}`"):
        seconds_of(step, TRACE)


def test_trace_of_a_script_has_its_steps_and_its_folder(tmp_path):
    (tmp_path / ".ci").mkdir()
    steps = 'set -euo pipefail\ncd "$(dirname "$0")/.."\npwd\nmake() { :; }\nmake test\nmake slow\n'
    (tmp_path / ".ci" / "run").write_text(steps)
    trace = tmp_path / "trace"
    command = ["bash", "-c", TRACED, ".ci/run", str(trace)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(tmp_path)
    assert 0 <= seconds_of("make test", trace.read_text()) < 60
