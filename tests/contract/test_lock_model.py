"""The lock against a plain model of it: every operation, repeated, late, by the wrong claim, with leases that end.

The model keeps time by hand: to let a lease end it deletes the hold, which is all that expiry does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

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

from reactor_coord.coordination import Locks, Refused, Requester, Taken
from reactor_coord.coordination.inspect import line, look
from tests.contract.people import who

OWNERS = ("A", "B", "C", "D")
CLAIMS = ("1", "2")
KEY = "k"


@dataclass
class Hold:
    owner: str
    claim: str
    state: str
    fence: int
    tokens: set[str] = field(default_factory=set)


class Model(RuleBasedStateMachine):
    """One key. `kept` are acquisitions that their takers still believe in, whatever became of them."""

    locks: Locks

    def __init__(self) -> None:
        super().__init__()
        self.hold: Hold | None = None
        self.line: list[str] = []
        self.tickets: dict[str, int] = {}
        self.last_ticket = 0
        self.fence = 0
        self.kept: list[Taken] = []

    @initialize()
    def clean(self) -> None:
        client = self.locks.connection.client
        for name in client.keys(f"{self.locks.names.prefix}:*"):
            client.delete(name)

    # ---- what the model expects

    def expect_way(self, asker: Requester) -> str | None:
        hold = self.hold
        if hold is None:
            return "free"
        if hold.owner != asker.owner:
            return None
        if hold.state == "held":
            return "reentered" if hold.claim == asker.claim else None
        return hold.state

    def expect_grant(self) -> tuple[str, ...]:
        if not self.line:
            self.hold = None
            return ()
        head = self.line.pop(0)
        self.hold = Hold(head, "", "granted", 0)
        return (head,)

    def join(self, owner: str) -> None:
        if owner not in self.tickets:
            self.last_ticket += 1
            self.tickets[owner] = self.last_ticket
        if owner not in self.line:
            self.line.append(owner)
            self.line.sort(key=lambda each: self.tickets[each])

    def forget(self, owner: str) -> None:
        self.tickets.pop(owner, None)
        if owner in self.line:
            self.line.remove(owner)

    def is_valid(self, taken: Taken) -> bool:
        hold = self.hold
        return (
            hold is not None
            and (hold.owner, hold.claim) == (taken.who.owner, taken.who.claim)
            and (taken.token in hold.tokens)
        )

    # ---- what is done

    @rule(owner=st.sampled_from(OWNERS), claim=st.sampled_from(CLAIMS), twice=st.booleans())
    def take(self, owner: str, claim: str, twice: bool) -> None:
        asker = who(owner, claim)
        way = self.expect_way(asker)
        token = os.urandom(8).hex()
        answers = [self.locks.take([KEY], asker, ttl=60, token=token) for _ in range(1 + twice)]
        if way is None:
            self.join(owner)
            for answer in answers:
                assert isinstance(answer, Refused)
                assert answer.place == self.line.index(owner) + 1
                assert answer.waiting == len(self.line)
            return
        first = answers[0]
        assert isinstance(first, Taken)
        assert first.keys[0].how == way
        assert all(isinstance(each, Taken) and each.keys == first.keys for each in answers)
        fence = first.keys[0].fence
        if way == "free":
            assert fence > self.fence
        elif way != "granted":
            assert self.hold is not None
            assert fence == self.hold.fence
        self.fence = max(self.fence, fence)
        if way == "reentered":
            assert self.hold is not None
            self.hold.tokens.add(token)
        else:
            self.hold = Hold(owner, claim, "held", fence, {token})
        self.forget(owner)
        self.kept.append(first)

    @rule(owner=st.sampled_from(OWNERS), claim=st.sampled_from(CLAIMS))
    def try_without_joining(self, owner: str, claim: str) -> None:
        asker = who(owner, claim)
        if self.expect_way(asker) is None:
            assert isinstance(self.locks.take([KEY], asker, ttl=60, join=False), Refused)

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), forgets=st.booleans())
    def give(self, data: st.DataObject, forgets: bool) -> None:
        taken = data.draw(st.sampled_from(self.kept))
        expected: tuple[str, ...] = ()
        if self.is_valid(taken):
            assert self.hold is not None
            self.hold.tokens.discard(taken.token)
            if not self.hold.tokens:
                expected = self.expect_grant()
                assert self.locks.give(taken) == expected
                assert self.locks.give(taken) == expected
                self.note_grant()
                return
        wakes = self.locks.give(taken)
        assert wakes in ((), self.hold_wakes())
        if forgets:
            self.kept.remove(taken)

    def hold_wakes(self) -> tuple[str, ...]:
        """A give repeated later still answers the grant it made, while nobody has adopted it."""
        return (self.hold.owner,) if self.hold and self.hold.state == "granted" else ()

    def note_grant(self) -> None:
        if self.hold:
            view = look(KEY, self.locks).hold
            assert view is not None
            assert view.fence > self.fence
            self.fence = self.hold.fence = view.fence

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.kept))
        lost = frozenset() if self.is_valid(taken) else frozenset({KEY})
        assert self.locks.renew(taken) == lost
        assert self.locks.lost(taken) == lost

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def renew_under_another_claim(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.kept))
        other = replace(taken, who=who(taken.who.owner, "a third"))
        assert self.locks.renew(other) == {KEY}
        assert self.locks.park(other, 60) == {KEY}

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.kept))
        assert self.locks.park(taken, 60) == (frozenset() if self.is_valid(taken) else {KEY})
        if self.is_valid(taken):
            assert self.hold is not None
            self.hold.state = "parked"

    @rule(owner=st.sampled_from(OWNERS), parked=st.booleans())
    def leave(self, owner: str, parked: bool) -> None:
        self.forget(owner)
        expected: tuple[str, ...] = ()
        hold = self.hold
        if hold and hold.owner == owner and (hold.state == "granted" or (hold.state == "parked" and parked)):
            expected = self.expect_grant()
        assert self.locks.leave([KEY], who(owner), parked=parked) == expected
        if expected:
            self.note_grant()

    @precondition(lambda self: self.hold is not None)
    @rule(tended=st.booleans())
    def the_lease_ends(self, tended: bool) -> None:
        client = self.locks.connection.client
        client.delete(self.locks.names.resource("lock", KEY)[0])
        client.zadd(self.locks.names.index("lock"), {KEY: 1})
        self.hold = None
        if tended:
            expected = self.expect_grant()
            assert self.locks.tend() == expected
            if expected:
                self.note_grant()

    @rule()
    def tend(self) -> None:
        before = self.hold
        wakes = self.locks.tend()
        if before is not None:
            assert wakes == ()
        else:
            assert wakes == self.expect_grant(), "free room and a waiter outlive no look"
            self.note_grant()

    @precondition(lambda self: self.hold is not None)
    @rule(right=st.booleans())
    def force(self, right: bool) -> None:
        view = look(KEY, self.locks).hold
        assert view is not None
        done, wakes = self.locks.release_by_force(KEY, fence=view.fence if right else view.fence + 1)
        assert done is right
        if right:
            assert wakes == self.expect_grant()
            self.note_grant()

    # ---- what is always so

    @invariant()
    def who_waits_for_a_free_key_is_soon_looked_at(self) -> None:
        """A lapsed hold is all that leaves a waiter at a free key, and then the index says that it is time to look."""
        if self.hold is None and self.line:
            at = self.locks.connection.client.zscore(self.locks.names.index("lock"), KEY)
            assert at is not None
            assert at <= 1

    @invariant()
    def the_server_agrees(self) -> None:
        view = look(KEY, self.locks)
        if self.hold is None:
            assert view.hold is None
        else:
            assert view.hold is not None
            assert (view.hold.owner, view.hold.state) == (self.hold.owner, self.hold.state)
            assert view.hold.count == len(self.hold.tokens)
            if self.hold.state != "granted":
                assert view.hold.claim == self.hold.claim
                assert view.hold.fence == self.hold.fence
        assert [waiter.owner for waiter in line(KEY, self.locks)] == self.line


@pytest.mark.timeout(600)
def test_the_lock_is_what_its_model_says(locks: Locks) -> None:
    locks.keeper.later(lambda: (), 0)  # the keeper's thread is not the model's business, but must not disturb it
    locks._grace = 60_000  # a grant ends when the model says so, however slow the machine

    class Bound(Model):
        pass

    Bound.locks = locks
    options: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}
    run_state_machine_as_test(Bound, settings=settings(max_examples=120, stateful_step_count=40, **options))
