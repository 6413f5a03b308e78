"""Rows written out before they are removed: one `.jsonl.zst` file for each batch, durable before the removal begins.

Rows are exported as they are stored: what is sealed stays sealed, and opens with the same keys.
"""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import zstandard

from agentflow.artifacts.keeper import Keeper


class Exports:
    def __init__(self, keeper: Keeper | None) -> None:
        """Without a place nothing is exported."""
        self._keeper = keeper

    @property
    def wanted(self) -> bool:
        return self._keeper is not None

    async def write(self, name: str, table: str, rows: Sequence[Mapping[Any, Any]]) -> None:
        if self._keeper is not None and rows:
            await asyncio.to_thread(_write, self._keeper, f"{name}.jsonl.zst", table, rows)


def _write(keeper: Keeper, name: str, table: str, rows: Sequence[Mapping[Any, Any]]) -> None:
    with keeper.spool() as spool:
        packing = zstandard.ZstdCompressor(level=6).compressobj()
        for row in rows:
            line = msgspec.json.encode(
                {"table": f"{table}", "row": {str(key): value for key, value in row.items()}}, enc_hook=_plain
            )
            spool.write(packing.compress(line + b"\n"))
        spool.write(packing.flush())
        keeper.keep(spool, name)


def _plain(value: Any) -> Any:
    return base64.b64encode(bytes(value)).decode()
