"""Each command imports only what it uses: a heavy package costs every start a second of CPU time."""

import subprocess
import sys
from pathlib import Path

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
# What each command imports beyond those above it, in one process.
COMMANDS = {
    "plan --help": (
        "sys.argv = ['bot', 'plan', '--help']; runpy.run_module('bot', run_name='__main__')",
        set(),
    ),
    "plan and setup": ("import bot.offline_commands, bot.setup_command", {"pydantic"}),
    "serve": (
        "import bot.serve_process",
        {"bot.serve_process", "opentelemetry", "redis", "slack_bolt", "uvicorn"},
    ),
}
WATCHED = """
import runpy, sys

for code in sys.argv[1:]:
    try:
        exec(code)
    except SystemExit:
        pass
    print(*sys.modules, file=sys.stderr)
"""


def test_commands_import_no_heavy_package_that_they_do_not_use():
    command = [sys.executable, "-c", WATCHED, *(code for code, _ in COMMANDS.values())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    before, imported = set(), {}
    for command, line in zip(COMMANDS, done.stderr.splitlines(), strict=True):
        found = {*line.split()} & (HEAVY | ROOMS | {"pydantic", "redis"})
        imported[command], before = found - before, found
    assert imported == {command: expected for command, (_, expected) in COMMANDS.items()}
