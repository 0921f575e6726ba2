"""Many cases of a pure function in one test: a test of its own takes longer to collect than to run."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def cases(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, in one test. A failed case stops no other one, and each is named.

    Not for a test with fixtures, which the cases would share, or for a coroutine.
    """
    keys = (names,) if isinstance(names, str) else names
    given = [dict(zip(keys, (value,) if isinstance(names, str) else value, strict=True)) for value in values]

    def decorate(test: Test) -> Test:
        assert not inspect.iscoroutinefunction(test), "nothing would await it"

        @wraps(test)
        def with_all(**others: Any) -> None:
            failures = list[BaseException]()
            for case in given:
                try:
                    test(**others, **case)
                except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - any failed case
                    failure.add_note(f"in the case {case}")
                    failures.append(failure)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(given)} cases failed", failures)

        own = inspect.signature(test)
        others = [each for name, each in own.parameters.items() if name not in keys]
        with_all.__signature__ = own.replace(parameters=others)  # type: ignore[attr-defined]
        return with_all

    assert given, "no cases"
    return decorate
