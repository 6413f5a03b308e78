"""What `af` proves itself with, kept in files that only their owner may read: what `af auth login` stored for each API,
and the key that an embedded platform leaves in its home.

A credential belongs to the address it was made for and is never sent to another.
"""

import os
import stat
from pathlib import Path

import msgspec

from agentflow.durable_files import replace_private
from agentflow.errors import Rejected

_LOCAL = "credential.json"


class Credential(msgspec.Struct, frozen=True):
    """`bearer` is a token or an API key: both are sent the same way."""

    api_url: str
    bearer: str
    user: str = ""
    tenant: str = ""
    expires_at: str | None = None

    def __repr__(self) -> str:
        return f"Credential({self.api_url}, ***)"


class CredentialsExposed(Rejected):
    code = "AF1711"

    def __init__(self, file: Path) -> None:
        super().__init__(
            f"{file} can be read by others, so what is in it is no secret any more.",
            hint=f"Revoke what it holds, then: chmod 600 {file}",
        )


def local_credential(home: Path, api_url: str) -> Credential | None:
    """The key of the embedded platform in this home, if that is who listens there."""
    return _for(_read(home / _LOCAL), api_url)


def write_local_credential(home: Path, api_url: str, bearer: str) -> None:
    _write(home / _LOCAL, [Credential(api_url, bearer)])


def stored_credential(file: Path, api_url: str) -> Credential | None:
    return _for(_read(file), api_url)


def store_credential(file: Path, credential: Credential) -> None:
    kept = [other for other in _read(file) if other.api_url != credential.api_url]
    _write(file, [*kept, credential])


def forget_credential(file: Path, api_url: str) -> bool:
    """Whether there was one."""
    before = _read(file)
    kept = [other for other in before if other.api_url != api_url]
    if len(kept) < len(before):
        _write(file, kept)
    return len(kept) < len(before)


def _for(credentials: list[Credential], api_url: str) -> Credential | None:
    return next((one for one in credentials if one.api_url == api_url), None)


def _read(file: Path) -> list[Credential]:
    try:
        with file.open("rb") as reading:
            if stat.S_IMODE(os.fstat(reading.fileno()).st_mode) & 0o077:
                raise CredentialsExposed(file)
            return msgspec.json.decode(reading.read(), type=list[Credential])
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return []


def _write(file: Path, credentials: list[Credential]) -> None:
    replace_private(file, msgspec.json.format(msgspec.json.encode(credentials), indent=2) + b"\n")
