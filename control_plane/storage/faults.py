"""What can go wrong between us and a database, in words: driver errors in, our errors out.

Used by `control_plane.storage.database` around every use of a connection. A driver's own text reaches a message
only where it cannot hold values or passwords.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from agentflow.errors import AgentFlowError, Invalid, Rejected, Unavailable
from agentflow.ports import StorageUnavailable
from control_plane.storage.address import Address, BadDatabaseAddress

# asyncpg raises the last one, which is neither of the others, when a server dies in the middle of an answer.
_ASYNCPG = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class DatabaseUnreachable(Unavailable):
    code = "AF1202"

    def __init__(self, shown: str, reason: str) -> None:
        super().__init__(
            f"Could not open {shown}: {reason}.",
            hint="Check that the database runs and that AF_DB_DSN points to it.",
        )


class DatabaseRefused(Rejected):
    code = "AF1203"

    def __init__(self, shown: str, reason: str, *, hint: str) -> None:
        super().__init__(f"Not let into {shown}: {reason}.", hint=hint)


class UnstorableText(Invalid):
    code = "AF1206"

    def __init__(self) -> None:
        super().__init__(
            "The request holds text that a database cannot store or compare.",
            hint="Remove NUL characters and unpaired surrogates.",
        )


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Around the use of a connection: whatever a driver raises becomes one of our errors."""
    try:
        yield
    except (DBAPIError, sqlite3.Error, *_ASYNCPG) as error:
        cause = _driver_error(error)
        if isinstance(cause, asyncpg.DataError) or (
            isinstance(cause, asyncpg.InterfaceError) and isinstance(cause, ValueError)
        ):
            raise UnstorableText from error
        raise StorageUnavailable(_reason(cause)) from error
    except UnicodeEncodeError as error:
        raise UnstorableText from error
    except (SQLAlchemyError, OSError, TimeoutError) as error:
        raise StorageUnavailable(_reason(error)) from error


@asynccontextmanager
async def opening(address: Address) -> AsyncIterator[None]:
    """Around the first use of a database: says which one, and what to change."""
    try:
        yield
    except AgentFlowError:
        raise
    except (SQLAlchemyError, sqlite3.Error, *_ASYNCPG, OSError, ValueError) as error:
        raise _not_opened(address, _driver_error(error)) from error


def _not_opened(address: Address, cause: BaseException) -> AgentFlowError:
    shown = address.shown
    match cause:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return DatabaseRefused(shown, "user or password is wrong", hint="Correct user and password in AF_DB_DSN.")
        case asyncpg.InvalidCatalogNameError():
            return DatabaseRefused(shown, "it does not exist", hint="Create it (CREATE DATABASE) or correct AF_DB_DSN.")
        case asyncpg.InsufficientPrivilegeError():
            return DatabaseRefused(shown, _reason(cause), hint="Grant the user the right to connect and create tables.")
        case asyncpg.exceptions.ClientConfigurationError() | ValueError():
            return BadDatabaseAddress(f"the options for {shown} are not understood")
        case sqlite3.DatabaseError() if not isinstance(cause, sqlite3.OperationalError):
            return DatabaseRefused(shown, _reason(cause), hint="Move that file away, or name another in AF_DB_DSN.")
        case _:
            return DatabaseUnreachable(shown, _reason(cause))


def _driver_error(error: BaseException) -> BaseException:
    """The driver's own exception: SQLAlchemy's text would repeat the statement, and its adapter wraps once more."""
    while isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    cause = error.__cause__
    return cause if isinstance(cause, (*_ASYNCPG, sqlite3.Error)) else error


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long to answer"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.splitlines()[0].rstrip(".")
