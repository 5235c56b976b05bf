"""Did you mean ...? One sentence for every wrong name, wherever it was written."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'amount'?`, or the list of what there is; empty when there is nothing to offer."""
    names = sorted(known)
    return closest(name, names) or (f" There is: {', '.join(names)}." if names else "")


def closest(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'amount'?` when something is near; for messages that list what there is already."""
    close = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def near_miss(name: str, known: Iterable[str]) -> str:
    """The known name that is one slip of the fingers away (a letter more, less, another, or two swapped); empty if none is.

    For what is to be refused for its name alone, so with no word of its own among the misses: not `entry` for `retry`, nor
    a participle like `compensated`. Names of three letters are too near to too much.
    """
    return next(
        (each for each in sorted(known) if len(each) > 3 and name != f"{each}d" and _is_one_slip(name, each)), ""
    )


def _is_one_slip(one: str, other: str) -> bool:
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[same:], other[same:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
