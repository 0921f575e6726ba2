"""Sample the moments at which something fails: every run has others, and `make crashes` has all."""

import os
import secrets


def sample(moments: range, *, every: int) -> range:
    """Return each of the moments at this distance, or at CRASH_EVERY; at least one."""
    distance = int(os.environ.get("CRASH_EVERY", every))
    return moments[secrets.randbelow(min(distance, len(moments))) :: distance]
