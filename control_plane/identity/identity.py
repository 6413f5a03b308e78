"""All of identity in one hand, as the ways in are given it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from control_plane.identity.authentication import Authenticator
from control_plane.identity.login import Login
from control_plane.identity.principals import NoCredential
from control_plane.identity.signing_keys import SigningKeys

_SCHEME = "bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    authenticator: Authenticator
    login: Login
    signing_keys: SigningKeys
    tell_others: Callable[[], Awaitable[None]]

    async def changed(self) -> None:
        """Somebody's rights or credentials are not what they were: forget what was proved, here and elsewhere."""
        self.authenticator.forget()
        await self.tell_others()


def credential_of(authorization: str | None) -> str:
    """What follows `Bearer` in the header of that name. Raises `NoCredential`."""
    if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
        raise NoCredential
    return authorization[len(_SCHEME) :].strip()
