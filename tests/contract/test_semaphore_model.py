"""The semaphore against a plain model of it: every operation, repeated, late, by the wrong claim, with limits that change.

The model keeps time by hand: to let a slot's lease end it moves the lease into the past.
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

from reactor_coord.coordination import Locks, Refused, Semaphores, Taken
from reactor_coord.coordination.inspect import line, look
from tests.contract.people import who

OWNERS = ("A", "B", "C", "D", "E")
CLAIMS = ("1", "2")
LIMITS = (1, 2, 3)
KEY = "k"


@dataclass(eq=False)
class Slot:
    owner: str
    claim: str
    state: str
    fence: int = 0
    by: str = ""
    tokens: set[str] = field(default_factory=set)


class Model(RuleBasedStateMachine):
    """One key. `kept` are acquisitions that their takers still believe in, whatever became of them."""

    semaphores: Semaphores
    woken: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.slots: list[Slot] = []
        self.line: list[str] = []
        self.tickets: dict[str, int] = {}
        self.last_ticket = 0
        self.limit = 0
        self.fence = 0
        self.kept: list[Taken] = []
        self.lapsed = False

    @initialize()
    def clean(self) -> None:
        client = self.semaphores.connection.client
        for name in client.keys(f"{self.semaphores.names.prefix}:*"):
            client.delete(name)
        self.woken.clear()

    # ---- what the model expects

    def mine(self, owner: str, claim: str) -> Slot | None:
        """The slot by which one enters: held under the claim, parked, or granted, in this order."""
        for state in ("held", "parked", "granted"):
            for slot in self.slots:
                if slot.owner == owner and slot.state == state and (state != "held" or slot.claim == claim):
                    return slot
        return None

    def hand_out(self, by: str) -> list[str]:
        """Grants to as many heads as there is room for."""
        self.lapsed = False
        granted = []
        while self.line and len(self.slots) < self.limit:
            head = self.line.pop(0)
            self.slots.append(Slot(head, "", "granted", by=by))
            granted.append(head)
        return granted

    def note_fences(self) -> None:
        """Of what was granted: each higher than any before it, in the order of the line."""
        views = look(KEY, self.semaphores).holds
        known = {slot.fence for slot in self.slots if slot.fence}
        fresh = [view for view in views if view.fence not in known]
        for slot in [slot for slot in self.slots if not slot.fence]:
            view = next(view for view in fresh if view.owner == slot.owner)
            assert view.fence > self.fence
            self.fence = slot.fence = view.fence

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

    def slot_of(self, taken: Taken) -> Slot | None:
        for slot in self.slots:
            if (slot.owner, slot.claim) == (taken.who.owner, taken.who.claim) and taken.token in slot.tokens:
                return slot
        return None

    # ---- what is done

    @rule(
        owner=st.sampled_from(OWNERS), claim=st.sampled_from(CLAIMS), limit=st.sampled_from(LIMITS), twice=st.booleans()
    )
    def take(self, owner: str, claim: str, limit: int, twice: bool) -> None:
        token = os.urandom(8).hex()
        asker = who(owner, claim)
        answers = [self.semaphores.take(KEY, asker, limit=limit, ttl=60, token=token) for _ in range(1 + twice)]
        slot = self.mine(owner, claim)
        if slot and slot.state == "granted" and len(self.slots) > limit:
            self.slots.remove(slot)  # granted under a higher limit
            slot = None
        elif slot is None and len(self.slots) < limit:
            slot = Slot(owner, claim, "free")
            self.slots.append(slot)
        if slot is None:
            self.refused(owner, limit, answers)
        else:
            self.entered(slot, claim, limit, token, answers)

    def refused(self, owner: str, limit: int, answers: list[Taken | Refused]) -> None:
        self.join(owner)
        self.limit, self.lapsed = limit, False
        for answer in answers:
            assert isinstance(answer, Refused), answer
            assert answer.place == self.line.index(owner) + 1
            assert answer.waiting == len(self.line)
            assert answer.in_use == len(self.slots)
            assert answer.holder is not None
            assert answer.holder.owner in {slot.owner for slot in self.slots}

    def entered(self, slot: Slot, claim: str, limit: int, token: str, answers: list[Taken | Refused]) -> None:
        first = answers[0]
        assert isinstance(first, Taken), first
        how = "reentered" if slot.state == "held" else slot.state
        assert first.keys[0].how == how
        assert all(isinstance(each, Taken) and each.keys == first.keys for each in answers)
        fence = first.keys[0].fence
        if how == "free":
            assert fence > self.fence
            self.fence = fence
        else:
            assert fence == slot.fence
        slot.tokens = slot.tokens | {token} if how == "reentered" else {token}
        slot.state, slot.claim, slot.fence = "held", claim, fence
        self.slots = [
            each
            for each in self.slots
            if each is slot or each.owner != slot.owner or each.state not in {"parked", "granted"}
        ]
        self.forget(slot.owner)
        self.kept.append(first)
        self.lapsed = False
        granted: list[str] = []
        if self.line:
            self.limit = limit
            granted = self.hand_out(f"take {token}")
        assert sorted(self.woken) == sorted(granted * len(answers)), "a repeated one answers the same"
        self.woken.clear()
        self.note_fences()

    @rule(owner=st.sampled_from(OWNERS), limit=st.sampled_from(LIMITS))
    def try_without_joining(self, owner: str, limit: int) -> None:
        if self.mine(owner, "1") is None and len(self.slots) >= limit:
            assert isinstance(self.semaphores.take(KEY, who(owner, "1"), limit=limit, ttl=60, join=False), Refused)
            self.limit = limit if self.line else self.limit
            self.lapsed = False

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), forgets=st.booleans())
    def give(self, data: st.DataObject, forgets: bool) -> None:
        taken = data.draw(st.sampled_from(self.kept))
        slot = self.slot_of(taken)
        expected = (
            [] if slot else [each.owner for each in self.slots if each.state == "granted" and each.by == taken.token]
        )
        if slot:
            slot.tokens.discard(taken.token)
            if not slot.tokens:
                self.slots.remove(slot)
        expected += self.hand_out(taken.token)
        assert sorted(self.semaphores.give(taken)) == sorted(expected)
        if slot:
            assert sorted(self.semaphores.give(taken)) == sorted(expected), "a repeated one answers the same"
        self.note_fences()
        if forgets:
            self.kept.remove(taken)

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.kept))
        lost = frozenset() if self.slot_of(taken) else frozenset({KEY})
        assert self.semaphores.renew(taken) == lost
        assert self.semaphores.lost(taken) == lost

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def renew_under_another_claim(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.kept))
        other = replace(taken, who=who(taken.who.owner, "a third"))
        assert self.semaphores.renew(other) == {KEY}
        assert self.semaphores.park(other, 60) == {KEY}

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.kept))
        slot = self.slot_of(taken)
        assert self.semaphores.park(taken, 60) == (frozenset() if slot else {KEY})
        if slot:
            slot.state = "parked"

    @rule(owner=st.sampled_from(OWNERS), what=st.sampled_from(["line", "parked", "aside"]))
    def leave(self, owner: str, what: str) -> None:
        if what == "aside":
            self.line = [each for each in self.line if each != owner]
        else:
            self.forget(owner)
        gone = {"granted", "parked"} if what == "parked" else {"granted"}
        self.slots = [slot for slot in self.slots if slot.owner != owner or slot.state not in gone]
        expected = self.hand_out("")
        options = {"parked": what == "parked", "keeps_ticket": what == "aside"}
        assert list(self.semaphores.leave([KEY], who(owner), **options)) == expected
        self.note_fences()

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), tended=st.booleans())
    def a_lease_ends(self, data: st.DataObject, tended: bool) -> None:
        slot = data.draw(st.sampled_from(self.slots))
        names, client = self.semaphores.names, self.semaphores.connection.client
        hold, *_, leases = names.resource("semaphore", KEY)
        client.zadd(leases, {f"{slot.fence}|{slot.owner}": 1})
        client.pexpireat(hold, int(client.zrange(leases, -1, -1, withscores=True)[0][1]) + 1000)
        client.zadd(names.index("semaphore"), {KEY: 1})
        self.slots.remove(slot)
        self.lapsed = True
        if tended:
            self.tend()

    @rule()
    def tend(self) -> None:
        expected = self.hand_out("") if self.lapsed else []
        assert list(self.semaphores.tend()) == expected
        self.note_fences()

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), right=st.booleans())
    def force(self, data: st.DataObject, right: bool) -> None:
        slot = data.draw(st.sampled_from(self.slots))
        fence = slot.fence if right else self.fence + 1
        if right:
            self.slots.remove(slot)
        expected = self.hand_out("")
        done, wakes = self.semaphores.release_by_force(KEY, fence=fence)
        assert (done, list(wakes)) == (right, expected)
        self.note_fences()

    # ---- what is always so

    @invariant()
    def the_server_agrees(self) -> None:
        view = look(KEY, self.semaphores)
        found = [(hold.owner, hold.claim, hold.state, hold.count, hold.fence) for hold in view.holds]
        model = [(slot.owner, slot.claim, slot.state, len(slot.tokens), slot.fence) for slot in self.slots]
        assert found == sorted(model, key=lambda each: each[-1])
        assert [waiter.owner for waiter in line(KEY, self.semaphores)] == self.line

    @invariant()
    def room_and_a_waiter_do_not_coexist(self) -> None:
        assert self.lapsed or not self.line or len(self.slots) >= self.limit


@pytest.mark.timeout(600)
def test_the_semaphore_is_what_its_model_says(locks: Locks, woken: list[str]) -> None:
    semaphores = Semaphores(locks.connection, locks.names, handoff_grace=60, keeper=locks.keeper)
    locks.keeper.later(lambda: (), 0)  # the keeper's thread is not the model's business, but must not disturb it

    class Bound(Model):
        pass

    Bound.semaphores, Bound.woken = semaphores, woken
    options: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}
    run_state_machine_as_test(Bound, settings=settings(max_examples=150, stateful_step_count=40, **options))
