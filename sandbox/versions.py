"""The oldest runtimes we trust: below these, an escape is public knowledge. Pure; `af doctor` warns by it."""

import re
from collections.abc import Mapping

import msgspec


class Floor(msgspec.Struct, frozen=True):
    """Fixed in these versions; a branch that is not named is compared with the newest fix below it."""

    fixed: tuple[tuple[int, ...], ...]
    because: str


FLOORS: Mapping[str, Floor] = {
    "runc": Floor(((1, 2, 8), (1, 3, 3), (1, 4, 0)), "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881"),
    "runsc": Floor(((20240101,),), "builds before 2024 lack the systrap platform and two years of fixes"),
    "bubblewrap": Floor(((0, 8, 0),), "--disable-userns and --size appeared there"),
}


def numbers(version: str) -> tuple[int, ...]:
    """`1.1.5+ds1` is (1, 1, 5), `release-20221219.0` and `0.0~20221219.0` are (20221219,)."""
    dated = re.search(r"(20\d{6})", version)
    if dated:
        return (int(dated[1]),)
    plain = re.search(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in plain[0].split(".")) if plain else ()


def warning(component: str, version: str) -> str | None:
    """Why this version should not be trusted; None if it may be. A distribution may have fixed an old one by itself."""
    floor = FLOORS.get(component)
    found = numbers(version)
    if floor is None:
        return None
    if not found:
        return f"{component}: the version {version!r} cannot be read"
    same = [fix for fix in floor.fixed if fix[:2] == found[:2]]
    if found >= (same[0] if same else max(floor.fixed)) or (not same and found > max(floor.fixed)):
        return None
    wanted = " or ".join(".".join(map(str, fix)) for fix in floor.fixed)
    return f"{component} {version} is older than {wanted} ({floor.because}); a distribution may have mended it"
