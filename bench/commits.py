"""Which commit a result is of, and whether the code that it measures has changed since.

A commit's name is lost when commits are put together. So a result also has a hash of the measured files.
"""

import hashlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
WRITTEN = ("bench/results", "bench/RESULTS.md")  # by a run itself
SERVE = ("handlers", "bot/app.py", "bot/serve_process.py", "bot/core", "bot/platform", "bot/sweep/launch")
WORK = ("bot/app.py", "bot/work_process.py", "bot/worker.py", "bot/core", "bot/platform", "bot/sweep", "k8s")
# The code that each group measures, beside its own module. When that has changed, its rows are outdated.
MEASURED: dict[str, tuple[str, ...]] = {
    "ack": (*SERVE, "bench/bolt_app.py", "bot/sweep/sweeps/unconfirmed.py"),
    "ack_file": (*SERVE, "bench/ack.py", "bot/sweep/sweeps/unconfirmed.py"),
    "words": (*SERVE, "bot/sweep/answers"),
    "queue": ("bot/worker.py", "bot/platform/storage/work_queue.py", "bot/platform/storage/queue_scripts.py"),
    "reaction": WORK,
    "launch": (*SERVE, *WORK),
    "environment_start": (*SERVE, "bot/worker.py", "bot/workspaces/environments", "k8s"),
    "counts": (*WORK, "bench/real_sweeps.py", "tests/scenarios/counted_sweep.py"),
    "burst": (*SERVE, *WORK, "bench/real_sweeps.py", "local/slack"),
    "start": (*SERVE, "bench/bolt_app.py", "pyproject.toml"),
    "gpus": ("bot/measure/gpus", "bot/measure/sources", "bot/watch/digests", "bench/gpu_history.py"),
    "scale": (*WORK, "bot/measure", "bench/scale_cluster.py"),
    "workers": (*WORK, "bench/scale.py", "bench/scale_cluster.py"),
    "between": (*WORK, "bench/real_sweeps.py", "local/katib", "local/kubernetes"),
    "idle": (*SERVE, *WORK, "bot/measure", "bot/watch", "bench/real_sweeps.py"),
    "early_stopping": ("bot/core/stopping.py", "bot/sweep/spaces/early_stopping.py", "bench/curves"),
    "search": ("search",),
    "warm_start": ("search",),
    "branches": ("search/pairs.py", "bot/sweep/launch/branches.py", "bot/sweep/results/pairs.py"),
    "katib_search": ("search", "bench/warm_start.py", "bench/peers/katib_search.py"),
    "suites": (*WORK, *SERVE, "search", "reader", "local", "tests"),
}


def measured_commit() -> str:
    """Return the commit that has the code as it is. Raises RuntimeError if none has."""
    unwanted = [f":(exclude){path}" for path in WRITTEN]
    if changed := _git("status", "--porcelain", "--", ".", *unwanted).splitlines():
        raise RuntimeError(f"commit first, so that results name their code: {', '.join(changed)[:300]}")
    return _git("rev-parse", "--short=12", "HEAD").strip()


def measured_code(group: str) -> str:
    """Return a hash of the committed files that the group measures."""
    paths = f"bench/{group}.py", *MEASURED.get(group, ())
    return hashlib.sha256(_git("ls-tree", "-r", "HEAD", "--", *paths).encode()).hexdigest()[:12]


def _git(*arguments: str) -> str:
    """Raises RuntimeError with git's own words if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout
