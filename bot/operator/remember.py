"""Store the failed calls of each work item's run, which `inspect` and `ps` show."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from redis.exceptions import RedisError

from bot.core.calls import MAX_ERROR, Failures, remembering_failures
from bot.core.errors import RetryAfterError
from bot.storage.last_errors import LastErrors
from bot.storage.work_queue import Lease
from bot.text.masking import Mask

log = logging.getLogger(__name__)

Handler = Callable[[Lease], Awaitable[timedelta | None]]


def remembering(handler: Handler, errors: LastErrors, mask: Mask, now: Callable[[], datetime]) -> Handler:
    """Return the handler with its failures stored; a run without any costs no call."""

    async def handle(lease: Lease) -> timedelta | None:
        with remembering_failures() as failures:
            try:
                return await handler(lease)
            except RetryAfterError:
                raise
            except Exception as error:
                _add(failures, error)
                raise
            finally:
                if failures:
                    await _save(str(lease.item), failures)

    async def _save(item: str, failures: Failures) -> None:
        try:
            await errors.save(item, {service: mask(text) for service, text in failures.items()}, now())
        except RedisError as error:
            log.debug("can't store the last errors of %s: %s", item, error)

    return handle


def _add(failures: Failures, error: Exception) -> None:
    """Add an error that isn't a failed call's: a bug, or a rejected save."""
    text = " ".join((str(error) or type(error).__name__)[:MAX_ERROR].split())
    if not any(text in known or known in text for known in failures.values()):
        failures["work"] = text
