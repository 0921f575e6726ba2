"""What builds cost, by counting: the promises that do not depend on a machine.

Against Debian's docker-registry where it is installed, or else the local world's.
"""

import pytest

from bench import distribution
from bench.builds import measure

pytestmark = pytest.mark.slow


async def test_build_after_a_code_change_pushes_almost_nothing(tmp_path, mlflow_url):
    costs = await measure(tmp_path, mlflow_url, real=distribution.is_installed())
    first, same, code, dependencies = costs
    assert (first.jobs, first.pushed > 1_000_000) == (2, True)
    assert (same.jobs, same.requests, same.pushed, same.pulled) == (0, 1, 0, 0)
    assert code.jobs == 1
    assert code.pushed <= 2 * code.changed + 10_000
    assert code.pulled <= 10_000, "two manifests and two configs, no layer"
    assert code.requests <= 25
    assert dependencies.jobs == 2
