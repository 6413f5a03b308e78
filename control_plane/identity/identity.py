"""All of identity in one hand, as the ways in are given it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from control_plane.identity.authentication import Authenticator
from control_plane.identity.directory import Directory
from control_plane.identity.login import Login
from control_plane.identity.principals import NoCredential
from control_plane.identity.rates import Rates
from control_plane.identity.signing_keys import SigningKeys
from control_plane.identity.tenants import Tenants

_SCHEME = "bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    authenticator: Authenticator
    login: Login
    signing_keys: SigningKeys
    directory: Directory
    tenants: Tenants
    rates: Rates
    tell_others: Callable[[], Awaitable[None]]

    async def changed(self) -> None:
        """Somebody's rights or credentials are not what they were: forget what was proved, here and elsewhere."""
        self.forget()
        await self.tell_others()

    def forget(self) -> None:
        self.authenticator.forget()
        self.tenants.forget()


def credential_of(authorization: str | None) -> str:
    """What follows `Bearer` in the header of that name. Raises `NoCredential`."""
    if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
        raise NoCredential
    return authorization[len(_SCHEME) :].strip()
