"""Passwords in addresses, taken out before a person sees the message they stand in."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^\s:@/]*):(?P<secret>[^\s@]*)@", re.IGNORECASE)


def mask_secrets(text: str) -> str:
    """`redis://app:hunter2@host` reads `redis://app:***@host`."""
    return _CREDENTIALS.sub(r"\g<scheme>\g<user>:***@", text)
