"""Values as people read them: bytes, durations, times in UTC, shares."""

from __future__ import annotations

from datetime import UTC, datetime

NOTHING = "\u2013"
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DURATIONS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999


def format_value(value: object, kind: str) -> str:
    """A value of a column's or axis' kind."""
    if value is None:
        return NOTHING
    if kind == "flag":
        return "yes" if value else "no"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if kind == "time":
        return format_time(value)
    if kind == "bytes":
        return format_bytes(value)
    if kind == "duration":
        return format_duration(value)
    if kind == "share":
        return _format_share(value)
    return format_number(value)


def format_number(value: float) -> str:
    """Thousands apart; at most three digits after the point."""
    if isinstance(value, float) and value != value // 1:
        digits = 3 if abs(value) < 10 else 1
        return f"{value:,.{digits}f}".rstrip("0").rstrip(".").replace(",", "\u202f")
    return f"{int(value):,}".replace(",", "\u202f")


def format_bytes(value: float) -> str:
    size, unit = float(value), 0
    while abs(size) >= 1024 and unit < len(_BYTES) - 1:
        size, unit = size / 1024, unit + 1
    return f"{_short(size)} {_BYTES[unit]}"


def format_duration(value: float) -> str:
    """Milliseconds, in the largest unit that gives at least one, and the next below it."""
    sign, rest = ("-", -value) if value < 0 else ("", value)
    for index, (width, unit) in enumerate(_DURATIONS):
        if rest < width:
            continue
        if unit == "s":
            return f"{sign}{_short(rest / 1000)} s"
        lower_width, lower_unit = _DURATIONS[index + 1]
        whole, lower = divmod(round(rest / lower_width), width // lower_width)
        return f"{sign}{whole} {unit}" + (f" {lower} {lower_unit}" if lower else "")
    return f"{sign}{_short(rest)} ms"


def format_time(value: float) -> str:
    """Milliseconds since 1970 as UTC, to the millisecond when there are some."""
    moment = utc(value)
    if moment is None:
        return f"{int(value)} ms"
    shown = moment.strftime("%Y-%m-%d %H:%M:%S")
    milliseconds = int(value) % 1000
    return f"{shown}.{milliseconds:03d}" if milliseconds else shown


def utc(value: float) -> datetime | None:
    """Return the UTC time of milliseconds since 1970; None for what no calendar holds."""
    if not 0 <= value <= _TIME_MS_MAX:
        return None
    return datetime.fromtimestamp(value / 1000, UTC)


def _short(value: float) -> str:
    """Three digits that matter."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    shown = f"{value:.{digits}f}"
    return shown.rstrip("0").rstrip(".") if digits else shown


def _format_share(value: float) -> str:
    percent = value * 100
    if 99 < percent < 100:
        # The nines of an availability count, and it must not read as 100 %.
        return f"{min(percent, 99.9999):.4f}".rstrip("0") + " %"
    return f"{_short(percent)} %"
