"""Log-ins of another issuer (OpenID Connect): its ID tokens, checked against the keys it publishes.

Asks the issuer for its configuration and keys, and keeps them: a key that is not known is looked for again, but however
many ask, not more often than the limit says. Only the configured issuer is ever asked, over TLS unless it is on this
machine; redirects are not followed.
"""

import asyncio
import ipaddress
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
import msgspec
import structlog

from agentflow.clock import Clock
from agentflow.errors import Unavailable
from agentflow.limits import (
    ISSUER_ANSWER_BYTES_MAX,
    ISSUER_ANSWER_S,
    ISSUER_KEYS_KEPT_S,
    ISSUER_KEYS_REREAD_S,
    TOKEN_CHARS_MAX,
    TOKEN_CLOCK_SKEW_S,
    TOKEN_KID_CHARS_MAX,
)
from control_plane.identity.principals import BadCredential

_log = structlog.get_logger(__name__)

# The key decides: each kind has one family, and none of them is symmetric.
_ALGORITHMS_OF_KEY: dict[tuple[str, str | None], tuple[str, ...]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
_OPTIONS: Any = {
    "require": ["iss", "aud", "sub", "exp", "iat"],
    "verify_exp": False,
    "verify_iat": False,
    "verify_nbf": False,
}


class IssuerUnavailable(Unavailable):
    code = "AF1710"

    def __init__(self, issuer: str, reason: str) -> None:
        super().__init__(
            f"The issuer {issuer} could not be asked for its keys: {reason}.",
            hint="Check AF_OIDC_ISSUER and that the control plane can reach it; other ways to log in still work.",
        )


class Outsider(msgspec.Struct, frozen=True):
    subject: str  # unique among all issuers
    email: str | None  # only where the issuer has verified it


class Federation:
    def __init__(self, *, issuer: str, audience: str, clock: Clock) -> None:
        self._issuer = issuer
        self._audience = audience
        self._clock = clock
        self._keys: dict[str, dict[str, Any]] = {}
        self._asked_at_s: float | None = None
        self._asking = asyncio.Lock()

    async def verified(self, token: str) -> Outsider:
        """Raises `BadCredential`, or `IssuerUnavailable` where no key could be had."""
        kid, algorithm = _claimed(token)
        jwk = await self._key(kid)
        allowed = _ALGORITHMS_OF_KEY.get((jwk.get("kty", ""), jwk.get("crv")), ())
        if algorithm not in allowed or jwk.get("alg", algorithm) != algorithm or jwk.get("use", "sig") != "sig":
            raise BadCredential("algorithm does not fit the key")
        try:
            claims = jwt.decode(
                token,
                jwt.PyJWK(jwk, algorithm=algorithm),
                algorithms=[algorithm],
                issuer=self._issuer,
                audience=self._audience,
                options=_OPTIONS,
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise BadCredential(type(error).__name__) from None
        self._check(claims)
        email = claims.get("email")
        verified = isinstance(email, str) and claims.get("email_verified") is True
        return Outsider(f"{self._issuer}#{claims['sub']}", email if verified else None)

    def _check(self, claims: dict[str, Any]) -> None:
        now_s = self._clock.now_ms() / 1000
        times = (claims["exp"], claims["iat"], claims.get("nbf", 0))
        if not all(isinstance(moment, int | float) for moment in times):
            raise BadCredential("malformed times")
        expires_s, issued_s, not_before_s = times
        if now_s >= expires_s or max(issued_s, not_before_s) > now_s + TOKEN_CLOCK_SKEW_S:
            raise BadCredential("not valid now")
        audience = claims["aud"]
        several = isinstance(audience, list) and len(audience) > 1
        if (several or "azp" in claims) and claims.get("azp") != self._audience:
            raise BadCredential("made for another party")
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise BadCredential("no subject")

    async def _key(self, kid: str) -> dict[str, Any]:
        async with self._asking:
            age_s = None if self._asked_at_s is None else self._clock.monotonic_s() - self._asked_at_s
            patience_s = ISSUER_KEYS_KEPT_S if kid in self._keys else ISSUER_KEYS_REREAD_S
            if age_s is None or age_s >= patience_s:
                await self._ask()
        if kid not in self._keys:
            raise BadCredential("unknown key")
        return self._keys[kid]

    async def _ask(self) -> None:
        self._asked_at_s = self._clock.monotonic_s()
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=ISSUER_ANSWER_S, follow_redirects=False) as http:
                told = await _fetched(http, f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
                if told.get("issuer") != self._issuer:
                    raise IssuerUnavailable(self._issuer, "it calls itself something else")
                jwks_uri = told.get("jwks_uri")
                if not isinstance(jwks_uri, str) or not safe_to_ask(jwks_uri):
                    raise IssuerUnavailable(self._issuer, "it names no usable jwks_uri")
                published = (await _fetched(http, jwks_uri)).get("keys")
        except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError, ValueError) as error:
            raise IssuerUnavailable(self._issuer, type(error).__name__) from None
        keys = published if isinstance(published, list) else []
        self._keys = {key["kid"]: key for key in keys if isinstance(key, dict) and isinstance(key.get("kid"), str)}
        _log.info("issuer.keys_read", issuer=self._issuer, keys=len(self._keys))


async def _fetched(http: httpx.AsyncClient, url: str) -> dict[str, Any]:
    async with http.stream("GET", url) as response:
        if response.status_code != httpx.codes.OK:
            raise ValueError(f"status {response.status_code}")
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > ISSUER_ANSWER_BYTES_MAX:
                raise ValueError("answer too large")
    return msgspec.json.decode(body, type=dict[str, Any])


def _claimed(token: str) -> tuple[str, str]:
    if len(token) > TOKEN_CHARS_MAX:
        raise BadCredential("too long")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise BadCredential(type(error).__name__) from None
    kid, algorithm = header.get("kid"), header.get("alg")
    if not isinstance(kid, str) or len(kid) > TOKEN_KID_CHARS_MAX or not isinstance(algorithm, str):
        raise BadCredential("no usable header")
    if "crit" in header:
        raise BadCredential("critical header")
    return kid, algorithm


def safe_to_ask(url: str) -> bool:
    """Over TLS, or on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return bool(parts.hostname)
    if parts.scheme != "http" or not parts.hostname:
        return False
    try:
        return parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return False
