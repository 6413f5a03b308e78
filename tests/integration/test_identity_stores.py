"""Identity over real databases: the first key is told once, signing keys rotate and stay sealed, logins come and go."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from sqlalchemy import text

from agentflow.clock import ControlledClock
from agentflow.encryption.keyring import KeyRing
from agentflow.errors import Unavailable
from agentflow.ids import DEFAULT_TENANT, TenantId, UlidSource
from agentflow.limits import CREDENTIAL_RECHECK_S
from agentflow.testing import eventually
from control_plane.identity.authentication import Authenticator
from control_plane.identity.bootstrap import bootstrap
from control_plane.identity.federation import Federation
from control_plane.identity.login import Login
from control_plane.identity.passwords import Passwords
from control_plane.identity.people import Person
from control_plane.identity.principals import BadCredential
from control_plane.identity.signing_keys import SigningKeys
from control_plane.identity.tokens import Claims, TokenRules
from control_plane.storage.database import Database, database
from control_plane.storage.directory import SqlDirectory
from control_plane.storage.migrate import upgrade
from control_plane.storage.people import SqlPeople
from control_plane.storage.signing_keys import SqlSigningKeys

DAY_S = 24 * 3600
RING = KeyRing([("k", b"k" * 32)])
RULES = TokenRules("here", "agentflow")


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        yield opened


def told(captured: str) -> list[str]:
    return [word for word in captured.split() if word.startswith("afk_")]


async def test_the_first_key_is_told_exactly_once_however_many_start_at_once(db, capsys):
    clock = ControlledClock()
    people = SqlPeople(db, clock)

    await asyncio.gather(*(bootstrap(people, clock, None) for _ in range(4)))
    await bootstrap(people, clock, None)

    keys = told(capsys.readouterr().err)
    assert len(keys) == 1
    keyring = SigningKeys(SqlSigningKeys(db), RING, clock, rotate_s=DAY_S)
    principal = await Authenticator(people, keyring, RULES, clock).authenticate(keys[0])
    assert (principal.tenant, principal.roles) == (DEFAULT_TENANT, ("admin",))
    async with db.system_read() as connection:
        stored = str((await connection.execute(text("SELECT * FROM api_keys"))).all())
    assert keys[0].rpartition("_")[2] not in stored


async def test_a_bootstrap_file_is_for_its_owner_alone_and_a_lost_one_is_replaced(db, tmp_path: Path, capsys):
    clock, file = ControlledClock(), tmp_path / "first" / "admin.key"
    people = SqlPeople(db, clock)
    await bootstrap(people, clock, file)
    first = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    await bootstrap(people, clock, file)
    assert file.read_text() == first

    file.unlink()
    await bootstrap(people, clock, file)

    keyring = SigningKeys(SqlSigningKeys(db), RING, clock, rotate_s=DAY_S)
    authenticator = Authenticator(people, keyring, RULES, clock)
    with pytest.raises(BadCredential):
        await authenticator.authenticate(first.strip())
    assert await authenticator.authenticate(file.read_text().strip())
    assert told(capsys.readouterr().err) == []


class Counted:
    """A store of credentials that says how often it was asked, and waits until it may answer."""

    def __init__(self, people: SqlPeople) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.person = people.person
        self._people = people

    async def key(self, id: str):
        self.asked += 1
        await self.may_answer.wait()
        return await self._people.key(id)


async def test_many_requests_at_once_prove_their_credential_once_and_again_after_a_change(db, tmp_path: Path):
    clock, file = ControlledClock(), tmp_path / "admin.key"
    people = SqlPeople(db, clock)
    await bootstrap(people, clock, file)
    store = Counted(people)
    keyring = SigningKeys(SqlSigningKeys(db), RING, clock, rotate_s=DAY_S)
    authenticator = Authenticator(store, keyring, RULES, clock)

    async def authenticated():
        return await authenticator.authenticate(file.read_text().strip())

    first, *others = [asyncio.create_task(authenticated()) for _ in range(20)]
    await asyncio.sleep(0.01)
    assert store.asked == 1
    first.cancel()  # whoever asked first has gone
    authenticator.forget()  # and somebody's rights have changed
    late = asyncio.create_task(authenticated())
    await asyncio.sleep(0.01)
    assert store.asked == 2, "what was asked before the change says nothing about after it"

    store.may_answer.set()

    assert {principal.roles for principal in await asyncio.gather(*others, late)} == {("admin",)}
    await authenticated()
    assert store.asked == 2


async def test_what_was_asked_before_a_change_is_not_remembered_after_it(db, tmp_path: Path):
    clock, file = ControlledClock(), tmp_path / "admin.key"
    people = SqlPeople(db, clock)
    await bootstrap(people, clock, file)
    store = Counted(people)
    authenticator = Authenticator(store, SigningKeys(SqlSigningKeys(db), RING, clock, rotate_s=DAY_S), RULES, clock)
    presented = file.read_text().strip()
    asking = asyncio.create_task(authenticator.authenticate(presented))
    await eventually(lambda: store.asked == 1)

    authenticator.forget()
    store.may_answer.set()
    await asking

    assert authenticator.recall(presented) is None


async def test_what_another_control_plane_revoked_is_refused_in_time_though_nobody_told(db, tmp_path: Path):
    clock, file = ControlledClock(), tmp_path / "admin.key"
    people = SqlPeople(db, clock)
    await bootstrap(people, clock, file)
    keys = SigningKeys(SqlSigningKeys(db), RING, clock, rotate_s=DAY_S)
    here = Authenticator(people, keys, RULES, clock)
    presented = file.read_text().strip()
    found = await here.authenticate(presented)

    await SqlDirectory(db).revoke_api_key(found.tenant, found.credential, clock.now_ms())

    assert await here.authenticate(presented) == found  # proved a moment ago
    assert CREDENTIAL_RECHECK_S <= 60
    await clock.advance(CREDENTIAL_RECHECK_S)
    with pytest.raises(BadCredential):
        await here.authenticate(presented)


async def test_a_token_is_not_remembered_beyond_its_own_end(db, tmp_path: Path):
    clock, file = ControlledClock(), tmp_path / "admin.key"
    people = SqlPeople(db, clock)
    await bootstrap(people, clock, file)
    keys = SigningKeys(SqlSigningKeys(db), RING, clock, rotate_s=DAY_S)
    here = Authenticator(people, keys, RULES, clock)
    admin = await here.authenticate(file.read_text().strip())
    now_s = clock.now_ms() // 1000
    kid, pem = await keys.current()
    token = RULES.sign(Claims("tok_1", admin.tenant, admin.id, now_s, now_s + 2), kid=kid, private_pem=pem)
    assert await here.authenticate(token)

    await clock.advance(2)

    with pytest.raises(BadCredential):
        await here.authenticate(token)


async def test_signing_keys_rotate_verify_until_their_tokens_are_over_and_stay_sealed(db):
    clock = ControlledClock()
    keys = SigningKeys(SqlSigningKeys(db), RING, clock, rotate_s=30 * DAY_S)
    first, pem = await keys.current()
    assert await keys.current() == (first, pem)
    async with db.system_read() as connection:
        row = str((await connection.execute(text("SELECT * FROM signing_keys"))).all())
    assert "PRIVATE" not in row
    assert pem.decode().splitlines()[1] not in row

    await clock.advance(32 * DAY_S)
    second, _ = await keys.current()

    assert second != first
    assert {key["kid"] for key in (await keys.jwks())["keys"]} == {second}  # a day and a month after its last token
    replacement = await keys.rotate()
    assert {key["kid"] for key in (await keys.jwks())["keys"]} == {second, replacement}
    assert keys.public(second) is not None


async def test_control_planes_without_a_shared_secret_verify_each_others_tokens(db):
    clock = ControlledClock()
    one = SigningKeys(SqlSigningKeys(db), RING, clock, rotate_s=DAY_S)
    other = SigningKeys(SqlSigningKeys(db), KeyRing([("o", b"o" * 32)]), clock, rotate_s=DAY_S)
    kids = {(await one.current())[0], (await other.current())[0]}

    assert len(kids) == 2
    await clock.advance(2)
    for keys in (one, other):
        for kid in kids:
            await keys.known(kid)
            assert keys.public(kid) is not None


class Issuer:
    """A real OpenID Connect issuer on loopback, as far as verifying its tokens goes."""

    def __init__(self) -> None:
        self.asked = 0
        self.keys = {
            "rsa": ("RS256", rsa.generate_private_key(65537, 2048)),
            "ec": ("ES256", ec.generate_private_key(ec.SECP256R1())),
        }
        self.uses: dict[str, str] = {}  # what a key is published for, where that is not to sign
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        self.asked += 1
        if path == b"/.well-known/openid-configuration":
            body = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        else:
            published = {}
            for kid, (algorithm, key) in self.keys.items():
                made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
                published[kid] = {**made, "kid": kid, "alg": algorithm, "use": self.uses.get(kid, "sig")}
            body = {"keys": list(published.values())}
        raw = json.dumps(body).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(raw), raw))
        await writer.drain()
        writer.close()

    def token(self, clock: ControlledClock, kid: str = "rsa", **changes: object) -> str:
        algorithm, key = self.keys[kid]
        now_s = clock.now_ms() // 1000
        claims = {"iss": self.url, "aud": "client", "sub": "42", "iat": now_s, "exp": now_s + 300}
        claims |= {"email": "mara@example.com", "email_verified": True}
        return jwt.encode({**claims, **changes}, key, algorithm=algorithm, headers={"kid": kid})


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made


@pytest.fixture
async def outside(db: Database, issuer: Issuer):
    """A way to log in by that issuer, and the clock it goes by."""
    clock = ControlledClock()
    people = SqlPeople(db, clock)
    await bootstrap(people, clock, None)
    login = Login(
        store=people,
        keys=SigningKeys(SqlSigningKeys(db), RING, clock, rotate_s=DAY_S),
        rules=RULES,
        passwords=Passwords(),
        federation=Federation(issuer=issuer.url, audience="client", clock=clock),
        clock=clock,
        ids=UlidSource(clock.now_ms),
        ttl_s=600,
    )
    mara = Person(DEFAULT_TENANT, "usr_mara", "person", "Mara", "mara@example.com", 0)
    await SqlDirectory(db).add_user(mara, None)
    return login, clock


async def test_who_was_invited_by_mail_logs_in_by_oidc_and_is_known_by_subject_from_then_on(outside, issuer):
    login, clock = outside

    for kid in ("rsa", "ec"):
        _, claims = await login.by_outside_token(DEFAULT_TENANT, issuer.token(clock, kid))
        assert claims.subject == "usr_mara"
    _, claims = await login.by_outside_token(DEFAULT_TENANT, issuer.token(clock, email="new@example.com"))
    assert claims.subject == "usr_mara"
    with pytest.raises(BadCredential):  # the address counts once: another subject with it is somebody else
        await login.by_outside_token(DEFAULT_TENANT, issuer.token(clock, sub="43", email_verified=False))
    with pytest.raises(BadCredential):
        await login.by_outside_token(TenantId("other"), issuer.token(clock))


REFUSED = (
    {"iss": "https://evil.test"},
    {"aud": "another client"},
    {"aud": ["client", "another"]},
    {"azp": "another"},
    {"exp": 1_600_000_000},
    {"iat": 4_000_000_000},
    {"nbf": 4_000_000_000},
    {"sub": "7", "email": "mara@example.com", "email_verified": False},
    {"sub": "7", "email": "mara@example.com", "email_verified": "true"},
    {"sub": "7", "email": "nobody@example.com"},
)


async def test_no_other_id_token_logs_anybody_in(outside, issuer):
    login, clock = outside

    for changes in REFUSED:
        with pytest.raises(BadCredential):
            await login.by_outside_token(DEFAULT_TENANT, issuer.token(clock, **changes))


async def test_a_key_verifies_nothing_but_what_its_issuer_published_it_for(outside, issuer):
    """Each is signed with the very key, and its claims are good."""
    login, clock = outside
    _, key = issuer.keys["rsa"]
    claims = jwt.decode(issuer.token(clock), options={"verify_signature": False})
    other = jwt.encode(claims, key, algorithm="PS256", headers={"kid": "rsa"})
    critical = jwt.PyJWS().encode(
        json.dumps(claims).encode(), key, algorithm="RS256", headers={"kid": "rsa", "crit": ["b64"], "b64": True}
    )
    issuer.uses = {"ec": "enc"}

    for token in (other, critical, issuer.token(clock, "ec")):
        with pytest.raises(BadCredential):
            await login.by_outside_token(DEFAULT_TENANT, token)
    assert await login.by_outside_token(DEFAULT_TENANT, issuer.token(clock))  # so that the refusals mean something


async def test_a_flood_of_unknown_keys_asks_the_issuer_once(outside, issuer):
    login, clock = outside
    stranger = Issuer()
    stranger.url = issuer.url
    stranger.keys = {f"kid-{number}": stranger.keys["ec"] for number in range(50)}

    for kid in stranger.keys:
        with pytest.raises(BadCredential):
            await login.by_outside_token(DEFAULT_TENANT, stranger.token(clock, kid))

    assert issuer.asked == 2  # its configuration and its keys
    issuer.keys["new"] = ("ES256", ec.generate_private_key(ec.SECP256R1()))
    await clock.advance(31)
    _, claims = await login.by_outside_token(DEFAULT_TENANT, issuer.token(clock, "new"))
    assert claims.subject == "usr_mara"


async def test_an_issuer_that_is_away_or_somebody_else_is_told(outside, issuer):
    login, clock = outside
    real, issuer.url = issuer.url, "https://somebody.else"

    with pytest.raises(Unavailable, match="calls itself something else"):
        await login.by_outside_token(DEFAULT_TENANT, issuer.token(clock, iss=real))
