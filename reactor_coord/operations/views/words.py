"""Times and places as people say them."""

from __future__ import annotations


def span(seconds: float | None) -> str:
    """A length of time as people say it: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 4 min`, `5 d 1 h`."""
    if seconds is None:
        return "-"
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for small, small_name, large, large_name in ((1, "s", 60, "min"), (60, "min", 3600, "h"), (3600, "h", 86400, "d")):
        following = {60: 3600, 3600: 86400, 86400: float("inf")}[large]
        if seconds < large:
            return f"{seconds / small:.0f} {small_name}"
        if seconds < following:
            whole, rest = divmod(int(seconds), large)
            return f"{whole} {large_name} {rest // small} {small_name}" if rest // small else f"{whole} {large_name}"
    return f"{seconds:.0f} s"


def ordinal(place: int) -> str:
    """`1st`, `2nd`, `3rd`, `11th`."""
    if 10 <= place % 100 <= 20:
        return f"{place}th"
    return f"{place}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(place % 10, 'th') }"
