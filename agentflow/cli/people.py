"""`af users`, `af service-accounts`, `af roles`, `af api-keys`, `af tenants`: who there is, and what they may do."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentflow.cli.output import JsonFlag, print_json, print_table, stderr, stdout

if TYPE_CHECKING:
    from agentflow.sdk.identity import IdentityOperations

users = typer.Typer(no_args_is_help=True, help="People of your tenant.")
service_accounts = typer.Typer(no_args_is_help=True, help="Service accounts: programs that act for your tenant.")
roles = typer.Typer(no_args_is_help=True, help="What people and service accounts may do.")
api_keys = typer.Typer(no_args_is_help=True, help="API keys: your own, and those of your tenant.")
tenants = typer.Typer(no_args_is_help=True, help="Tenants and their quotas.")

Roles = Annotated[list[str] | None, typer.Option("--role", help="A role to have; may be repeated.", show_default=False)]
Quota = Annotated[
    list[str] | None, typer.Option("--quota", help="Such as workflows=10; may be repeated.", show_default=False)
]


def _asked(what: "Callable[[IdentityOperations], Awaitable[Any]]") -> Any:
    from agentflow.cli.connection import control_plane

    async def ask() -> Any:
        async with control_plane() as api:
            return await what(api.identity)

    return asyncio.run(ask())


def _show(found: list[Any], json: bool, columns: tuple[str, ...]) -> None:
    if json:
        print_json(found)
        return
    rows = [[_cell(getattr(one, column)) for column in columns] for one in found]
    print_table([column.replace("_", " ").upper() for column in columns], rows)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items() if item is not None)
    return "" if value is None else str(value)


_USER = ("id", "name", "email", "roles", "disabled")


@users.command("list")
def list_users(json: JsonFlag = False) -> None:
    """List the people of your tenant.

    \b
    Examples:
      af users list
    """
    _show(_asked(lambda identity: identity.users()), json, _USER)


@users.command("add")
def add_user(
    email: Annotated[str, typer.Argument(help="Their mail address.", show_default=False)],
    name: Annotated[str, typer.Option(help="As people know them.", show_default=False)] = "",
    role: Roles = None,
    password: Annotated[
        bool, typer.Option("--password", help="Read a password from standard input; else by OpenID Connect only.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Add a person to your tenant.

    \b
    Examples:
      af users add mara@example.com --role developer --password < password.txt
    """
    secret = _password() if password else None
    made = _asked(lambda identity: identity.add_user(email, name=name, password=secret, roles=role or ()))
    _show([made], json, _USER)


@users.command("set")
def change_user(
    user: Annotated[str, typer.Argument(help="The id of a person or service account.", show_default=False)],
    role: Roles = None,
    disable: Annotated[
        bool | None, typer.Option("--disable/--enable", help="End everything they are logged in with.")
    ] = None,
    password: Annotated[bool, typer.Option("--password", help="Read a new password from standard input.")] = False,
    json: JsonFlag = False,
) -> None:
    """Change somebody: their roles (all they have from now on), their password, or whether they may come in.

    \b
    Examples:
      af users set usr_01KADE9R5T7M2X4C6V8B0N1Q3W --role viewer --role auditor
      af users set usr_01KADE9R5T7M2X4C6V8B0N1Q3W --disable
    """
    secret = _password() if password else None
    changed = _asked(lambda identity: identity.change_user(user, roles=role or None, disabled=disable, password=secret))
    _show([changed], json, _USER)


@service_accounts.command("list")
def list_service_accounts(json: JsonFlag = False) -> None:
    """List the service accounts of your tenant.

    \b
    Examples:
      af service-accounts list
    """
    _show(_asked(lambda identity: identity.service_accounts()), json, ("id", "name", "roles", "disabled"))


@service_accounts.command("add")
def add_service_account(
    name: Annotated[str, typer.Argument(help="What it is.", show_default=False)],
    role: Roles = None,
    json: JsonFlag = False,
) -> None:
    """Add a service account. Give it a key with `af api-keys add --user`.

    \b
    Examples:
      af service-accounts add deploy-bot --role developer
    """
    made = _asked(lambda identity: identity.add_service_account(name, roles=role or ()))
    _show([made], json, ("id", "name", "roles", "disabled"))


_ROLE = ("name", "built_in", "permissions", "allowed_tools", "policies")


@roles.command("list")
def list_roles(json: JsonFlag = False) -> None:
    """List the roles there are, built in and your own.

    \b
    Examples:
      af roles list --json
    """
    _show(_asked(lambda identity: identity.roles()), json, _ROLE)


@roles.command("add")
def add_role(
    name: Annotated[str, typer.Argument(help="Its name.", show_default=False)],
    permission: Annotated[
        list[str], typer.Option("--permission", help="Such as executions.read; may be repeated.", show_default=False)
    ],
    tool: Annotated[
        list[str] | None, typer.Option("--tool", help="A tool it is for, such as kb.*; else all.", show_default=False)
    ] = None,
    workflow: Annotated[
        list[str] | None, typer.Option("--workflow", help="A workflow it may execute; else all.", show_default=False)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Make a role of your own.

    \b
    Examples:
      af roles add support --permission workflows.execute --permission executions.read --workflow 'support*'
    """
    made = _asked(
        lambda identity: identity.add_role(name, permission, allowed_tools=tool or ("*",), workflows=workflow or None)
    )
    _show([made], json, _ROLE)


@roles.command("remove")
def remove_role(name: Annotated[str, typer.Argument(help="Its name.", show_default=False)]) -> None:
    """Remove a role of your own that nobody has any more.

    \b
    Examples:
      af roles remove support
    """
    _asked(lambda identity: identity.remove_role(name))
    stdout().print(f"removed {name}")


@api_keys.command("list")
def list_keys(json: JsonFlag = False) -> None:
    """List API keys: your own, or all of your tenant if you may see its users.

    \b
    Examples:
      af api-keys list
    """
    found = _asked(lambda identity: identity.api_keys())
    _show(found, json, ("id", "name", "user", "scopes", "expires_at", "revoked_at"))


@api_keys.command("add")
def add_key(
    name: Annotated[str, typer.Argument(help="What it is for.", show_default=False)],
    user: Annotated[str | None, typer.Option(help="Whose; your own by default.", show_default=False)] = None,
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="A permission it is limited to.", show_default=False)
    ] = None,
    days: Annotated[int | None, typer.Option(help="Days until it expires.", min=1, show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """Make an API key. It is printed this once, alone on standard output.

    \b
    Examples:
      af api-keys add ci --scope workflows.write --days 90 > key.txt
    """
    lasting = None if days is None else days * 86400
    made = _asked(lambda identity: identity.add_api_key(name, user=user, scopes=scope or None, expires_in_s=lasting))
    if json:
        print_json(made)
        return
    stderr().print(f"{made.id} for {made.user}; keep it now, it is not shown again", style="dim")
    sys.stdout.write(f"{made.key}\n")


@api_keys.command("revoke")
def revoke_key(key: Annotated[str, typer.Argument(help="Its id (afk_…).", show_default=False)]) -> None:
    """End an API key, and every token made from it.

    \b
    Examples:
      af api-keys revoke afk_abcdefghijklmnop
    """
    _asked(lambda identity: identity.revoke_api_key(key))
    stdout().print(f"revoked {key}")


@tenants.command("list")
def list_tenants(json: JsonFlag = False) -> None:
    """List all tenants; for whoever runs the deployment.

    \b
    Examples:
      af tenants list
    """
    _show(_asked(lambda identity: identity.tenants()), json, ("id", "name", "tier", "quotas"))


@tenants.command("add")
def add_tenant(
    tenant: Annotated[str, typer.Argument(help="Its id: small letters, digits and dashes.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="As people know it.", show_default=False)] = None,
    quota: Quota = None,
    json: JsonFlag = False,
) -> None:
    """Make a tenant. The key of its first admin is printed this once, alone on standard output.

    \b
    Examples:
      af tenants add acme --quota workflows=50 --quota executions_per_day=10000 > acme.key
    """
    made = _asked(lambda identity: identity.add_tenant(tenant, name=name, quotas=_quotas(quota)))
    if json:
        print_json(made)
        return
    stderr().print(f"made {made.id}; its first admin is {made.admin.user}, whose key is not shown again", style="dim")
    sys.stdout.write(f"{made.admin.api_key}\n")


@tenants.command("show")
def show_tenant(
    tenant: Annotated[str | None, typer.Argument(help="Your own by default.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """Show a tenant's quotas and what it uses of them.

    \b
    Examples:
      af tenants show
      af tenants show acme --json
    """

    async def both(identity: "IdentityOperations") -> Any:
        which = tenant or (await identity.whoami()).tenant
        return await identity.tenant(which), await identity.tenant_use(which)

    shown, use = _asked(both)
    if json:
        print_json({"tenant": shown, "usage": use})
        return
    _show([shown], False, ("id", "name", "tier", "quotas"))
    _show([use], False, use.__struct_fields__)


@tenants.command("set")
def change_tenant(
    tenant: Annotated[str, typer.Argument(help="Its id.", show_default=False)],
    quota: Quota = None,
    name: Annotated[str | None, typer.Option(help="A new name.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """Change a tenant. Quotas are given as a whole: what is not among them has no limit from now on.

    \b
    Examples:
      af tenants set acme --quota workflows=100 --quota dollars_per_month=500
    """
    changed = _asked(lambda identity: identity.change_tenant(tenant, name=name, quotas=_quotas(quota)))
    _show([changed], json, ("id", "name", "tier", "quotas"))


def _quotas(given: list[str] | None) -> dict[str, float] | None:
    if not given:
        return None
    quotas: dict[str, float] = {}
    for entry in given:
        name, equals, number = entry.partition("=")
        try:
            quotas[name] = float(number) if "." in number else int(number)
        except ValueError:
            raise typer.BadParameter(f"{entry!r} is not name=number") from None
        if not equals:
            raise typer.BadParameter(f"{entry!r} is not name=number")
    return quotas


def _password() -> str:
    from agentflow.cli.auth import secret

    return secret("password")
