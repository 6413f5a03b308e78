"""How often may be asked: the arithmetic, and the same limits in this process and in Redis, exact under a crowd."""

import asyncio
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from agentflow.clock import ControlledClock, SystemClock
from control_plane.identity.rates import LocalRates, Rate, Standing, TooOften, asked
from control_plane.identity.rates_redis import redis_rates

CLIENTS = 8


async def let_through(rates, times, *, tenant="acme", user="mara"):
    passed = 0
    for _ in range(times):
        try:
            await rates.take(tenant, user)
        except TooOften:
            continue
        passed += 1
    return passed


async def crowd(rates, each, **who):
    return sum(await asyncio.gather(*(let_through(rates, each, **who) for _ in range(CLIENTS))))


async def test_a_burst_is_let_through_to_the_last_one_and_comes_back_at_the_sustained_rate():
    clock = ControlledClock()
    rates = LocalRates(clock, tenant=Rate(10, 2.0), user=None)

    assert await let_through(rates, 50) == 10
    await clock.advance(1.5)
    assert await let_through(rates, 50) == 3
    await clock.advance(3600)
    assert await let_through(rates, 50) == 10


async def test_a_tenant_and_each_of_its_users_have_limits_of_their_own():
    rates = LocalRates(ControlledClock(), tenant=Rate(15, 1.0), user=Rate(10, 1.0))

    assert await let_through(rates, 50, user="mara") == 10
    assert await let_through(rates, 50, user="noor") == 5  # what mara was refused cost the tenant nothing
    assert await let_through(rates, 50, tenant="other") == 10


async def test_who_is_refused_is_told_when_to_come_back_and_then_gets_in():
    clock = ControlledClock()
    rates = LocalRates(clock, tenant=Rate(2, 0.5), user=None)
    first = await rates.take("acme", "mara")
    assert first == Standing(limit=2, remaining=1, reset_s=2.0)
    assert first.headers() == {"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "2"}
    await rates.take("acme", "mara")
    with pytest.raises(TooOften) as refused:
        await rates.take("acme", "mara")

    assert refused.value.retry_after_s == 2.0
    await clock.advance(refused.value.retry_after_s)
    await rates.take("acme", "mara")


@given(
    st.integers(1, 50),
    st.floats(0.1, 100),
    st.lists(st.floats(0, 3), min_size=1, max_size=100),
)
def test_whatever_comes_when_never_more_than_burst_and_rate_allow(burst, per_s, pauses):
    rate, paid_s, now_s, passed = Rate(burst, per_s), 0.0, 1000.0, []
    for pause_s in pauses:
        now_s += pause_s
        paid_s, standing = asked(paid_s, now_s, rate)
        if standing.wait_s == 0:
            passed.append(now_s)

    for at, first in enumerate(passed):
        for count, last in enumerate(passed[at:], 1):
            assert count <= burst + (last - first) * per_s + 1e-6


async def test_eight_clients_at_once_get_exactly_the_burst_in_this_process():
    rates = LocalRates(SystemClock(), tenant=Rate(100, 1 / 3600), user=None)

    assert await crowd(rates, 50) == 100


async def test_eight_clients_of_two_control_planes_get_exactly_the_burst_in_redis(redis):
    limits = {"tenant": Rate(100, 1 / 3600), "user": Rate(60, 1 / 3600)}
    async with (
        redis_rates(redis.url, SystemClock(), **limits) as one,
        redis_rates(redis.url, SystemClock(), **limits) as other,
    ):
        mara, noor = await asyncio.gather(crowd(one, 25, user="mara"), crowd(other, 25, user="noor"))

        assert mara + noor == 100
        assert max(mara, noor) <= 60
        with pytest.raises(TooOften) as refused:
            await one.take("acme", "mara")
        assert 0 < refused.value.retry_after_s <= 3600


async def test_without_redis_each_counts_for_itself_until_it_is_back(redis):
    rate = Rate(5, 1 / 3600)
    async with redis_rates(redis.url, SystemClock(), tenant=rate, user=None) as rates:
        assert await let_through(rates, 3) == 3
        await redis.process.stop()

        assert await let_through(rates, 20) == 5


@pytest.mark.parametrize("planted", ["99999999999999999", "-5", "nonsense", b"\xff\x00"])
async def test_whatever_somebody_else_wrote_into_redis_shuts_nobody_out_and_opens_nothing(redis, planted):
    tenant = f"t-{uuid.uuid4().hex[:8]}"
    rate = Rate(5, 1 / 3600)
    async with (
        redis_rates(redis.url, SystemClock(), tenant=rate, user=None) as rates,
        Redis.from_url(redis.url) as others,
    ):
        await others.set(f"agentflow:rate:tenant:{tenant}", planted)

        assert await let_through(rates, 20, tenant=tenant) == 5


async def test_a_key_of_another_kind_in_redis_shuts_nobody_out(redis):
    rate = Rate(5, 1 / 3600)
    async with (
        redis_rates(redis.url, SystemClock(), tenant=rate, user=None) as rates,
        Redis.from_url(redis.url) as others,
    ):
        await others.hset("agentflow:rate:tenant:hashed", "a", "b")

        assert await let_through(rates, 20, tenant="hashed") == 5
