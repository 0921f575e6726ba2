"""Compute an environment's login: stored nowhere but in its Secret, which Sweepbot can't read. Pure."""

import hashlib
import hmac


def login(key: str, uid: str, start: int) -> str:
    """Return the login of this start of the environment with this uid.

    Args:
        key: SLACK_BOT_TOKEN, which all workers have. With another one, the login of a running environment
            can't be computed any more; a new start sets a new one.
    """
    return hmac.new(key.encode(), f"environment {uid} {start}".encode(), hashlib.sha256).hexdigest()[:40]
