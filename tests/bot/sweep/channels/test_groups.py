"""How often Slack is asked who is in a user group."""

from bot.platform.config.policy import Config
from bot.platform.config.teams import Team
from bot.sweep.channels.groups import changed_groups
from bot.sweep.channels.models import Group, Setup

CONFIG = Config(repositories=(), teams=(Team(name="see", members=("S11",)),))


class Slack:
    async def group_members(self, group: str) -> tuple[str, ...]:
        assert group == "S11"
        return ("U22",)


async def test_change_that_could_not_be_stored_is_found_again_in_a_minute(redis):
    known = Setup(groups={"S11": Group(members=("U22", "U33"))})
    left = Group(members=("U22",))
    assert await changed_groups(CONFIG, known, Slack(), redis) == {"S11": left}
    assert 0 < await redis.ttl("sweepbot:group:S11") <= 60
    await redis.delete("sweepbot:group:S11")  # the minute is over, and the API server didn't answer
    assert await changed_groups(CONFIG, known, Slack(), redis) == {"S11": left}
    await redis.delete("sweepbot:group:S11")
    assert await changed_groups(CONFIG, Setup(groups={"S11": left}), Slack(), redis) == {}
    assert 540 < await redis.ttl("sweepbot:group:S11") <= 600
