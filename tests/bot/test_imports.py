"""Each command imports only what it uses: a heavy package costs every start a second of CPU time."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {
    *("apscheduler", "google", "kubernetes", "matplotlib", "mlflow", "opentelemetry", "requests"),
    *("slack_bolt", "uvicorn"),
}
ROOMS = {
    "bot.sweep.builds.image_gc",
    "bot.operate.checks",
    "bot.serve_process",
    "bot.sweep.sweeps.reconciler",
    "bot.work_process",
}
HELP = "import runpy, sys; sys.argv = ['bot', 'plan', '--help']; runpy.run_module('bot', run_name='__main__')"


def imported(code):
    """Return which of the heavy packages and rooms a new process has imported at its end."""
    watch = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {code}"
    done = subprocess.run(
        [sys.executable, "-c", watch], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    modules = set(done.stderr.split())
    return {name for name in HEAVY | ROOMS | {"pydantic", "redis"} if name in modules}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (HELP, set()),
        ("import bot.offline_commands, bot.setup_command", {"pydantic"}),
        (
            "import bot.serve_process",
            {"bot.serve_process", "opentelemetry", "pydantic", "redis", "slack_bolt", "uvicorn"},
        ),
    ],
    ids=["plan --help", "plan and setup", "serve"],
)
def test_command_imports_no_heavy_package_that_it_does_not_use(code, expected):
    assert imported(code) == expected
