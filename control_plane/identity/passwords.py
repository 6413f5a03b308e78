"""Passwords, as Argon2id hashes: the one door to `argon2`.

Hashing takes tens of milliseconds and 19 MiB on purpose, so it runs in threads, few at a time. An account that does not
exist costs the same as a wrong password.
"""

import asyncio

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from agentflow.errors import Invalid
from agentflow.limits import PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN, PASSWORDS_AT_ONCE

# OWASP's first choice for Argon2id: 19 MiB, two passes, one lane.
_HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


class WeakPassword(Invalid):
    code = "AF1708"

    def __init__(self) -> None:
        super().__init__(
            f"A password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters.",
            hint="Choose a longer one; a sentence is easy to remember.",
        )


class Passwords:
    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(PASSWORDS_AT_ONCE)
        self._nobodys = _HASHER.hash("nobody has this password")

    async def hashed(self, password: str) -> str:
        if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
            raise WeakPassword
        async with self._turn:
            return await asyncio.to_thread(_HASHER.hash, password)

    async def fits(self, password: str, hashed: str | None) -> bool:
        """Whether it is the one. Takes as long where there is none."""
        if len(password) > PASSWORD_CHARS_MAX:
            return False
        async with self._turn:
            fits = await asyncio.to_thread(_verified, hashed or self._nobodys, password)
        return fits and hashed is not None


def _verified(hashed: str, password: str) -> bool:
    try:
        return _HASHER.verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False
