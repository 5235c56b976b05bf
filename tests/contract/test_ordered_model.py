"""The ordered line against a plain model of it: who has which place, whose turn it is, who is told.

The model keeps time by hand: to let a position's time or its worker's lease end it moves them into the past.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
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

from reactor_coord.coordination import Locks, NotYet, OrderedLines, Turn
from reactor_coord.coordination.ordered import FAILED, PASSED, SUCCEEDED
from tests.contract.people import who

OWNERS = ("A", "B", "C", "D", "E")
CLAIMS = ("1", "2")
KEY = "k"
LEASE = 7.0
HOW = (FAILED, PASSED, SUCCEEDED)


@dataclass(eq=False)
class Position:
    owner: str
    number: int
    state: str = "waiting"
    claim: str = ""
    is_dead: bool = False
    """Its worker's lease is over."""
    is_overdue: bool = False
    """It has shown no sign of life for its poison timeout."""
    is_head: bool = False
    heals: bool = False


class Model(RuleBasedStateMachine):
    """One line. `kept` are turns that their takers still believe in, whatever became of them."""

    lines: OrderedLines

    def __init__(self) -> None:
        super().__init__()
        self.positions: list[Position] = []
        self.last = 0
        self.done = 0
        self.failed = 0
        self.failed_by = ""
        self.is_chain = False
        """Whether the failure counts in a drained line, too."""
        self.is_carried = False
        self.epoch = 0
        self.kept: list[tuple[Turn, int]] = []

    @initialize()
    def clean(self) -> None:
        client = self.lines._connection.client
        for name in client.keys(f"{self.lines._names.prefix}:*"):
            client.delete(name)

    # ---- what the model expects

    def advance(self) -> str:
        """Pass over what is given back or overdue; who has to be told that it is the head now."""
        while self.positions:
            head = self.positions[0]
            if head.number != self.done + 1:
                self.done += 1  # given back
                continue
            told = ""
            if not head.is_head:
                head.is_head, head.is_overdue = True, False
                told = head.owner if head.state == "waiting" else ""
            if not head.is_overdue:
                return told
            self.positions.pop(0)
            self.done = head.number
        self.done = self.last
        return ""

    def begin_if_drained(self) -> None:
        if self.positions:
            return
        self.epoch, self.last, self.done = self.epoch + 1, 0, 0
        self.is_carried = self.is_chain
        if not self.is_chain:
            self.heal()

    def heal(self) -> None:
        self.failed, self.failed_by, self.is_chain, self.is_carried = 0, "", False, False

    @property
    def counts(self) -> int:
        """The failed position of which those who come are told."""
        return 0 if self.is_carried and not self.is_chain else self.failed

    def of(self, owner: str) -> Position | None:
        return next((each for each in self.positions if each.owner == owner), None)

    def own(self, turn: Turn, epoch: int) -> Position | None:
        found = next((each for each in self.positions if each.number == turn.position), None)
        is_own = found and (found.owner, found.claim) == (turn.taken.who.owner, turn.taken.who.claim)
        return found if is_own and epoch == self.epoch else None

    # ---- what is done

    @rule(
        owner=st.sampled_from(OWNERS),
        claim=st.sampled_from(CLAIMS),
        twice=st.booleans(),
        retry_of=st.sampled_from(OWNERS),
    )
    def enter(self, owner: str, claim: str, twice: bool, retry_of: str) -> None:
        self.advance()
        self.begin_if_drained()
        position = self.of(owner)
        if position is None:
            self.last += 1
            position = Position(owner, self.last)
            self.positions.append(position)
        position.is_overdue = False
        self.advance()
        is_anothers = position.state == "running" and position.claim != claim and not position.is_dead
        answers = [self.ask(owner, claim, retry_of) for _ in range(1 + twice)]
        if position is self.positions[0] and not is_anothers:
            first = answers[0]
            assert isinstance(first, Turn), first
            heals = bool(self.counts) and retry_of == self.failed_by
            position.heals = position.heals or heals
            assert (first.position, first.failed) == (position.number, 0 if heals else self.counts)
            assert first.adopted is (position.state == "paused")
            assert all(isinstance(each, Turn) and each.position == first.position for each in answers)
            position.state, position.claim, position.is_dead = "running", claim, False
            self.kept.append((first, self.epoch))
        else:
            for answer in answers:
                assert isinstance(answer, NotYet), answer
                assert answer.position == position.number
                assert answer.ahead == position.number - self.done - 1
                assert answer.head_execution == self.positions[0].owner
                head = self.positions[0]
                assert answer.is_alive is (head is not position and head.state == "running" and not head.is_dead)
                assert answer.left <= (LEASE if head is position else 62)

    def ask(self, owner: str, claim: str, retry_of: str) -> Turn | NotYet:
        requester = who(owner, claim)
        ask = self.lines.entering(
            KEY, owner, requester, poison_timeout=60, ttl=3600, lease=LEASE, family=owner, retry_of=retry_of
        )
        return self.lines.send(ask)

    @rule(owner=st.sampled_from(OWNERS))
    def reserve(self, owner: str) -> None:
        """A place before it arrives; never a turn."""
        self.advance()
        self.begin_if_drained()
        position = self.of(owner)
        if position is None:
            self.last += 1
            position = Position(owner, self.last)
            self.positions.append(position)
        position.is_overdue = False
        self.advance()
        requester = who(owner)
        waiter = type(requester)(owner, "", owner, owner)
        answer = self.lines.enter(KEY, owner, waiter, poison_timeout=60, ttl=3600)
        assert isinstance(answer, NotYet)
        assert answer.position == position.number

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), how=st.sampled_from(HOW), forgets=st.booleans(), lasts=st.booleans())
    def complete(self, data: st.DataObject, how: str, forgets: bool, lasts: bool) -> None:
        kept = data.draw(st.sampled_from(self.kept))
        turn, epoch = kept
        position, expected = self.own(turn, epoch), ""
        if position is not None and position is self.positions[0] and position.number == self.done + 1:
            if how == FAILED and (not self.counts or position.heals):
                self.failed, self.failed_by = position.number, position.owner
                self.is_chain, self.is_carried = lasts, False
            elif how == SUCCEEDED and position.heals:
                self.heal()
            self.positions.pop(0)
            self.done = position.number
            expected = self.advance()
        ask = self.lines.completing(turn.taken, how, chain_ttl=3600 if lasts else 0)
        assert self.lines.send(ask) == ((expected,) if expected else ())
        if forgets:
            self.kept.remove(kept)

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def show_a_sign_of_life(self, data: st.DataObject) -> None:
        turn, epoch = data.draw(st.sampled_from(self.kept))
        position = self.own(turn, epoch)
        left = self.lines._renew(turn.taken, 5.0, True)[KEY]
        assert (left > 0) is (position is not None)
        if position is not None:
            position.is_dead = position.is_overdue = False

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        turn, epoch = data.draw(st.sampled_from(self.kept))
        position = self.own(turn, epoch)
        self.lines.pause(turn.taken, 1)
        if position is not None:
            position.state, position.claim, position.is_overdue = "paused", "", False

    @rule(owner=st.sampled_from(OWNERS))
    def leave(self, owner: str) -> None:
        position, expected = self.of(owner), ""
        if position is not None and position.state != "running":
            self.positions.remove(position)
            expected = self.advance()
        assert self.lines.leave(KEY, owner, ttl=3600) == ((expected,) if expected else ())

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def its_worker_dies(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from(self.positions))
        position.is_dead = True
        self.move_into_the_past(position, "alive")

    @precondition(lambda self: self.positions)
    @rule(data=st.data(), tended=st.booleans())
    def it_is_never_seen_again(self, data: st.DataObject, tended: bool) -> None:
        position = data.draw(st.sampled_from(self.positions))
        position.is_overdue = True
        self.move_into_the_past(position, "due")
        if tended:
            self.tend()

    def move_into_the_past(self, position: Position, what: str) -> None:
        client, line = self.lines._connection.client, self.lines._keys(KEY)[2]
        entry = json.loads(client.hget(line, str(position.number)))
        entry[what] = 1
        client.hset(line, str(position.number), json.dumps(entry))
        if what == "due" and position is self.positions[0]:
            client.zadd(self.lines._names.index("ordered_lock"), {KEY: 1})

    @precondition(lambda self: self.is_chain)
    @rule()
    def the_time_of_a_failure_is_over(self) -> None:
        self.is_chain = False
        self.lines._connection.client.hset(self.lines._keys(KEY)[0], "failed_until", 1)

    @precondition(lambda self: self.positions or self.is_chain)
    @rule()
    def an_operator_resets(self) -> None:
        view = self.lines.view(KEY)
        assert self.lines.reset(KEY, epoch=view.epoch)
        self.positions, self.last, self.done = [], 0, 0
        self.epoch += 1
        self.heal()

    @rule()
    def tend(self) -> None:
        is_due = bool(self.positions) and self.positions[0].is_overdue
        expected = self.advance() if is_due else ""
        assert self.lines.tend() == ((expected,) if expected else ())

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def an_operator_skips(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from(self.positions))
        self.positions.remove(position)
        expected = self.advance()
        assert (self.lines.skip(KEY, position.number) or "") == expected

    # ---- what is always so

    @invariant()
    def the_server_agrees(self) -> None:
        view = self.lines.view(KEY)
        assert [(each.position, each.state, each.execution) for each in view.in_flight] == [
            (each.number, each.state, each.owner) for each in self.positions
        ]
        assert bool(view.failed_until) is self.is_chain
        if self.positions or self.is_chain:
            assert (view.last_given, view.first_failed) == (self.last, self.counts)
            assert view.failed_by == (self.failed_by if self.counts else "")
        listed = [each.key for each in self.lines.survey()]
        assert listed == ([KEY] if self.positions or self.is_chain else [])

    @invariant()
    def one_place_for_each_and_one_turn(self) -> None:
        owners = [each.owner for each in self.positions]
        assert len(owners) == len(set(owners))
        assert all(each.state == "waiting" for each in self.positions if not each.is_head)

    @invariant()
    def a_living_head_is_not_passed_over_and_a_dead_one_is_looked_at(self) -> None:
        index = self.lines._connection.client.zscore(self.lines._names.index("ordered_lock"), KEY)
        assert (index is not None) or not self.positions


@pytest.mark.timeout(600)
def test_the_ordered_line_is_what_its_model_says(locks: Locks) -> None:
    locks.keeper.later(lambda: (), 0)  # the keeper's thread is not the model's business, but must not disturb it

    class Bound(Model):
        pass

    Bound.lines = OrderedLines(locks.connection, locks.names, locks.keeper)
    options: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}
    run_state_machine_as_test(Bound, settings=settings(max_examples=120, stateful_step_count=40, **options))
