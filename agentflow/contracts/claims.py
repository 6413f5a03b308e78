"""A large value by name: it stands where the value would, and whoever must look inside asks for it. Pure.

`agentflow.artifacts.claim_check` makes claims and fetches what they stand for. Written as JSON, a claim leaves its
place empty and is listed beside the data (`claims`), so nothing a user writes can ever be mistaken for one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from agentflow.contracts.artifact import ArtifactRef

T = TypeVar("T")
Path = tuple[str | int, ...]

_MARK = '{"claims":'
_NOTHING = object()


class ValueNeeded(Exception):
    """A decision has to look into a value that is not here. The shell fetches it and asks again."""

    def __init__(self, claim: "Claim") -> None:
        super().__init__(claim.ref.sha256)
        self.claim = claim


class ValueLost(Exception):
    """Nobody has the value any more; what that means is for whoever wanted it to say."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Claim:
    """Equal to any other claim on the same content. The value is lent to it for a decision, and taken back."""

    __slots__ = ("_lost", "_value", "ref")

    def __init__(self, ref: ArtifactRef) -> None:
        self.ref = ref
        self._value: Any = _NOTHING
        self._lost = ""

    @property
    def value(self) -> Any:
        """What it stands for. Raises `ValueNeeded` while that is not here, `ValueLost` when it never will be."""
        if self._lost:
            raise ValueLost(self._lost)
        if self._value is _NOTHING:
            raise ValueNeeded(self)
        return self._value

    def lend(self, value: Any) -> None:
        self._value = value

    def lose(self, reason: str) -> None:
        self._lost = reason

    def take_back(self) -> None:
        self._value, self._lost = _NOTHING, ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Claim) and other.ref == self.ref

    def __hash__(self) -> int:
        return hash(self.ref)

    def __repr__(self) -> str:
        return f"Claim({self.ref.sha256[:12]}, {self.ref.bytes} bytes)"


class Claimed(msgspec.Struct, frozen=True, array_like=True):
    """A claim and its place in the data beside it."""

    path: Path
    sha256: str
    bytes: int


class HoldsClaims(Exception):
    """Raised by `refuse_claims`: the value must be taken apart first."""


def refuse_claims(value: Any) -> Any:
    """The `enc_hook` of every encoder of events, messages and states: costs nothing where there is no claim."""
    if isinstance(value, Claim):
        raise HoldsClaims
    if isinstance(value, Mapping):
        return dict(sorted(value.items()))  # one that has no order of its own, such as those of a state
    raise NotImplementedError(f"{type(value).__name__} is not JSON")


def within(value: Any) -> Any:
    """A value that is looked into: what a claim stands for, and anything else as it is."""
    return value.value if isinstance(value, Claim) else value


def revealed(value: Any) -> Any:
    """Data with every claim in it looked into; the same object where there is none."""
    if not any(claims_in(value)):
        return value
    return _looked_into(value)


def builtins(value: Any) -> Any:
    """`msgspec.to_builtins`, with every claim left standing where it is."""
    try:
        return msgspec.to_builtins(value, enc_hook=refuse_claims)
    except HoldsClaims:
        return _opened(value)


def parted(value: Any) -> tuple[Any, list[Claimed]]:
    """Plain data with nothing where claims were, and the claims with their places."""
    try:
        return msgspec.to_builtins(value, enc_hook=refuse_claims), []
    except HoldsClaims:
        found: list[Claimed] = []
        return _without_claims(_opened(value), (), found), found


def joined(value: Any, claims: Sequence[Claimed]) -> Any:
    """Puts claims back to their places, in data that nobody else holds. A place that is not there is refused."""
    for claimed in claims:
        claim = Claim(ArtifactRef(claimed.sha256, claimed.bytes))
        if not claimed.path:
            return claim
        at = value
        for part in claimed.path[:-1]:
            at = at[part]
        at[claimed.path[-1]] = claim
    return value


def claims_in(value: Any) -> Iterator[Claim]:
    """Every claim inside of data or a struct."""
    if isinstance(value, Claim):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from claims_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from claims_in(item)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from claims_in(getattr(value, name))
    elif isinstance(value, Mapping):
        for _, item in sorted(value.items()):
            yield from claims_in(item)


def encode(encoder: msgspec.json.Encoder, struct: msgspec.Struct) -> bytes:
    """As the encoder writes it; with claims, they come first, so that a reader knows at once. It refuses claims."""
    try:
        return encoder.encode(struct)
    except HoldsClaims:
        plain, found = parted(struct)
        return encoder.encode({"claims": found, **plain})


def decode(decoder: "msgspec.json.Decoder[T]", raw: bytes | str) -> T:
    """What `encode` wrote. No struct that is stored this way has a field `claims` of its own."""
    if not (raw.startswith(_MARK) if isinstance(raw, str) else raw.startswith(_MARK.encode())):
        return decoder.decode(raw)
    plain = msgspec.json.decode(raw)
    listed = msgspec.convert(plain.pop("claims"), list[Claimed])
    try:
        whole = joined(plain, listed)
    except (LookupError, TypeError) as error:
        raise msgspec.ValidationError(f"a claim has no place: {error}") from None
    return msgspec.convert(whole, decoder.type, dec_hook=decoder.dec_hook)


def _looked_into(value: Any) -> Any:
    value = within(value)
    if isinstance(value, dict):
        return {key: _looked_into(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_looked_into(item) for item in value]
    return value


def _opened(value: Any) -> Any:
    if isinstance(value, Claim):
        return value
    if isinstance(value, dict):
        return {key: _opened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_opened(item) for item in value]
    if isinstance(value, msgspec.Struct):
        config = type(value).__struct_config__
        fields = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        tag = {} if config.tag is None else {str(config.tag_field): config.tag}
        return {**tag, **{encoded: _opened(getattr(value, name)) for encoded, name in fields}}
    if isinstance(value, Mapping):
        return {key: _opened(item) for key, item in sorted(value.items())}
    return msgspec.to_builtins(value)


def _without_claims(value: Any, path: Path, found: list[Claimed]) -> Any:
    if isinstance(value, Claim):
        found.append(Claimed(path, value.ref.sha256, value.ref.bytes))
        return None
    if isinstance(value, dict):
        return {key: _without_claims(item, (*path, key), found) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_claims(item, (*path, at), found) for at, item in enumerate(value)]
    return value
