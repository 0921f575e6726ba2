"""docs/operate.md: the queries of the service levels use metrics that exist, and Prometheus accepts them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bot.core.metrics import REGISTRY
from bot.platform.storage import queue_state  # registers its metrics

TEXT = (Path(__file__).parents[2] / "docs/operate.md").read_text()
SECTION = TEXT.split("## Set service levels")[1].split("\n## ")[0]
QUERIES = re.findall(r"\| `(.*)` \|$", SECTION, re.MULTILINE)


def test_service_levels_use_existing_metrics() -> None:
    assert queue_state.REDIS_UP
    known = {sample.name for metric in REGISTRY.collect() for sample in metric.samples}
    known |= {f"{metric.name}_total" for metric in REGISTRY.collect() if metric.type == "counter"}
    known |= {f"{m.name}_{end}" for m in REGISTRY.collect() for end in ("bucket", "count")}
    used = {name for query in QUERIES for name in re.findall(r"sweepbot_\w+", query)}
    assert len(QUERIES) == 4
    assert used <= known


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool isn't installed (Debian: prometheus)")
def test_service_levels_are_accepted_by_prometheus(tmp_path: Path) -> None:
    rules = [f"  - {{record: 'level:{n}', expr: '{query}'}}" for n, query in enumerate(QUERIES)]
    (tmp_path / "rules.yaml").write_text("groups:\n- name: levels\n  rules:\n" + "\n".join(rules) + "\n")
    command = ["promtool", "check", "rules", str(tmp_path / "rules.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
