"""The part of the composition root that puts identity together: stores, keys, and how replicas tell each other."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import JetStreamBus
from agentflow.clock import Clock
from agentflow.ids import TenantId, UlidSource
from agentflow.ports import BusUnavailable
from agentflow.setting_values import per_second
from agentflow.settings import Settings
from control_plane.identity.authentication import Authenticator
from control_plane.identity.bootstrap import bootstrap
from control_plane.identity.directory import Directory
from control_plane.identity.federation import Federation
from control_plane.identity.identity import Identity
from control_plane.identity.local_ring import local_ring
from control_plane.identity.login import Login
from control_plane.identity.passwords import Passwords
from control_plane.identity.rates import LocalRates, Rate, Rates
from control_plane.identity.signing_keys import SigningKeys
from control_plane.identity.tenants import Tenants
from control_plane.identity.tokens import TokenRules
from control_plane.storage.database import Database
from control_plane.storage.directory import SqlDirectory
from control_plane.storage.people import SqlPeople
from control_plane.storage.signing_keys import SqlSigningKeys
from control_plane.storage.tenants import SqlTenants


@asynccontextmanager
async def open_identity(
    settings: Settings,
    db: Database,
    bus: JetStreamBus,
    clock: Clock,
    ids: UlidSource,
    *,
    hosted: Callable[[TenantId], frozenset[str]],
) -> AsyncIterator[Identity]:
    """`hosted`: which agents a tenant's own workers have."""
    people = SqlPeople(db, clock)
    await bootstrap(people, clock, settings.bootstrap_file)
    ring = settings.key_ring() or local_ring(settings.home / "identity.key")
    keys = SigningKeys(SqlSigningKeys(db), ring, clock, rotate_s=settings.signing_key_days * 24 * 3600)
    rules = TokenRules(settings.token_issuer, settings.token_audience)
    federation = None
    if settings.oidc_issuer is not None:
        federation = Federation(issuer=settings.oidc_issuer, audience=settings.oidc_audience, clock=clock)
    authenticator = Authenticator(people, keys, rules, clock)

    async def tell_others() -> None:
        with suppress(BusUnavailable):  # they look again by themselves, within seconds
            await bus.broadcast(subjects.IDENTITY_CHANGED, b"")

    async def changed() -> None:
        await identity.changed()

    passwords = Passwords()
    async with AsyncExitStack() as stack:
        identity = Identity(
            authenticator=authenticator,
            login=Login(
                store=people,
                keys=keys,
                rules=rules,
                passwords=passwords,
                federation=federation,
                clock=clock,
                ids=ids,
                ttl_s=settings.token_ttl_s,
            ),
            signing_keys=keys,
            directory=Directory(store=SqlDirectory(db), passwords=passwords, clock=clock, ids=ids, changed=changed),
            tenants=Tenants(store=SqlTenants(db), clock=clock, ids=ids, changed=changed, hosted=hosted),
            rates=await _rates(settings, clock, stack),
            tell_others=tell_others,
        )
        await bus.listen(subjects.IDENTITY_CHANGED, lambda _: identity.forget())
        yield identity


async def _rates(settings: Settings, clock: Clock, stack: AsyncExitStack) -> Rates:
    tenant = _rate(settings.api_rate_limit_burst, settings.api_rate_limit_sustained)
    user = _rate(settings.api_rate_limit_user_burst, settings.api_rate_limit_user_sustained)
    if settings.redis_url is None:
        return LocalRates(clock, tenant=tenant, user=user)
    from control_plane.identity.rates_redis import redis_rates  # its client is slow to import, and few have a Redis

    return await stack.enter_async_context(redis_rates(settings.redis_url, clock, tenant=tenant, user=user))


def _rate(burst: int, sustained: str) -> Rate | None:
    per_s = per_second(sustained)
    return Rate(burst, per_s) if per_s > 0 else None
