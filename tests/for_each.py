"""A table of cases as one test: each on its own would take pytest eight milliseconds more."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def for_each(
    names: str | Sequence[str], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Run a test without fixtures for each case, given as to `parametrize`, and report all that fail."""
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    rows = [case if len(arguments) > 1 else (case,) for case in cases]
    assert rows, "no cases"

    def decorated(test: Callable[..., None]) -> Callable[[], None]:
        def all_cases() -> None:
            failed: list[Exception] = []
            for row in rows:
                try:
                    test(**dict(zip(arguments, row, strict=True)))
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - reported below
                    found = error if isinstance(error, Exception) else AssertionError(str(error))
                    found.add_note(f"in the case {row!r}"[:1000])
                    failed.append(found.with_traceback(error.__traceback__))
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(rows)} cases failed", failed)

        all_cases.__name__, all_cases.__doc__, all_cases.__module__ = (
            test.__name__,
            test.__doc__,
            test.__module__,
        )
        return all_cases

    return decorated
