"""The keys tokens are signed with; implements `control_plane.identity.signing_keys.SigningKeyStore`."""

from collections.abc import Sequence

from sqlalchemy import delete, insert, select

from control_plane.identity.signing_keys import StoredKey
from control_plane.storage.database import Database
from control_plane.storage.tables import signing_keys


class SqlSigningKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> Sequence[StoredKey]:
        async with self._database.system_read() as connection:
            return [StoredKey(**row) for row in (await connection.execute(select(signing_keys))).mappings()]

    async def add(self, key: StoredKey) -> None:
        async with self._database.system_write() as connection:
            await connection.execute(
                insert(signing_keys),
                {
                    "id": key.id,
                    "algorithm": key.algorithm,
                    "public_jwk": key.public_jwk,
                    "private_sealed": key.private_sealed,
                    "created_at_ms": key.created_at_ms,
                },
            )

    async def remove(self, key_id: str) -> None:
        async with self._database.system_write() as connection:
            await connection.execute(delete(signing_keys).where(signing_keys.c.id == key_id))
