"""`af auth`: prove who you are, once; see who you are; and end it.

A secret is never an argument: arguments are seen by every process of the machine and kept by shells.
"""

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from agentflow.cli.output import JsonFlag, print_json, print_table, stdout
from agentflow.errors import Rejected

if TYPE_CHECKING:
    from agentflow.sdk.identity import Token

app = typer.Typer(no_args_is_help=True, help="Log in, see who you are, log out.")

_TTL_S = 12 * 3600  # a working day


class NothingToReveal(Rejected):
    code = "AF1712"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"No {what} was given on standard input.", hint=f"Pipe it in, or type it when asked for the {what}."
        )


@app.command()
def login(
    email: Annotated[str | None, typer.Option("--email", help="Log in with a password.", show_default=False)] = None,
    api_key: Annotated[bool, typer.Option("--api-key", help="Log in with an API key.")] = False,
    oidc: Annotated[bool, typer.Option("--oidc", help="Log in with an ID token of the deployment's issuer.")] = False,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Which tenant.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """Prove who you are and keep the token, for as long as it is valid. The secret is read from standard input.

    What is kept is in ~/.config/agentflow (AF_CREDENTIALS_FILE), for your eyes only, one for each API address.

    \b
    Examples:
      af auth login --email mara@example.com
      af auth login --api-key < key.txt
      get-id-token | af auth login --oidc --tenant acme
    """
    chosen = [name for name, given in (("--email", email), ("--api-key", api_key), ("--oidc", oidc)) if given]
    if len(chosen) != 1:
        raise typer.BadParameter("give exactly one of --email, --api-key and --oidc")
    kind = {"--email": "password", "--api-key": "API key", "--oidc": "ID token"}[chosen[0]]
    token = asyncio.run(_login(kind, email, tenant, secret(kind)))
    if json:
        print_json({"user": token.user, "tenant": token.tenant, "expires_at": token.expires_at})
    else:
        stdout().print(f"logged in as {token.user} of {token.tenant}, until {token.expires_at}")


def secret(kind: str) -> str:
    typed = (
        typer.prompt(kind[0].upper() + kind[1:], hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
    ).strip()
    if not typed:
        raise NothingToReveal(kind)
    return str(typed)


async def _login(kind: str, email: str | None, tenant: str | None, secret: str) -> "Token":
    from agentflow.cli.connection import client_of
    from agentflow.credentials import Credential, store_credential
    from agentflow.settings import load_settings

    settings = load_settings()
    async with client_of(settings, None) as api:
        if kind == "password":
            token = await api.identity.login(email=email or "", password=secret, tenant=tenant, ttl_s=_TTL_S)
        elif kind == "API key":
            token = await api.identity.exchange_api_key(secret, ttl_s=_TTL_S)
        else:
            token = await api.identity.exchange_id_token(secret, tenant=tenant, ttl_s=_TTL_S)
    kept = Credential(settings.api_url, token.access_token, token.user, token.tenant, token.expires_at)
    store_credential(settings.credentials_file, kept)
    return token


@app.command()
def whoami(json: JsonFlag = False) -> None:
    """Show who the control plane takes you for, and what you may do.

    \b
    Examples:
      af auth whoami
      af auth whoami --json
    """
    asyncio.run(_whoami(json))


async def _whoami(json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        me = await api.identity.whoami()
    if json:
        print_json(me)
        return
    print_table(
        ("", "YOU"),
        [
            ("name", me.name),
            ("user", me.user),
            ("tenant", me.tenant),
            ("roles", ", ".join(me.roles)),
            ("permissions", ", ".join(me.permissions)),
            ("tools", ", ".join(me.allowed_tools)),
            ("workflows", ", ".join(me.allowed_workflows)),
            ("credential", f"{me.credential.via} {me.credential.id}"),
            ("until", me.credential.expires_at or "revoked"),
        ],
    )


@app.command()
def logout() -> None:
    """End the token that `af auth login` kept, on the server and here.

    \b
    Examples:
      af auth logout
    """
    asyncio.run(_logout())


async def _logout() -> None:
    from agentflow.cli.connection import client_of
    from agentflow.credentials import forget_credential, stored_credential
    from agentflow.errors import Unauthenticated
    from agentflow.settings import load_settings

    settings = load_settings()
    kept = stored_credential(settings.credentials_file, settings.api_url)
    if kept is None:
        stdout().print(f"not logged in to {settings.api_url}")
        return
    async with client_of(settings, kept.bearer) as api:
        with suppress(Unauthenticated):  # it has ended already
            await api.identity.logout()
    forget_credential(settings.credentials_file, settings.api_url)
    stdout().print(f"logged out of {settings.api_url}")
