"""The same limits, counted once for all control planes: in Redis, by its own clock, in one atomic step. Its one door.

Where Redis does not answer, each control plane counts for itself until it is back: nobody is shut out, and nobody is
let through without bound.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from agentflow.clock import Clock
from agentflow.limits import REDIS_ANSWER_S, REDIS_RETRY_S
from control_plane.identity.rates import LocalRates, Rate, Standing, TooOften, scarcer

_log = structlog.get_logger(__name__)

# `rates.asked` for each key, and only if all of them have room. Times are microseconds, so that they are exact.
# Never more than a burst ahead of now is written here: what is further ahead is somebody else's, and shuts nobody out.
_TAKE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local told, refused = {}, false
for i, key in ipairs(KEYS) do
  local burst, cost = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local paid = tonumber(redis.call('GET', key) or '0')
  if paid > now + burst * cost then paid = 0 end
  local after = math.max(paid, now) + cost
  local room = now + burst * cost - after
  if room < 0 then refused = true end
  told[#told + 1] = room
  told[#told + 1] = room < 0 and math.max(0, paid - now) or after - now
  told[#told + 1] = after
end
if not refused then
  for i, key in ipairs(KEYS) do
    redis.call('SET', key, string.format('%.0f', told[3 * i]), 'PX', math.ceil((told[3 * i] - now) / 1000) + 1)
  end
end
return told
"""


class RedisRates:
    def __init__(self, redis: "Redis", clock: Clock, *, tenant: Rate | None, user: Rate | None) -> None:
        self._take = redis.register_script(_TAKE)
        self._clock = clock
        self._tenant = tenant
        self._user = user
        self._meanwhile = LocalRates(clock, tenant=tenant, user=user)
        self._away_until_s = 0.0

    async def take(self, tenant: str, user: str) -> Standing | None:
        rates = [
            (rate, f"agentflow:rate:{name}")
            for rate, name in ((self._tenant, f"tenant:{tenant}"), (self._user, f"user:{tenant}/{user}"))
            if rate is not None
        ]
        if not rates or self._clock.monotonic_s() < self._away_until_s:
            return await self._meanwhile.take(tenant, user)
        arguments = [part for rate, _ in rates for part in (rate.burst, round(1e6 / rate.per_s))]
        try:
            answer: list[Any] = await self._take(keys=[key for _, key in rates], args=arguments)
        except (RedisError, OSError, TimeoutError) as error:
            _log.warning("rates.redis_away", reason=type(error).__name__)
            self._away_until_s = self._clock.monotonic_s() + REDIS_RETRY_S
            return await self._meanwhile.take(tenant, user)
        told: Standing | None = None
        for (rate, _), room, reset in zip(rates, answer[0::3], answer[1::3], strict=True):
            cost = round(1e6 / rate.per_s)
            standing = Standing(rate.burst, max(0, int(room // cost)), reset / 1e6, wait_s=max(0.0, -room / 1e6))
            told = standing if told is None else scarcer(told, standing)
        if told is not None and told.wait_s > 0:
            raise TooOften(told)
        return told


@asynccontextmanager
async def redis_rates(url: str, clock: Clock, *, tenant: Rate | None, user: Rate | None) -> AsyncIterator[RedisRates]:
    redis = Redis.from_url(
        url,
        socket_timeout=REDIS_ANSWER_S,
        socket_connect_timeout=REDIS_ANSWER_S,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        yield RedisRates(redis, clock, tenant=tenant, user=user)
    finally:
        await redis.aclose()
