"""Decide when a sweep's owner sees errors of other systems that are retried (git, a registry, the cluster),
their words, and after how long a new sweep is refused.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from aiohttp import ClientError
from redis.exceptions import RedisError
from slack_sdk.errors import SlackApiError

from bot.core.record import Phase, SweepRecord
from bot.platform.registry.auth import RegistryError
from bot.platform.registry.client import UnknownHostError
from bot.platform.repos.git_commands import GitUnavailableError
from bot.platform.slack.client import SlackBusyError
from bot.platform.storage.sweeps import StaleRecordError
from bot.platform.storage.work_queue import LeaseLostError
from bot.sweep.lifecycle.trouble import report_trouble, report_unavailable
from bot.text.masking import Mask
from k8s.api.errors import ApiError, UnreachableError

# Of a git host or registry that keeps failing, or missing rights in the cluster; then the sweep is refused.
PLAN_TIMEOUT = timedelta(minutes=2)
# Errors of other systems, which a retry can fix. Any other is a bug and would repeat.
TRANSIENT_ERRORS = (
    ApiError,
    UnreachableError,
    RegistryError,
    GitUnavailableError,
    SlackApiError,
    SlackBusyError,
    ClientError,
    OSError,
    RedisError,
    StaleRecordError,
    LeaseLostError,
)
REPORTED_AFTER = 4  # failures in a row, 15 s and the time of five attempts, before an error is reported
PLAN_REPORTED_AFTER = 1  # while a sweep is planned: one attempt of git can take half a minute
PLANNED_FOR = f" for {PLAN_TIMEOUT // timedelta(minutes=1)} min, then refuses the sweep"


def report_error(
    sweep: SweepRecord, error: Exception, failures: int, mask: Mask, now: datetime
) -> SweepRecord:
    """Return the record with an error that lasts reported, once per phase.

    `failures`: in a row, before this one.
    """
    is_service = isinstance(error, RegistryError | GitUnavailableError)
    planned = is_service and sweep.phase is Phase.RECEIVED
    if planned or (isinstance(error, ApiError) and error.denied):
        sweep = replace(sweep, outage=replace(sweep.outage, since=sweep.outage.since or now))
    if failures < (PLAN_REPORTED_AFTER if planned else REPORTED_AFTER):
        return sweep
    if isinstance(error, RegistryError | GitUnavailableError):
        retries = f"Sweepbot retries{PLANNED_FOR if planned else ''}."
        return report_unavailable(sweep, mask(f"{unavailable_text(error)} {retries}{fix(error)}"))
    if isinstance(error, TRANSIENT_ERRORS):
        return report_trouble(sweep, mask(str(error) or type(error).__name__))
    return sweep


def is_final(error: ApiError, sweep: SweepRecord, now: datetime) -> bool:
    """Return whether the cluster rejects for good what this sweep needs."""
    return error.permanent and not (error.denied and now - (sweep.outage.since or now) < PLAN_TIMEOUT)


def refusal(error: RegistryError | GitUnavailableError) -> str:
    """Return why a sweep can't be planned, once Sweepbot stops retrying."""
    return f"{unavailable_text(error)}{fix(error) or ' *Fix:* Run the command again later.'}"


def unavailable_text(error: RegistryError | GitUnavailableError) -> str:
    """Return which service can't be reached, and why, as a sentence."""
    why = str(error).strip().rstrip(".")
    if isinstance(error, GitUnavailableError):
        return f"The git server can't be reached: {why}."
    return f"{why[:1].upper()}{why[1:]}."


def fix(error: Exception) -> str:
    """Return what the owner of the sweep can check, for a host name that is probably misspelled."""
    given = error.given if isinstance(error, UnknownHostError) else ""
    return f" *Fix:* Check the host name in `{given}`." if given else ""
