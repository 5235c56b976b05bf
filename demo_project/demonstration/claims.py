"""A claim is so, or the demo says that it is not and exits non-zero."""

from __future__ import annotations


class ClaimBroken(Exception):
    """Something this project promises was seen not to be so."""


def claim(is_so: bool, otherwise: str) -> None:
    """Raise ClaimBroken with `otherwise` unless the claim is so."""
    if not is_so:
        raise ClaimBroken(otherwise)
