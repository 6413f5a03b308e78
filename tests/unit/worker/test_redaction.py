"""Arguments as they are written down: no secret by name, by shape or by value."""

import pytest

from worker.tools.redaction import redacted

SECRETS = [
    "Bearer abcdefgh12345678", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl", "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "sk-proj-abcdefghijklmnopqrstuvwx", "xoxb-1234567890-abcdefghij",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow",
]  # fmt: skip


@pytest.mark.parametrize("name", ["password", "API_KEY", "x-api-key", "Authorization", "clientSecret", "refresh_token"])
def test_a_value_under_a_telling_name_is_hidden(name):
    assert redacted({"a": [{name: "s3cr3t"}]}) == {"a": [{name: "***"}]}


@pytest.mark.parametrize("secret", SECRETS)
def test_a_value_that_looks_like_a_secret_is_hidden_wherever_it_stands(secret):
    shown = str(redacted({"note": f"use {secret} please", "list": [secret]}))

    assert secret not in shown
    assert "please" in shown or "BEGIN" in secret


def test_a_known_secret_is_hidden_whatever_it_looks_like():
    assert redacted({"q": "tuesday is the word"}, secrets=["tuesday"]) == {"q": "*** is the word"}


def test_passwords_in_addresses_are_hidden():
    assert redacted("postgres://af:hunter2@db/af") == "postgres://***@db/af"


def test_plain_values_stay_and_long_ones_are_cut():
    assert redacted({"n": 1, "ok": True, "none": None, "text": "hello"}) == {
        "n": 1, "ok": True, "none": None, "text": "hello",
    }  # fmt: skip
    long = redacted("x" * 10_000)
    assert len(long) < 350
    assert "10000 characters" in long
    assert len(redacted(list(range(1000)))) == 51


def test_depth_is_bounded():
    value: object = "deep"
    for _ in range(100):
        value = [value]
    assert "deep" not in str(redacted(value))
