"""Run checks of an installation: they are independent, each takes up to `CHECK_TIMEOUT` seconds, and one that
fails, or lacks a permission, is a finding.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from itertools import chain

from bot.core.errors import UserError
from bot.core.finding import Finding, broken, warning
from bot.operate.check_cluster import GRANT_READ
from k8s.api.errors import ApiError

CHECK_TIMEOUT = 20.0  # seconds for one check
API_FIX = "kubectl version  # check KUBECONFIG, or the pod's service account"

Findings = list[Finding]
Named = tuple[str, Awaitable[Findings]]  # a check with its name in a finding that it failed


async def run_all(checks: Iterable[Named], *, grant: str = GRANT_READ) -> Findings:
    """Return all findings, in the order of the checks. Raises nothing.

    Args:
        grant: the command that gives a missing permission; "" if there is none.
    """
    return [*chain(*await asyncio.gather(*(_checked(*each, grant) for each in checks)))]


async def _checked(name: str, check: Awaitable[Findings], grant: str) -> Findings:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            return await check
    except TimeoutError:
        return [broken(name, f"no answer within {CHECK_TIMEOUT:.0f} s", "")]
    except ApiError as error:
        if error.status == 403:
            return [warning(name, "unknown: no permission", grant)]
        return [warning(name, f"unknown: {error}", "")]
    except UserError as error:  # of a setting
        return [broken(name, str(error), "")]
    except Exception as error:  # noqa: BLE001 - every failure is a finding
        return [broken(name, f"{type(error).__name__}: {error}", "")]
