"""Tokens are believed for their signature by our own key, and for nothing else they say."""

import base64
import hashlib
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from agentflow.encryption.signing import new_key_pair
from agentflow.ids import TenantId
from agentflow.limits import TOKEN_CHARS_MAX, TOKEN_TTL_S_MAX
from control_plane.identity.principals import BadCredential
from control_plane.identity.tokens import Claims, TokenRules, key_id

NOW_S = 1_700_000_000
RULES = TokenRules("here", "agentflow")
PAIR = new_key_pair()
OTHER = new_key_pair()
KEYS = {"k1": PAIR.public_jwk, "k2": OTHER.public_jwk}
CLAIMS = Claims("tok_1", TenantId("acme"), "usr_1", NOW_S - 10, NOW_S + 60)


def verified(token, *, now_s=NOW_S, rules=RULES):
    return rules.verified(token, KEYS.get, now_s=now_s)


def payload(**changes):
    whole = {"iss": "here", "aud": "agentflow", "sub": "usr_1", "tenant": "acme", "jti": "tok_1"}
    whole |= {"iat": NOW_S - 10, "exp": NOW_S + 60}
    return {name: value for name, value in {**whole, **changes}.items() if value is not None}


def signed(claims, *, key=PAIR.private_pem, algorithm="EdDSA", kid="k1", **header):
    headers = {"kid": kid, "typ": "at+jwt", **header}
    return jwt.PyJWS().encode(json.dumps(claims).encode(), key, algorithm=algorithm, headers=headers)


def raw(header, claims, signature=b""):
    parts = [json.dumps(part).encode() for part in (header, claims)] + [signature]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def test_a_token_we_signed_says_what_we_put_in():
    limited = Claims("tok_2", TenantId("acme"), "usr_1", NOW_S, NOW_S + 5, scopes=("tools.read",), key="afk_x")

    for claims in (CLAIMS, limited):
        assert verified(RULES.sign(claims, kid="k1", private_pem=PAIR.private_pem)) == claims
    assert verified(signed(payload())) == CLAIMS  # so that the forgeries below differ in one thing each


def symmetric(alg, digest, secret):
    head = raw({"alg": alg, "kid": "k1", "typ": "at+jwt"}, payload()).rpartition(".")[0]
    signature = hmac.new(secret, head.encode(), digest).digest()
    return f"{head}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def pem(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


PUBLIC = json.dumps(PAIR.public_jwk).encode()
POINT = base64.urlsafe_b64decode(PAIR.public_jwk["x"] + "=")
GOOD = signed(payload())
HEAD, BODY, SIGNATURE = GOOD.split(".")
FORGED = {
    **{f"alg {alg}": raw({"alg": alg, "kid": "k1", "typ": "at+jwt"}, payload()) for alg in ("none", "None", "NONE")},
    "critical header": signed(payload(), crit=["b64"], b64=True),
    "not valid yet": signed(payload(nbf=NOW_S + 3600)),
    "no alg": raw({"kid": "k1", "typ": "at+jwt"}, payload()),
    **{
        f"{alg} with the public key as {name}": symmetric(alg, digest, secret)
        for alg, digest in (("HS256", hashlib.sha256), ("HS384", hashlib.sha384), ("HS512", hashlib.sha512))
        for name, secret in (("JWK", PUBLIC), ("point", POINT), ("nothing", b""), ("x", PAIR.public_jwk["x"].encode()))
    },
    "EdDSA header over an HMAC": symmetric("EdDSA", hashlib.sha256, POINT),
    "another key under our kid": signed(payload(), key=new_key_pair().private_pem),
    "our key under another's kid": signed(payload(), kid="k2"),
    "RS256": signed(payload(), key=pem(rsa.generate_private_key(65537, 2048)), algorithm="RS256"),
    "ES256": signed(payload(), key=pem(ec.generate_private_key(ec.SECP256R1())), algorithm="ES256"),
    **{
        f"kid {kid!r}": signed(payload(), kid=kid)
        for kid in ("", "k9", "../../dev/null", "k1' OR '1'='1", "http://evil.test/jwks", "k1\0", "k" * 200)
    },
    "kid that is a number": raw({"alg": "EdDSA", "kid": 1, "typ": "at+jwt"}, payload()),
    "kid that is a list": raw({"alg": "EdDSA", "kid": ["k1"], "typ": "at+jwt"}, payload()),
    "no kid": jwt.encode(payload(), PAIR.private_pem, algorithm="EdDSA", headers={"typ": "at+jwt"}),
    "own key in jwk": signed(payload(), key=OTHER.private_pem, jwk=OTHER.public_jwk),
    "own key at jku": signed(payload(), key=OTHER.private_pem, jku="https://evil.test/jwks"),
    "x5u": signed(payload(), key=OTHER.private_pem, x5u="https://evil.test/cert"),
    "typ JWT": signed(payload(), typ="JWT"),
    "crit": signed(payload(), crit=["exp"]),
    **{f"without {name}": signed(payload(**{name: None})) for name in payload()},
    "other issuer": signed(payload(iss="there")),
    "issuer in a list": signed(payload(iss=["here"])),
    "other audience": signed(payload(aud="another-api")),
    "audience among others": signed(payload(aud=["agentflow", "another-api"])),
    "audience with a suffix": signed(payload(aud="agentflow.evil")),
    "expired": signed(payload(exp=NOW_S)),
    "issued tomorrow": signed(payload(iat=NOW_S + 86400, exp=NOW_S + 86460)),
    "valid for years": signed(payload(exp=NOW_S + 20 * 365 * 86400)),
    "exp that is text": signed(payload(exp=str(NOW_S + 60))),
    "exp that is a fraction": signed(payload(exp=NOW_S + 60.5)),
    "sub that is a number": signed(payload(sub=1)),
    "tenant that is a list": signed(payload(tenant=["acme"])),
    "scope that is a list": signed(payload(scope=["users.write"])),
    "signature cut": f"{HEAD}.{BODY}.{SIGNATURE[:-4]}",
    "signature gone": f"{HEAD}.{BODY}.",
    "two parts": f"{HEAD}.{BODY}",
    "body exchanged": f"{HEAD}.{raw({}, payload(tenant='other')).split('.')[1]}.{SIGNATURE}",
    "four parts": f"{GOOD}.x",
    "nothing": "",
    "dots": "..",
    "not base64": "a!.b!.c!",
    "too long": f"{HEAD}.{BODY}{'A' * 10_000}.{SIGNATURE}",
}


@pytest.mark.parametrize("name", FORGED)
def test_no_forged_token_is_believed(name):
    with pytest.raises(BadCredential) as refused:
        verified(FORGED[name])

    assert str(refused.value) == str(BadCredential())  # one answer for all: nothing to learn from it


HEADER = {"alg": "EdDSA", "kid": "k1", "typ": "at+jwt"}


def test_a_key_is_looked_up_for_a_header_of_ours():
    assert key_id(raw(HEADER, payload())) == "k1"


@pytest.mark.parametrize(
    "change",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"alg": None},
        {"crit": ["b64"], "b64": True},
        {"typ": "JWT"},
        {"kid": "k" * 200},
    ],
    ids=str,
)
def test_no_key_is_looked_up_for_a_header_that_is_not_ours(change):
    """Before the library sees the token: what it refuses by itself today is ours to refuse."""
    with pytest.raises(BadCredential):
        key_id(raw(HEADER | change, payload()))


def test_no_header_is_read_of_what_is_too_long_to_be_a_token():
    with pytest.raises(BadCredential):
        key_id(GOOD + "A" * TOKEN_CHARS_MAX)


def test_a_token_ends_on_the_second_and_may_come_from_a_clock_slightly_ahead():
    token = signed(payload(iat=NOW_S, exp=NOW_S + 60))

    assert verified(token, now_s=NOW_S - 29)
    assert verified(token, now_s=NOW_S + 59.9)
    for moment in (NOW_S - 31, NOW_S + 60):
        with pytest.raises(BadCredential):
            verified(token, now_s=moment)
    assert verified(signed(payload(iat=NOW_S, exp=NOW_S + TOKEN_TTL_S_MAX)))


def test_another_deployments_token_is_not_ours_though_the_key_is():
    with pytest.raises(BadCredential):
        verified(GOOD, rules=TokenRules("elsewhere", "agentflow"))
