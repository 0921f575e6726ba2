"""Continue to scale a paused Deployment from someone else's number of replicas, by a button.

`serve` stores the click, which names that number, and the leader takes it at its next look.
"""

import logging
import re

from redis.exceptions import RedisError

from bot.core.commands import Action, Command, dump_command
from bot.platform.config.permissions import namespace_denial
from bot.platform.config.policy import Config
from bot.platform.runtime.audit import audit
from bot.platform.storage.sweeps import Store

RESUME = "resume_elastic"  # action id
VALUE = re.compile(r"([a-z0-9-]{1,63})/[a-z0-9.-]{1,253} [0-9]{1,10}")

log = logging.getLogger(__name__)


def value_of(key: str, found: int) -> str:
    """Return the button's value: the Deployment, and the number to continue from."""
    return f"{key} {found}"


def denial(value: str, user: str, config: Config) -> str:
    """Return why `user` can't resume it; "" if allowed. Logs it either way."""
    matched = VALUE.fullmatch(value)
    refusal = namespace_denial(user, matched[1], config) if matched else "The button is out of date."
    result = f"denied: {refusal}" if refusal else "allowed"
    audit.info("user=%s action=elastic_resume deployment=%s: %s", user, value if matched else "", result)
    return refusal


def request(value: str, user: str) -> tuple[str, str]:
    """Return where the leader looks for a click, and what it reads there."""
    return _mailbox(value), dump_command(Command(action=Action.RESUME, user=user, user_name=""))


async def take(store: Store, value: str) -> bool:
    """Return whether someone clicked, and forget it; False without Redis."""
    try:
        commands = await store.commands(_mailbox(value))
        await store.remove_commands(_mailbox(value), commands)
    except RedisError as error:
        log.warning("can't read clicks on Resume scaling: %s: %s", value, error)
        return False
    return bool(commands)


def _mailbox(value: str) -> str:
    return f"elastic/{value}"
