"""Ask Slack who is in the user groups that `members` of teams name."""

import logging
from datetime import timedelta

import aiohttp
from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.platform.config.policy import Config
from bot.platform.config.value_types import GROUP
from bot.platform.slack.client import Slack, error_code
from bot.sweep.channels.models import Group, Setup

log = logging.getLogger(__name__)

REFRESHED, RETRIED = timedelta(minutes=10), timedelta(minutes=1)  # Slack allows 20 calls per minute


async def changed_groups(config: Config, setup: Setup, slack: Slack, redis: Redis) -> dict[str, Group]:
    """Return the groups whose members have changed. Raises RedisError.

    One worker asks for a group, every 10 minutes, and a minute after a change. While Slack doesn't answer,
    the last known members stay.
    """
    found = dict[str, Group]()
    for group in filter(GROUP.fullmatch, (each for team in config.teams for each in team.members)):
        key = f"sweepbot:group:{group}{'' if group in setup.groups else ':unknown'}"
        if not await redis.set(key, "1", nx=True, ex=RETRIED):
            continue
        try:
            members = await slack.group_members(group)
        except (SlackApiError, aiohttp.ClientError, OSError) as error:
            why = error_code(error) if isinstance(error, SlackApiError) else str(error)
            log.warning("can't read the members of user group %s: %s", group, why)
            continue
        if not members:
            log.warning("user group %s of a team has no members, or doesn't exist", group)
        if setup.groups.get(group) == Group(members=members):
            await redis.expire(key, REFRESHED)
        else:  # asked again in a minute: the caller's write can fail
            found[group] = Group(members=members)
    return found
