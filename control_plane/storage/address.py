"""Reading a database's address, and speaking of it without its password. Pure."""

import ssl
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from agentflow.errors import Rejected

_EXAMPLES = "sqlite:///agentflow.db or postgres://user:password@host:5432/database"


class BadDatabaseAddress(Rejected):
    code = "AF1201"

    def __init__(self, reason: str, *, hint: str = f"Set AF_DB_DSN to an address such as {_EXAMPLES}.") -> None:
        super().__init__(f"The database address cannot be used: {reason}.", hint=hint)


class SqliteAddress(msgspec.Struct, frozen=True):
    path: Path
    engine: Literal["sqlite"] = "sqlite"

    @property
    def shown(self) -> str:
        return f"the SQLite file {self.path}"


class PostgresAddress(msgspec.Struct, frozen=True):
    dsn: str
    shown: str  # without the password: the only form that may reach a message or a log
    engine: Literal["postgresql"] = "postgresql"
    tls: ssl.SSLContext | None = None  # None: as `sslmode` in the address says

    def __repr__(self) -> str:
        return f"PostgresAddress({self.shown})"


Address = SqliteAddress | PostgresAddress


def parse_address(dsn: str, tls: ssl.SSLContext | None = None) -> Address:
    """Nothing of the text itself is repeated in an error: any part of a malformed address may be its password."""
    scheme, separator, rest = dsn.partition("://")
    if not separator:
        raise BadDatabaseAddress("it does not begin with a scheme")
    match scheme.lower():
        case "sqlite":
            return _sqlite(rest)
        case "postgres" | "postgresql":
            return msgspec.structs.replace(_postgres(dsn), tls=tls)
        case other:
            raise BadDatabaseAddress(f"{other!r} is not a database AgentFlow knows")


def _sqlite(rest: str) -> SqliteAddress:
    path = rest.removeprefix("/")
    if path == rest:
        raise BadDatabaseAddress("a SQLite file needs three slashes, or four for an absolute path")
    if not path or ":memory:" in path or "?" in path:
        raise BadDatabaseAddress("AgentFlow keeps its state in a plain SQLite file, not in memory and without options")
    return SqliteAddress(Path(path))


def _postgres(dsn: str) -> PostgresAddress:
    unreadable = BadDatabaseAddress(
        "it is not a readable PostgreSQL address",
        hint="Write special characters of the password as %XX ('@' is %40, '/' is %2F, '#' is %23, '?' is %3F).",
    )
    try:
        parts = urlsplit(dsn)
        port = parts.port if "," not in parts.netloc else None
    except ValueError:
        raise unreadable from None
    if "@" in parts.path + parts.query + parts.fragment:
        raise unreadable  # a bare '/', '?' or '#' cut the password in two, so `netloc` ends with a piece of it
    host = parts.netloc.rpartition("@")[2] if port is None else f"{parts.hostname}:{port}"
    return PostgresAddress(dsn, f"PostgreSQL at {host or 'the local socket'}, database {parts.path.strip('/') or '?'}")
