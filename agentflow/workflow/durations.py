"""Durations as people write them: `200ms`, `20s`, `1h30m`, `2d`. Inside, whole milliseconds."""

import re

_PATTERN = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,9})s)?(?:(\d{1,12})ms)?", re.ASCII)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000, 1)


def parse_duration(text: str) -> int | None:
    """Milliseconds, or None when the text is not a duration."""
    found = _PATTERN.fullmatch(text)
    if found is None or not text:
        return None
    return sum(int(count) * unit for count, unit in zip(found.groups(), _UNITS_MS, strict=True) if count)


def format_duration(duration_ms: int) -> str:
    """The shortest way to write it with the same units: `90m` becomes `1h30m`."""
    parts, rest = [], duration_ms
    for unit, name in zip(_UNITS_MS, ("d", "h", "m", "s", "ms"), strict=True):
        count, rest = divmod(rest, unit)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"
