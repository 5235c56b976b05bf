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
