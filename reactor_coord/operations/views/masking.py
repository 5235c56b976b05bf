"""Passwords in addresses, taken out before a person sees the message they stand in."""

from __future__ import annotations

import re

# Each part is bounded, and a scheme begins where no letter of one stands before it: a text is read once, whatever is in it.
_CREDENTIALS = re.compile(
    r"(?<![a-z0-9+.-])(?P<scheme>[a-z][a-z0-9+.-]{0,31}://)(?P<user>[^\s:@/]{0,255}):(?P<secret>[^\s@]{0,1023})@",
    re.IGNORECASE,
)

LONGEST = 10_000
"""Characters of a message that are shown."""


def mask_secrets(text: str) -> str:
    """`redis://app:hunter2@host` reads `redis://app:***@host`. A text of more than `LONGEST` characters is cut."""
    shown = text if len(text) <= LONGEST else text[:LONGEST] + " [truncated]"
    return _CREDENTIALS.sub(r"\g<scheme>\g<user>:***@", shown)
