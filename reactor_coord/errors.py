"""Everything this app raises, one tree: typed attributes, a stable `code`, a sentence that says what to do next.

An error is built from its details: `LockContended(step="charge", key="acct:1", holder="...")`. The sentence is made from
them when no message is given, at the moment it is read, so that a layer which knows more (which step, which reactor) can
`fill` in what the layer that raised could not know. All of it survives pickling.

Control signals (a park, `self.skip(...)`) are not errors: see `results.Decided`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self


class ReactorCoordError(Exception):
    """Root of the tree. Keyword details become attributes; `message` overrides the sentence made from them."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str = "", /, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details
        self.__dict__.update(details)

    def __str__(self) -> str:
        return self.message or self.describe()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.details)

    def describe(self) -> str:
        """The sentence for these details; used when no message was given."""
        return self.code.replace("_", " ")

    def fill(self, **details: Any) -> Self:
        """Add details that are not known yet (absent, `None`, empty text); those given already stay. Returns the error itself."""
        for name, value in details.items():
            if self.details.get(name) in (None, ""):
                self.details[name] = value
                setattr(self, name, value)
        return self


def _rebuild(kind: type[ReactorCoordError], message: str, details: dict[str, Any]) -> ReactorCoordError:
    return kind(message, **details)


class DefinitionError(ReactorCoordError):
    """A declaration that cannot be right, found when it is imported. Names the place, the value and the fix."""

    code = "definition"


class UnknownReactor(ReactorCoordError):
    """No reactor has this name. `.name`, `.known` (the names there are)."""

    code = "unknown_reactor"
    name: str = ""
    known: Sequence[str] = ()

    def describe(self) -> str:
        known = ", ".join(self.known) or "none is registered"
        return f"No reactor is named {self.name!r}. Known reactors: {known}."


class NotRunnable(ReactorCoordError):
    """The reactor is well defined, but this cannot be run: no steps, or a step kind that is not supported yet."""

    code = "not_runnable"


class InputValidationError(ReactorCoordError):
    """Inputs that break their declaration. `.owner` is whose they are, `.fields` maps input name to its problems."""

    code = "input_invalid"
    owner: str = ""
    fields: Mapping[str, list[str]] = {}

    def describe(self) -> str:
        problems = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in self.fields.items())
        return f"Invalid input for {self.owner or 'this step'}: {problems}"


class GuardError(ReactorCoordError):
    """A guard gave an answer that is neither a pass nor a refusal. The body never ran. `.guard` names it: `Charge.guard`."""

    code = "guard"
    guard: str = ""

    def describe(self) -> str:
        return f"The body was not run: {self.guard or 'the guard'} gave an answer that is neither a pass nor a refusal."


class CodecError(ReactorCoordError):
    """A value that cannot be stored. `.path` says where in the value it was found, e.g. `result.items[3]`."""

    code = "codec"
    path: str = ""


class CoordinationError(ReactorCoordError):
    """Something about a hold. Who wanted it (`reactor`, `step`), what (`primitive`, `key`) and who has it (`holder`)."""

    code = "coordination"
    reactor: str | None = None
    step: str | None = None
    primitive: str | None = None
    key: str | None = None
    holder: str | None = None

    def place(self) -> str:
        """`step 'charge' of Payment`, or as much of it as is known. A class called on its own is both."""
        if self.step and self.reactor and self.step != self.reactor:
            return f"step {self.step!r} of {self.reactor}"
        if self.step:
            return f"step {self.step!r}"
        return f"reactor {self.reactor}" if self.reactor else "this call"

    def thing(self) -> str:
        """`lock 'acct:1'`, or as much of it as is known."""
        primitive = (self.primitive or "key").replace("_", " ")
        return f"{primitive} {self.key!r}" if self.key is not None else primitive

    def held(self) -> str:
        """`, held by ...` when the holder is known."""
        return f", held by {self.holder}" if self.holder else ""


class CoordinationKeyError(CoordinationError):
    """A key that cannot be computed from these arguments. The body never ran. `.template`, `.problem`."""

    code = "coordination_key"
    template: str = ""
    problem: str = ""

    def describe(self) -> str:
        whose = f" of {self.place()}" if self.step or self.reactor else ""
        return f"The key {self.template!r}{whose} cannot be computed: {self.problem}."


class ContentionError(CoordinationError):
    """The key is somebody else's and the wait is over. In a worker this parks instead of failing."""

    code = "contention"

    def describe(self) -> str:
        return (
            f"{self.place()} could not take {self.thing()}{self.held()}. "
            "Try again later, allow a longer wait=, or enqueue it: in a worker it steps aside until the key is free."
        )


class LockContended(ContentionError):
    """The lock is held by another owner."""

    code = "lock_contended"


class SemaphoreContended(ContentionError):
    """Every slot of the semaphore is taken."""

    code = "semaphore_contended"


class RateLimitExceeded(ContentionError):
    """The window is full. `.retry_after`: seconds until a slot is free."""

    code = "rate_limited"
    retry_after: float | None = None

    def describe(self) -> str:
        when = (
            f"A slot is free in {self.retry_after:.3f} s: try again then"
            if self.retry_after is not None
            else "Try later"
        )
        return f"{self.place()} is over the {self.thing()}. {when}, or enqueue it: in a worker it waits for a slot of its own."


class OutOfTurn(ContentionError):
    """Earlier positions of the ordered line have not passed yet."""

    code = "out_of_turn"

    def describe(self) -> str:
        return (
            f"{self.place()} is out of turn in the {self.thing()}{self.held()}. "
            "Try again when those before it have passed, or enqueue it: in a worker it waits for its turn."
        )


class ContentionCeilingReached(ContentionError):
    """Parked too often while the line did not move. `.attempts`: how often."""

    code = "contention_ceiling"
    attempts: int = 0

    def describe(self) -> str:
        return (
            f"{self.place()} gave up on contention: {self.thing()}{self.held()} was not free after "
            f"{self.attempts} attempts in which its line did not move. Look at the holder, or raise SNOOZE_MAX_ATTEMPTS."
        )


class HandOffRefused(CoordinationError):
    """Work that needs a key its own parent holds was about to be handed to another process."""

    code = "hand_off_refused"

    def describe(self) -> str:
        return (
            f"{self.place()} would hand off work that needs {self.thing()}{self.held()}: it could never start. "
            "Run it inside this execution (step or compose), or hand it off after the key is released."
        )


class DeadlockDetected(CoordinationError):
    """Executions wait for each other in a ring. `.cycle`: one line per link, who holds what and waits for what."""

    code = "deadlock"
    cycle: Sequence[str] = ()

    def describe(self) -> str:
        ring = " -> ".join(str(link) for link in self.cycle)
        return (
            f"{self.place()} is in a deadlock over {self.thing()}: {ring}. Take the keys in one step, or in one order."
        )


class CoordinationUnavailable(CoordinationError):
    """Redis cannot be reached or answered with an error; the cause is chained. No work runs unprotected."""

    code = "coordination_unavailable"

    def describe(self) -> str:
        cause = f" ({self.__cause__})" if self.__cause__ else ""
        return (
            f"Redis could not be asked for {self.thing()} of {self.place()}{cause}. Nothing ran unprotected. Check the server "
            "of the cache that REACTOR_COORD['REDIS_ALIAS'] names (`manage.py check --database default` asks it), then retry."
        )


class CoordinationDamaged(CoordinationError):
    """A key in Redis is not what coordination wrote there: of another type, or without what belongs in it.

    `.redis_key` is its name as `redis-cli` takes it, `.problem` what is wrong with it. No work runs unprotected.
    """

    code = "coordination_damaged"
    redis_key: str = ""
    problem: str = ""

    def describe(self) -> str:
        return (
            f"{self.place()} could not have {self.thing()}: the Redis key {self.redis_key!r} is not what was written there: "
            f"{self.problem}. Nothing ran unprotected. See that no work is under way on it, then delete the key (DEL); if "
            "another program writes there, give REACTOR_COORD['KEY_PREFIX'] a prefix of its own."
        )


NO_ANSWER: tuple[type[CoordinationError], ...] = (CoordinationUnavailable, CoordinationDamaged)
"""Redis gave no answer that can be relied on: for who goes on without one, or shows what is known otherwise."""


class LockLost(CoordinationError):
    """The hold ran out while the body ran, so it may not have been alone. `on_lost="warn"` accepts that."""

    code = "lock_lost"

    def describe(self) -> str:
        return (
            f"{self.place()} lost {self.thing()} while its body ran{self.held()}. "
            "Its effects may overlap another's: check them; fence what it writes, or raise ttl=."
        )


class CompensationError(ReactorCoordError):
    """A compensation or an undo could not have its key, so what its step did stands. What `ReactorFailed` is raised from, then.

    `.reactor`, `.step`, `.kind` (`"compensate"` or `"undo"`), `.key` (empty where it cannot be computed), `.problem`.
    """

    code = "compensation"
    reactor: str | None = None
    step: str | None = None
    kind: str = ""
    key: str = ""
    problem: str = ""

    def describe(self) -> str:
        key = f"the key {self.key!r}" if self.key else "its key"
        why = f" ({self.problem})" if self.problem else ""
        whose = f" of {self.reactor}" if self.reactor else ""
        return (
            f"The {self.kind or 'cleanup'} of step {self.step!r}{whose} was not done: it could not have {key}{why}. "
            "What the step did stands. See that the key can be had, then undo() the execution."
        )


class ReactorFailed(ReactorCoordError):
    """What `outcome.unwrap()` raises. `.failure` is the outcome's failure (step, error type, message, rollback failures)."""

    code = "reactor_failed"
    failure: Any = None

    def describe(self) -> str:
        step, reactor = getattr(self.failure, "step", None), getattr(self.failure, "reactor", None)
        return f"{reactor or 'The reactor'} failed at step {step!r}: {getattr(self.failure, 'message', self.failure)}"


class ExecutionConflict(ReactorCoordError):
    """An operator's verb in a state that does not allow it. `.execution_id`, `.status`, `.verb`."""

    code = "execution_conflict"
    execution_id: str = ""
    status: str = ""
    verb: str = ""

    def describe(self) -> str:
        return f"Execution {self.execution_id} is {self.status}: it cannot {self.verb} now."


class ExecutionPending(ReactorCoordError):
    """What `outcome.unwrap()` raises for an execution that is not over: nothing failed. `.execution_id`, `.status`."""

    code = "execution_pending"
    execution_id: str = ""
    status: str = ""

    def describe(self) -> str:
        how = {
            "paused": "it waits for an answer. Answer it with resume(), then wait with outcome.handle.wait()",
            "needs_definition": "it waits for code that has its reactor. Deploy that, then resume() it",
        }
        goes_on = "it goes on in a worker. Wait for it with outcome.handle.wait(), or look at outcome.handle later"
        return f"Execution {self.execution_id} is {self.status}: {how.get(self.status, goes_on)}."


class LeaseLost(ReactorCoordError):
    """This worker no longer runs the execution; whatever it would have written is refused. `.execution_id`."""

    code = "lease_lost"
    execution_id: str = ""

    def describe(self) -> str:
        return f"Execution {self.execution_id} is run by another worker now; nothing was written."


class WorkerLost(ReactorCoordError):
    """The worker died in this step too often. `.reactor`, `.step`, `.count`."""

    code = "worker_lost"
    reactor: str | None = None
    step: str | None = None
    count: int = 0

    def describe(self) -> str:
        return f"The worker died {self.count} times in step {self.step!r} of {self.reactor}; it is not tried again."
