"""Rate limiter for Slack calls (posts by channel, edits by app), shared by all workers through Redis.

Slack accepts about one message per second in a channel, shows "high volume of activity" above that, and
accepts about 50 edits per minute from an app. A caller that must wait gets a reserved time and retries then.
"""

from dataclasses import dataclass

from redis.asyncio import Redis

# KEYS: the line (calls that share a limit), the caller's reservation, which expires 1 min after its time, and
# the end of the line's last hold: a place before it is lost.
_TAKE = """
local time = redis.call('TIME')
local now, gap, burst = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[1]), tonumber(ARGV[2])
local place, held = tonumber(redis.call('GET', KEYS[2])), tonumber(redis.call('GET', KEYS[3]) or 0)
if place and place <= held then place = nil end
if place and place > now then return place - now end
if place then
  redis.call('DEL', KEYS[2])
  return 0
end
local last = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now - gap * burst)
local turn = last + gap
redis.call('SET', KEYS[1], turn, 'PX', gap * burst + math.max(turn - now, 0) + 1000)
if turn <= now then return 0 end
redis.call('SET', KEYS[2], turn, 'PX', turn - now + 60000)
return turn - now
"""

# KEYS: the line. Returns the milliseconds until half of its calls without a gap are left.
_HALF = """
local time = redis.call('TIME')
local now, gap, burst = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[1]), tonumber(ARGV[2])
return math.max(tonumber(redis.call('GET', KEYS[1]) or 0) + gap * math.ceil(burst / 2) - now, 0)
"""

_HOLD = """
local time = redis.call('TIME')
local now, pause = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[1])
local last = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now + pause)
redis.call('SET', KEYS[1], last, 'PX', last - now + 1000)
redis.call('SET', KEYS[2], now + pause, 'PX', pause + 60000)
"""


@dataclass(frozen=True)
class Rate:
    gap: float  # seconds between calls
    burst: int  # calls without a gap after a pause


POSTS = Rate(gap=1.05, burst=4)  # per channel
EDITS = Rate(gap=1.25, burst=20)  # per app


class RateLimiter:
    """Methods raise redis.exceptions.RedisError when Redis can't be reached."""

    def __init__(self, redis: Redis) -> None:
        self._take = redis.register_script(_TAKE)
        self._half = redis.register_script(_HALF)
        self._hold = redis.register_script(_HOLD)

    async def wait(self, line: str, who: str, rate: Rate) -> float:
        """Return the seconds until `who` can call; 0: now, and the call counts.

        Args:
            line: calls that share a limit, such as the posts in one channel.
        """
        keys = [f"sweepbot:pace:{line}", f"sweepbot:pace:{line}:{who}", f"sweepbot:held:{line}"]
        return float(await self._take(keys, [round(rate.gap * 1000), rate.burst])) / 1000

    async def until_half_free(self, line: str, rate: Rate) -> float:
        """Return the seconds until half of the calls without a gap are left, if no other one comes.

        Others then hardly wait for one more.
        """
        keys = [f"sweepbot:pace:{line}"]
        return float(await self._half(keys, [round(rate.gap * 1000), rate.burst])) / 1000

    async def hold(self, line: str, seconds: float) -> None:
        """Block a line for Slack's Retry-After; other lines continue."""
        await self._hold([f"sweepbot:pace:{line}", f"sweepbot:held:{line}"], [round(seconds * 1000)])
