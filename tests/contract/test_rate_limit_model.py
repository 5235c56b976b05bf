"""Rate limits against a plain model: who starts, whose slot is when, and that no window ever counts more than its limit.

The model keeps time by hand: to let time pass it moves all that is stored into the past, by whole windows where those are
fixed. It searches for a free slot by trying every time that could be one.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from reactor_coord.coordination import Locks, RateLimits, Slot, Window

PEOPLE = tuple("ABCDEFGH")
KEY = "k"
CLOSE = 30_000
"""Times that the model takes from before or after a call agree to within this, in ms."""


def a_window_a_third_over() -> int:
    """A length in ms, some 20 minutes: the fixed window of that length is a third over now, so that what follows within
    minutes is neither near its edge nor past the half of it, where a slot planned at its beginning lapses."""
    now = time.time() * 1000
    return next(ms for ms in range(1_200_000, 1_400_000) if 0.32 < now % ms / ms < 0.34)


@dataclass
class Plan:
    at: int


class Model(RuleBasedStateMachine):
    """One key. Times are ms of the model's clock: the server's plus what it has let pass."""

    locks: ClassVar[Locks]
    algorithm: ClassVar[str]
    shape: ClassVar[tuple[tuple[int, int], ...]]
    """Each window as its limit and its length in units."""

    def __init__(self) -> None:
        super().__init__()
        self.unit = a_window_a_third_over()
        self.windows = [(limit, units * self.unit) for limit, units in self.shape]
        self.limits = RateLimits(self.locks.connection, self.locks.names, grace=self.grace / 1000)
        self.passed = 0
        self.starts: list[int] = []
        self.plans: dict[str, Plan] = {}
        self.search_from = 0

    @initialize()
    def clean(self) -> None:
        client = self.limits._connection.client
        for name in client.keys(f"{self.limits._names.prefix}:*"):
            client.delete(name)

    # ---- what the model expects

    @property
    def now(self) -> int:
        return self.limits._now() + self.passed

    def counts(self, at: int, window: int, limit: int) -> bool:
        """Whether a start at that time finds room in that window, beside all that is charged and planned."""
        taken = [*self.starts, *(plan.at for plan in self.plans.values())]
        if self.algorithm == "fixed_window":
            return sum(1 for each in taken if each // window == at // window) < limit
        return sum(1 for each in taken if at - window < each <= at) < limit

    def first_free(self, now: int) -> int:
        taken = [*self.starts, *(plan.at for plan in self.plans.values())]
        if self.algorithm == "fixed_window":
            begin = max(now, self.search_from)
            edges = {(begin // window + number) * window for _, window in self.windows for number in range(1, 40)}
            candidates = sorted({begin, *edges})
        else:
            begin = max([now, *taken])
            candidates = sorted({begin, *(each + window for _, window in self.windows for each in taken)})
        fits = (
            at
            for at in candidates
            if at >= begin and all(self.counts(at, window, limit) for limit, window in self.windows)
        )
        return next(fits)

    # ---- what is done

    def is_still_good(self, plan: Plan, now: int) -> bool:
        if now > plan.at + self.grace:
            return False
        return self.algorithm != "fixed_window" or all(plan.at // window == now // window for _, window in self.windows)

    @property
    def grace(self) -> int:
        return self.unit // 2

    def ask(self, who: str, mode: str, token: str, *, plans: bool) -> Slot | None:
        windows = [Window(limit, seconds / 1000) for limit, seconds in self.windows]
        if mode == "look":
            return self.limits.look(KEY, who, windows, self.algorithm, plans=plans)
        return self.limits.charge(KEY, who, token, windows, self.algorithm, plans=plans)

    @rule(
        who=st.sampled_from(PEOPLE), mode=st.sampled_from(["look", "charge"]), plans=st.booleans(), twice=st.booleans()
    )
    def come(self, who: str, mode: str, plans: bool, twice: bool) -> None:
        now = self.now
        plan = self.plans.get(who)
        if plan is not None and plan.at <= now and not self.is_still_good(plan, now):
            del self.plans[who]
            plan = None
        token = os.urandom(8).hex()
        answer = self.ask(who, mode, token, plans=plans)
        if plan is not None:
            at = plan.at if plan.at > now else self.room_for_owner(who, now)
            if at > now:
                plan.at = at
        else:
            at = self.first_free(now)
        is_close_call = answer is not None and answer.in_seconds * 1000 < CLOSE and at < now + CLOSE
        if at > now + CLOSE or is_close_call:
            assert answer is not None
            assert abs(answer.at * 1000 + self.passed - at) < CLOSE
            if plan is None and plans:
                at = round(answer.at * 1000) + self.passed
                self.plans[who] = Plan(at)
                self.search_from = at
            return
        assert answer is None, (answer, at - now)
        if mode == "charge":
            self.plans.pop(who, None)
            self.starts.append(plan.at if plan and self.algorithm == "fixed_window" else now)
            if twice:
                assert self.ask(who, mode, token, plans=plans) is None, "the same token counts once"

    def room_for_owner(self, who: str, now: int) -> int:
        at = now
        if self.algorithm == "sliding_window":
            for limit, window in self.windows:
                inside = sorted(each for each in self.starts if now - window < each <= now)
                if len(inside) >= limit:
                    at = max(at, inside[-limit] + window)
        return at

    @rule(who=st.sampled_from(PEOPLE))
    def cancel(self, who: str) -> None:
        plan = self.plans.pop(who, None)
        if plan is not None:
            self.search_from = min(self.search_from, plan.at)
        self.limits.cancel(KEY, who)

    @rule(count=st.integers(1, 3))
    def time_passes(self, count: int) -> None:
        self.let_pass(count * max(window for _, window in self.windows))

    @precondition(lambda self: self.algorithm == "sliding_window")
    @rule(count=st.integers(1, 3))
    def a_part_of_a_window_passes(self, count: int) -> None:
        self.let_pass(round(count * 0.15 * self.unit))

    @precondition(lambda self: any(plan.at > self.now for plan in self.plans.values()))
    @rule()
    def the_next_slots_time_comes(self) -> None:
        ahead = min(plan.at for plan in self.plans.values() if plan.at > self.now) - self.now
        if self.algorithm == "fixed_window":
            longest = max(window for _, window in self.windows)
            ahead = -(-ahead // longest) * longest
        self.let_pass(max(ahead, 0) + (0 if self.algorithm == "fixed_window" else 1))

    def let_pass(self, ms: int) -> None:
        """Move everything that is stored into the past."""
        client, (state, plans, starts) = self.limits._connection.client, self.limits._keys(KEY)
        for name, value in client.hgetall(state).items():
            field_name = name.decode()
            if field_name in {"latest", "from"}:
                client.hset(state, field_name, int(value) - ms)
            elif ":" in field_name:
                window, number = map(int, field_name.split(":"))
                client.hdel(state, field_name)
                client.hset(state, f"{window}:{number - ms // window}", value)
        for name, value in client.hgetall(plans).items():
            at, _, counted_in = value.decode().partition(":")
            client.hset(plans, name, f"{int(at) - ms}:{counted_in}")
        for name, score in client.zrange(starts, 0, -1, withscores=True):
            client.zadd(starts, {name: score - ms})
        self.passed += ms

    # ---- what is always so

    @invariant()
    def no_window_ever_counts_more_than_its_limit(self) -> None:
        for limit, window in self.windows:
            for start in self.starts:
                if self.algorithm == "fixed_window":
                    inside = sum(1 for each in self.starts if each // window == start // window)
                else:
                    inside = sum(1 for each in self.starts if start <= each < start + window - CLOSE)
                assert inside <= limit, (inside, limit)

    @invariant()
    def the_server_agrees(self) -> None:
        planned = dict(self.limits.view(KEY).planned)
        old = {who for who, plan in self.plans.items() if plan.at < self.now - self.grace}
        assert set(planned) - old == set(self.plans) - old
        for who in set(planned) - old:
            assert abs(planned[who] * 1000 + self.passed - self.plans[who].at) < CLOSE


@pytest.mark.timeout(600)
@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window"])
@pytest.mark.parametrize("windows", [((2, 1),), ((1, 1), (3, 4))], ids=["one window", "two windows"])
def test_the_rate_limit_is_what_its_model_says(
    locks: Locks, algorithm: str, windows: tuple[tuple[int, int], ...]
) -> None:
    class Bound(Model):
        pass

    Bound.locks, Bound.algorithm, Bound.shape = locks, algorithm, windows
    options: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}
    run_state_machine_as_test(Bound, settings=settings(max_examples=60, stateful_step_count=40, **options))
