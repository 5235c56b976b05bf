"""A rate limit whose windows are full, as other starts would have filled them; and those starts given back afterwards.

The product never gives a start back, so the operation that does is here, beside the state that it changes.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from reactor_coord.coordination.process import primitives
from reactor_coord.coordination.rate_limit import RateLimits, Window

# KEYS  1 state hash "<window ms>:<bucket>" -> starts  2 starts zset "s:<token>" -> ms of a start (as in rate_limit.lua)
# ARGV  1 number of fixed windows, 0 where they slide  2... their ms  then the tokens
# Takes back each start that is still known, in the windows in which it was counted. One round trip, O(starts).
_GIVE_BACK = """
local many = tonumber(ARGV[1])
for at = many + 2, #ARGV do
  local member = 's:' .. ARGV[at]
  local charged = redis.call('ZSCORE', KEYS[2], member)
  if charged then
    redis.call('ZREM', KEYS[2], member)
    for w = 2, many + 1 do
      local period = tonumber(ARGV[w])
      local name = string.format('%d:%d', period, math.floor(tonumber(charged) / period))
      if redis.call('HINCRBY', KEYS[1], name, -1) <= 0 then redis.call('HDEL', KEYS[1], name) end
    end
  end
end
"""


class FullWindow:
    """The starts that fill one limit. `owner` names them; `windows` and `algorithm` are the limit's."""

    def __init__(self, key: str, owner: str, windows: Sequence[Window], algorithm: str) -> None:
        self._key = key
        self._owner = owner
        self._windows = windows
        self._algorithm = algorithm
        self._tokens: list[str] = []
        found = primitives()
        self._limits = _Givable(found.connection, found.names, grace=0)

    def fill(self) -> float:
        """Start until no window has room. Returns the seconds until there is room again.

        Raises `AssertionError` for a limit so high that it makes room faster than it can be filled.
        """
        for _ in range(10 * max(each.limit for each in self._windows)):
            token = uuid.uuid4().hex
            slot = self._limits.charge(self._key, self._owner, token, self._windows, self._algorithm, plans=False)
            if slot is not None:
                return slot.in_seconds
            self._tokens.append(token)
        raise AssertionError(
            f"testing.hold could not fill the rate limit {self._key!r}: it makes room faster than that"
        )

    def give_back(self) -> None:
        """Take these starts back: the windows are as they would be without them."""
        periods = [] if self._algorithm == "sliding_window" else [round(each.seconds * 1000) for each in self._windows]
        self._limits.give_back(self._key, periods, self._tokens)


class _Givable(RateLimits):
    """Rate limits whose starts can be taken back."""

    def give_back(self, key: str, periods: Sequence[int], tokens: Sequence[str]) -> None:
        """Take back the starts with these tokens."""
        state, _, starts = self._keys(key)
        self._connection.client.eval(_GIVE_BACK, 2, state, starts, len(periods), *periods, *tokens)
