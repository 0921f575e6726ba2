"""Read untrusted TOML within limits: `tomllib` has none. Pure."""

import re
import tomllib
from typing import Any

from bot.core.errors import UserError

MAX_VALUES = 150_000  # 4 MiB of brackets become 90 MiB of lists; a uv.lock of 4 MiB has 130,000 values
# tomllib takes quadratic time in the number of dotted names; no tool writes ten.
_NAME = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
LONG_KEY = re.compile(rf"(?<![\w-]){_NAME}(?:[ \t]*+\.[ \t]*+{_NAME}){{20}}")


def toml(text: str, file: str) -> dict[str, Any]:
    """Parse TOML. Raises UserError if it is invalid, or larger or more nested than any tool writes."""
    if long := LONG_KEY.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise UserError(f"{file}:{line}: a key can have at most 20 names joined by dots.")
    if sum(map(text.count, "=,[{")) > MAX_VALUES:
        raise UserError(f"{file} can have at most {MAX_VALUES:,} values.")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{file}: lists or tables are nested too deeply.") from None
    except ValueError as error:  # also of a number with thousands of digits
        raise UserError(f"{file} is not valid TOML: {error}.") from None
