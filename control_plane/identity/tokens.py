"""Tokens of our own: JWTs signed with Ed25519, checked to the letter. With `federation`, the one door to `jwt`.

A token says who and for which tenant; what they may do is looked up, so a role that is taken away is gone at once.
The algorithm belongs to the key and is never taken from the token; of a token's header only `kid` and `typ` are read.
"""

from collections.abc import Callable
from typing import Any

import jwt
import msgspec

from agentflow.ids import TenantId
from agentflow.limits import TOKEN_CHARS_MAX, TOKEN_CLOCK_SKEW_S, TOKEN_KID_CHARS_MAX, TOKEN_TTL_S_MAX
from control_plane.identity.principals import BadCredential

ALGORITHM = "EdDSA"
_TYPE = "at+jwt"  # RFC 9068: an ID token, or whatever else was signed with the same key, is no access token

# Times are checked here, against our own clock; the library checks signature, issuer, audience and presence.
_OPTIONS: Any = {
    "require": ["iss", "aud", "sub", "exp", "iat", "jti", "tenant"],
    "verify_exp": False,
    "verify_iat": False,
    "verify_nbf": False,
    "strict_aud": True,
}


class Claims(msgspec.Struct, frozen=True):
    id: str
    tenant: TenantId
    subject: str
    issued_at_s: float
    expires_at_s: int
    scopes: tuple[str, ...] | None = None  # where the credential it was made from was limited
    key: str | None = None  # the API key it was made from: revoking that ends it too


class TokenRules(msgspec.Struct, frozen=True):
    issuer: str
    audience: str

    def sign(self, claims: Claims, *, kid: str, private_pem: bytes) -> str:
        payload: dict[str, Any] = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": claims.subject,
            "tenant": claims.tenant,
            "jti": claims.id,
            "iat": claims.issued_at_s,
            "exp": claims.expires_at_s,
        }
        if claims.scopes is not None:
            payload["scope"] = " ".join(claims.scopes)
        if claims.key is not None:
            payload["key"] = claims.key
        return jwt.encode(payload, private_pem, algorithm=ALGORITHM, headers={"kid": kid, "typ": _TYPE})

    def verified(self, token: str, public_key: Callable[[str], dict[str, Any] | None], *, now_s: float) -> Claims:
        """What a good token says. Raises `BadCredential` for every other."""
        kid = key_id(token)
        jwk = public_key(kid)
        if jwk is None:
            raise BadCredential("unknown key")
        try:
            payload = jwt.decode(
                token,
                jwt.PyJWK(jwk, algorithm=ALGORITHM),
                algorithms=[ALGORITHM],
                issuer=self.issuer,
                audience=self.audience,
                options=_OPTIONS,
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise BadCredential(type(error).__name__) from None
        claims = _claims(payload)
        _check_times(claims.issued_at_s, claims.expires_at_s, now_s=now_s)
        if "nbf" in payload:
            raise BadCredential("not one of our claims")  # we sign none that is not valid at once
        return claims


def key_id(token: str) -> str:
    """The key a token claims to be signed with. Nothing else of its header is believed, least of all its algorithm."""
    if len(token) > TOKEN_CHARS_MAX:
        raise BadCredential("too long")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise BadCredential(type(error).__name__) from None
    kid = header.get("kid")
    if not isinstance(kid, str) or len(kid) > TOKEN_KID_CHARS_MAX:
        raise BadCredential("no usable kid")
    if header.get("typ") != _TYPE or header.get("alg") != ALGORITHM or "crit" in header:
        raise BadCredential("not one of our headers")
    return kid


def _claims(payload: dict[str, Any]) -> Claims:
    scope = payload.get("scope")
    try:
        return msgspec.convert(
            {
                "id": payload["jti"],
                "tenant": payload["tenant"],
                "subject": payload["sub"],
                "issued_at_s": payload["iat"],
                "expires_at_s": payload["exp"],
                "scopes": None if scope is None else scope.split(),
                "key": payload.get("key"),
            },
            Claims,
        )
    except (msgspec.ValidationError, AttributeError):
        raise BadCredential("malformed claims") from None


def _check_times(issued_at_s: float, expires_at_s: int, *, now_s: float) -> None:
    if now_s >= expires_at_s:
        raise BadCredential("expired")
    if issued_at_s > now_s + TOKEN_CLOCK_SKEW_S:
        raise BadCredential("issued in the future")
    if expires_at_s - issued_at_s > TOKEN_TTL_S_MAX:
        raise BadCredential("valid for too long")
