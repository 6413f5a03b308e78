"""Swaps large values for claims where data comes in, and back where somebody needs them.

Used by the control plane and by workers around the same `ArtifactStore`; nobody else notices. A value is large when
its JSON has more than `limits.CLAIM_CHECK_BYTES`.
"""

import asyncio
from typing import Any, TypeVar

import msgspec

from agentflow import limits
from agentflow.contracts.claims import Claim, HoldsClaims, builtins, claims_in, refuse_claims
from agentflow.ports import ArtifactDamaged, ArtifactLost, ArtifactStore, Shelf

S = TypeVar("S", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder(enc_hook=refuse_claims)


class ClaimCheck:
    def __init__(self, store: ArtifactStore, *, threshold_bytes: int = limits.CLAIM_CHECK_BYTES) -> None:
        self._store = store
        self._threshold_bytes = threshold_bytes

    async def checked(self, shelf: Shelf, value: Any) -> Any:
        """The value itself, or a claim on it where it is large."""
        try:
            written = _encoder.encode(value)
        except HoldsClaims:
            # Its large parts are claims already. What is left is small nearly always, and joined where it is not.
            if not self._is_large(msgspec.json.encode(_marked(value))):
                return value
            written = _encoder.encode(await self.whole(shelf, value))
        return await self.kept(shelf, written) if self._is_large(written) else value

    async def kept(self, shelf: Shelf, written: bytes) -> Claim:
        """A claim on a value that is already written as JSON."""
        return Claim(await self._store.put(shelf, written))

    async def checked_fields(self, shelf: Shelf, struct: S) -> S:
        """A message or an event whose values are small or claimed. Only fields that may hold anything are looked at."""
        try:
            if not self._is_large(_encoder.encode(struct)):
                return struct
        except HoldsClaims:
            pass
        changes: dict[str, Any] = {}
        for field in msgspec.structs.fields(struct):
            value = getattr(struct, field.name)
            if field.type is Any:
                changes[field.name] = await self.checked(shelf, value)
            elif isinstance(value, dict) and field.type == dict[str, Any]:
                members = {key: await self.checked(shelf, item) for key, item in value.items()}
                changes[field.name] = value if all(members[key] is value[key] for key in value) else members
        if not any(claim is not getattr(struct, name) for name, claim in changes.items()):
            return struct
        return msgspec.structs.replace(struct, **changes)

    def _is_large(self, written: bytes) -> bool:
        return len(written) > self._threshold_bytes

    async def value(self, shelf: Shelf, claim: Claim) -> Any:
        """What a claim stands for. Raises what `ArtifactStore.get` raises."""
        content = await self._store.get(shelf, claim.ref)
        try:
            return await asyncio.to_thread(msgspec.json.decode, content)
        except msgspec.DecodeError as error:
            raise ArtifactDamaged(shelf, claim.ref.sha256, f"it is not JSON: {error}") from None

    async def lend(self, shelf: Shelf, claim: Claim) -> None:
        """Make a claim readable, until it is taken back. What is lost for good is told when it is read."""
        try:
            claim.lend(await self.value(shelf, claim))
        except (ArtifactLost, ArtifactDamaged) as error:
            claim.lose(error.message)

    async def whole(self, shelf: Shelf, value: Any) -> Any:
        """Data with every claim in it replaced by what it stands for. Structs become plain data."""
        plain = builtins(value)
        claims = set(claims_in(plain))
        if not claims:
            return plain
        values = {claim: await self.value(shelf, claim) for claim in claims}
        return _filled(plain, values)

    async def handed_over(self, value: Any, *, origin: Shelf, target: Shelf) -> Any:
        """A value for another owner: what is claimed in it is kept on that one's shelf too, and goes with it."""
        for claim in set(claims_in(value)):
            await self._store.put(target, self._store.stream(origin, claim.ref))
        return value


def bytes_claimed(value: Any) -> int:
    """How much would be fetched to make a value whole."""
    return sum(claim.ref.bytes for claim in claims_in(value))


def _marked(value: Any) -> Any:
    return _filled(builtins(value), None)


def _filled(value: Any, values: dict[Claim, Any] | None) -> Any:
    if isinstance(value, Claim):
        return value.ref if values is None else values[value]
    if isinstance(value, dict):
        return {key: _filled(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    return value
