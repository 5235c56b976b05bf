"""The read models of `operations.views` as JSON, field by field, so that the schema tells the truth.

Output only, but for the last few.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from drf_spectacular.drainage import set_override
from drf_spectacular.helpers import lazy_serializer
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from reactor_coord.declare.suggest import did_you_mean
from reactor_coord.operations.views import BranchView, StepView

_MODULE = "reactor_coord.api.serializers"


class Named(serializers.Serializer[Any]):
    """In the schema all of ours begin with `Reactor`: a project's own schema may have a `Step` or a `Problem` besides."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        set_override(cls, "component_name", f"Reactor{cls.__name__}")


class Holder(Named):
    """Who has a key."""

    name = serializers.CharField()
    owner = serializers.CharField()
    execution = serializers.CharField(allow_blank=True)
    reactor = serializers.CharField(allow_blank=True)
    step = serializers.CharField(allow_blank=True)
    state = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    lease_left = serializers.FloatField(allow_null=True, help_text="Seconds until it lapses unless it is renewed.")
    fence = serializers.IntegerField(allow_null=True)
    live = serializers.BooleanField(help_text="False: as last recorded, not as Redis has it now.")


class Wait(Named):
    """What a parked or paused execution waits on."""

    kind = serializers.CharField(help_text="contention, retry, result, interrupt or fan_out.")
    step = serializers.CharField(allow_blank=True)
    path = serializers.CharField(allow_blank=True)
    reactor = serializers.CharField(allow_blank=True)
    primitive = serializers.CharField(allow_blank=True)
    key = serializers.CharField(allow_blank=True)
    keys = serializers.ListField(child=serializers.CharField())
    holder = Holder(allow_null=True)
    place = serializers.IntegerField(allow_null=True, help_text="Place in line, from 1.")
    waiting = serializers.IntegerField(allow_null=True, help_text="How many stand in that line.")
    attempts = serializers.IntegerField()
    since = serializers.DateTimeField(allow_null=True)
    next_check = serializers.DateTimeField(allow_null=True, help_text="When it looks again if nobody wakes it before.")
    live = serializers.BooleanField(help_text="False: as last recorded, not as Redis has it now.")


class Summary(Named):
    """One execution in a list."""

    id = serializers.UUIDField()
    reactor = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    status = serializers.CharField()
    status_label = serializers.CharField(help_text="The status in words, such as `failed (rollback incomplete)`.")
    mode = serializers.CharField()
    queue = serializers.CharField(allow_blank=True)
    idempotency_key = serializers.CharField(allow_blank=True)
    tags = serializers.DictField(child=serializers.JSONField())
    reason = serializers.CharField(allow_blank=True)
    waits_on = Wait(allow_null=True)
    root = serializers.CharField()  # type: ignore[assignment]
    parent = serializers.CharField(allow_blank=True, help_text="Who composed or dispatched it.")  # type: ignore[assignment]
    parent_step = serializers.CharField(allow_blank=True)
    element_index = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    duration = serializers.FloatField(allow_null=True, help_text="Seconds.")
    cancel_as_it_stands = serializers.BooleanField(help_text="Cancelled, or to be, with nothing undone.")


class Coordination(Named):
    """One declared hold of a step or of the reactor."""

    primitive = serializers.CharField()
    key = serializers.CharField(allow_blank=True)
    declared = serializers.CharField(allow_blank=True, help_text="The key as it is written in the code.")
    state = serializers.CharField(
        help_text="pending, waiting, granted, held, parked, released, passed, in its units or not taken."
    )
    holder = Holder(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)
    fence = serializers.IntegerField(allow_null=True)


class StepError(Named):
    """Why a step failed."""

    type = serializers.CharField()
    message = serializers.CharField(allow_blank=True)
    traceback = serializers.CharField(allow_blank=True)
    began = serializers.BooleanField(help_text="Whether its body had begun.")
    retryable = serializers.BooleanField()


class RollbackFailure(Named):
    """A cleanup that did not happen."""

    step = serializers.CharField()
    kind = serializers.CharField(allow_blank=True)
    key = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    message = serializers.CharField(allow_blank=True)
    error_type = serializers.CharField(
        allow_blank=True, help_text="`CompensationError` where it could not have its key."
    )


class Failure(Named):
    """What ended an execution."""

    step = serializers.CharField(allow_blank=True)
    reactor = serializers.CharField(allow_blank=True)
    type = serializers.CharField()
    message = serializers.CharField(allow_blank=True)
    arguments = serializers.JSONField(allow_null=True)
    rollback_closed = serializers.CharField(
        allow_blank=True, help_text="Who closed an incomplete rollback by hand, and why; empty where it was not closed."
    )


class AnswerField(Named):
    """One value that an answer has."""

    name = serializers.CharField()
    type = serializers.CharField()
    required = serializers.BooleanField()  # type: ignore[assignment]
    redact = serializers.BooleanField(help_text="Not shown again once it is answered.")
    help = serializers.CharField(allow_blank=True)
    schema = serializers.JSONField(help_text="Its JSON Schema.")


class Question(Named):
    """What a paused execution asks."""

    step = serializers.CharField()
    execution = serializers.UUIDField(help_text="The one of the tree that asks.")
    reactor = serializers.CharField()
    correlation_id = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True, help_text="Null: until it is answered.")
    fields = AnswerField(many=True, help_text="The shape of its answer; empty: any JSON.")  # type: ignore[assignment]


class Unit(Named):
    """One execution that a step handed to a worker of its own."""

    id = serializers.UUIDField()
    label = serializers.CharField()  # type: ignore[assignment]
    status = serializers.CharField()
    status_label = serializers.CharField()
    element_index = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField(allow_blank=True)


class Units(Named):
    """What a step handed off. Of a fan-out only the elements that need a look are listed; `?parent=` lists them all."""

    total = serializers.IntegerField()
    done = serializers.IntegerField()
    counts = serializers.SerializerMethodField()
    is_fan_out = serializers.BooleanField()
    shown = Unit(many=True)

    @extend_schema_field(serializers.DictField(child=serializers.IntegerField()))
    def get_counts(self, units: Any) -> dict[str, int]:
        """How many are in which status."""
        return dict(units.counts)


class Step(Named):
    """One step, begun or not."""

    name = serializers.CharField()
    kind = serializers.CharField()
    status = serializers.CharField()
    level = serializers.IntegerField(help_text="Its depth in the graph.")
    depends_on = serializers.ListField(child=serializers.CharField())
    attempts = serializers.IntegerField()
    contention_attempts = serializers.IntegerField()
    workers_lost = serializers.IntegerField()
    arguments = serializers.JSONField(allow_null=True)
    result = serializers.JSONField(allow_null=True)
    oversized = serializers.BooleanField(help_text="Its arguments or result are too long to be shown.")
    error = StepError(allow_null=True)
    reason = serializers.CharField(allow_blank=True)
    correlation_id = serializers.CharField(allow_blank=True)
    rollback_failure = RollbackFailure(allow_null=True)
    coordination = Coordination(many=True)
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    duration = serializers.FloatField(allow_null=True, help_text="Seconds.")
    branches = serializers.SerializerMethodField()
    branches_total = serializers.IntegerField()
    question = Question(allow_null=True)
    units = Units(allow_null=True)

    @extend_schema_field(lazy_serializer(f"{_MODULE}.Branch")(many=True))
    def get_branches(self, step: StepView) -> Any:
        """What the step composed or fanned out, nested."""
        return Branch(step.branches, many=True, context=self.context).data


class Branch(Named):
    """A nested execution: composed, or an element of a map."""

    id = serializers.UUIDField()
    reactor = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    status = serializers.CharField()
    element_index = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField(allow_blank=True)
    definition_missing = serializers.BooleanField()
    coordination = Coordination(many=True)
    steps = serializers.SerializerMethodField()

    @extend_schema_field(lazy_serializer(f"{_MODULE}.Step")(many=True))
    def get_steps(self, branch: BranchView) -> Any:
        """Its own steps."""
        return Step(branch.steps, many=True, context=self.context).data


class Trace(Named):
    """One trace row."""

    sequence = serializers.IntegerField()
    at = serializers.DateTimeField()
    offset = serializers.FloatField(help_text="Seconds since the execution was created.")
    kind = serializers.CharField()
    execution = serializers.UUIDField()
    reactor = serializers.CharField()
    step = serializers.CharField(allow_blank=True)
    primitive = serializers.CharField(allow_blank=True)
    key = serializers.CharField(allow_blank=True)
    data = serializers.JSONField(allow_null=True)  # type: ignore[assignment]


class Detail(Named):
    """Everything about one execution but its trace, which has a page of its own."""

    execution = Summary(source="summary")
    explain = serializers.CharField(help_text="How it stands, in one sentence.")
    notice = serializers.CharField(allow_blank=True, help_text="Set when Redis could not be asked.")
    definition_missing = serializers.BooleanField()
    inputs = serializers.JSONField(allow_null=True)
    result = serializers.JSONField(allow_null=True)
    failure = Failure(allow_null=True)
    rollback_failures = RollbackFailure(many=True)
    waits_on = Wait(allow_null=True)
    questions = Question(many=True, help_text="What it asks now, composed executions included.")
    coordination = Coordination(many=True, help_text="Of the reactor as a whole.")
    steps = Step(many=True)
    steps_hidden = serializers.IntegerField()
    allowed = serializers.SerializerMethodField(help_text="The actions that make sense now.")
    cancel_requested = serializers.BooleanField()
    worker = serializers.CharField(allow_blank=True)
    workers_lost = serializers.IntegerField()
    lease_expires_at = serializers.DateTimeField(allow_null=True)
    trace_total = serializers.IntegerField()

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_allowed(self, detail: Any) -> list[str]:
        """The verbs, in order."""
        return sorted(detail.allowed)


class Hold(Named):
    """One live hold."""

    key = serializers.CharField()
    primitive = serializers.CharField()
    state = serializers.CharField(help_text="held, granted or parked.")
    holder = serializers.CharField(help_text="The holder in few words.")
    owner = serializers.CharField()
    execution = serializers.CharField(allow_blank=True)
    reactor = serializers.CharField(allow_blank=True)
    step = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField(allow_null=True)
    lease_left = serializers.FloatField(help_text="Seconds until it lapses unless it is renewed.")
    fence = serializers.IntegerField(help_text="Name it to release this hold and no other.")
    count = serializers.IntegerField()
    waiting = serializers.IntegerField()
    slots_used = serializers.IntegerField(allow_null=True, help_text="Of a semaphore, by all its holders.")
    limit = serializers.IntegerField(allow_null=True, help_text="Of a semaphore, as last asked for.")


class Waiter(Named):
    """One place in one line."""

    key = serializers.CharField()
    primitive = serializers.CharField()
    place = serializers.IntegerField()
    owner = serializers.CharField()
    execution = serializers.CharField(allow_blank=True)
    reactor = serializers.CharField(allow_blank=True)
    step = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField(allow_null=True)
    kind = serializers.CharField(help_text="parked (woken by a message) or blocking (a process that stands there).")
    priority = serializers.IntegerField()
    ticket = serializers.IntegerField(help_text="Name it to drop this waiter and no other.")


class RateWindow(Named):
    """One window of a rate limit."""

    limit = serializers.IntegerField()
    seconds = serializers.FloatField()
    count = serializers.IntegerField(help_text="Starts counted in it now, those planned in it included.")
    ends_at = serializers.DateTimeField(allow_null=True, help_text="Of a fixed window.")


class PlannedSlot(Named):
    """One start to come."""

    who = serializers.CharField(help_text="Name it, with `at`, to forget this slot.")
    execution = serializers.CharField(allow_blank=True)
    step = serializers.CharField(allow_blank=True)
    at = serializers.FloatField(help_text="Unix seconds.")
    due = serializers.DateTimeField(allow_null=True)


class RateLimit(Named):
    """One rate limit of which something is left."""

    key = serializers.CharField()
    algorithm = serializers.CharField()
    windows = RateWindow(many=True)
    planned = PlannedSlot(many=True, help_text="The soonest.")
    planned_total = serializers.IntegerField()


class Bucket(Named):
    """One marked bucket of a period."""

    key = serializers.CharField()
    bucket = serializers.CharField()
    by = serializers.CharField(help_text="The execution that ran in it.")
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True, help_text="Until then a second run is skipped.")


class Position(Named):
    """One position that has not passed."""

    position = serializers.IntegerField()
    state = serializers.CharField(help_text="waiting, running or paused.")
    execution = serializers.CharField(allow_blank=True)
    reactor = serializers.CharField(allow_blank=True)
    step = serializers.CharField(allow_blank=True)
    passed_over = serializers.DateTimeField(
        allow_null=True, help_text="Once it is its turn, and without a sign of life."
    )


class OrderedLine(Named):
    """One ordered line somebody is in, or that is failed for those who come."""

    key = serializers.CharField()
    epoch = serializers.IntegerField(help_text="Name it to act on this line, and not on one that began since.")
    next = serializers.IntegerField()
    last_completed = serializers.IntegerField()
    last_given = serializers.IntegerField()
    first_failed = serializers.IntegerField(help_text="0 while none failed.")
    waiting = serializers.IntegerField(help_text="How many have not passed.")
    in_flight = Position(many=True, help_text="The first of them.")
    failed_until = serializers.DateTimeField(
        allow_null=True, help_text="Until then those who come skip, although the line may be drained."
    )
    failed_by = serializers.CharField(
        allow_blank=True,
        help_text="The execution whose retry heals the line, if it succeeds; an operator may reset it.",
    )


class Park(Named):
    """One execution that stepped aside."""

    execution = serializers.UUIDField()
    reactor = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    status = serializers.CharField()
    wait = Wait()


class Asked(Named):
    """What a request says. A field that there is not is refused by name: what is misspelt would be ignored."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = [name for name in data if name not in self.fields]
            if unknown:
                raise serializers.ValidationError(
                    {
                        name[:100]: [f"There is no such field.{did_you_mean(name[:100], self.fields)}"]
                        for name in unknown[:10]
                    }
                )
        return super().to_internal_value(data)


class Seconds(serializers.FloatField):
    """A finite number of seconds, up to a year."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=0, max_value=366 * 86400, **options)

    def to_internal_value(self, data: Any) -> float:
        found = float(super().to_internal_value(data))
        if not math.isfinite(found):
            self.fail("invalid")
        return found


class Named255(serializers.DictField):
    """JSON values by name, so many at most, each name of 255 characters and all of it of so many bytes at most."""

    def __init__(self, *, most: int, most_bytes: int | None = None, **options: Any) -> None:
        self.most, self.most_bytes = most, most_bytes
        super().__init__(child=serializers.JSONField(allow_null=True), **options)

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            if len(data) > self.most:
                raise serializers.ValidationError(f"At most {self.most} names.")
            if any(len(str(name)) > 255 for name in data):
                raise serializers.ValidationError("A name has at most 255 characters.")
        found = super().to_internal_value(data)
        if self.most_bytes is not None and len(json.dumps(found, default=str)) > self.most_bytes:
            raise serializers.ValidationError(f"At most {self.most_bytes} bytes as JSON.")
        return found


class Start(Asked):
    """What to start."""

    reactor = serializers.CharField(
        max_length=255, help_text="Dotted path, or the class's own name where only one has it."
    )
    inputs = Named255(most=1000, default=dict)
    idempotency_key = serializers.CharField(
        required=False,
        max_length=200,
        help_text="The same key returns the first execution. Also as the header Idempotency-Key, then the caller's own.",
    )
    queue = serializers.CharField(
        required=False, max_length=200, help_text="The reactor's own, or one that the setting API_QUEUES names."
    )
    countdown = Seconds(required=False, help_text="Seconds to wait before it starts.")
    tags = Named255(most=50, most_bytes=8192, required=False)


class Started(Named):
    """What was started. It can be read at once."""

    id = serializers.UUIDField()
    status = serializers.CharField()
    url = serializers.CharField()


class Reason(Asked):
    """Why, for those who read the trace later."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)


class NeededReason(Asked):
    """Why, where an act cannot be understood later without it."""

    reason = serializers.CharField(max_length=500)


class Cancel(Reason):
    """Whether what it did is undone."""

    rollback = serializers.BooleanField(
        required=False, default=True, help_text="False: what it did stands, and it can be neither undone nor retried."
    )


class Retry(Reason):
    """From where to run again: as the state allows it, unless said otherwise."""

    from_step = serializers.CharField(required=False, allow_null=True, default=None, max_length=255)


class Payload(Reason):
    """The answer to an interrupt; nothing for a run that was aborted."""

    payload = serializers.JSONField(required=False, allow_null=True, default=None)
    step = serializers.CharField(
        required=False,
        allow_null=True,
        default=None,
        max_length=255,
        help_text="Which question, where several are open.",
    )


class _Why(Asked):
    """An act on coordination has a reason."""

    reason = serializers.CharField(max_length=500)


def _key() -> serializers.CharField:
    """As it is: a key may begin or end with a space."""
    return serializers.CharField(trim_whitespace=False, max_length=2000)


class Release(_Why):
    """Which hold to release: only if `fence` is still its fence."""

    key = _key()
    primitive = serializers.CharField(required=False, default="lock", max_length=50)
    fence = serializers.IntegerField(min_value=1)


class Drop(_Why):
    """Which waiter to drop: only if that ticket still stands in line."""

    key = _key()
    primitive = serializers.CharField(required=False, default="lock", max_length=50)
    ticket = serializers.IntegerField(min_value=1)


class Skip(_Why):
    """Which position to skip: only if it has not passed, and the line is still that one."""

    key = _key()
    position = serializers.IntegerField(min_value=1)
    epoch = serializers.IntegerField(min_value=1)


class Reset(_Why):
    """Which line to begin afresh: only if it is still that one."""

    key = _key()
    epoch = serializers.IntegerField(min_value=1)


class Clear(_Why):
    """Which bucket to free: only if its mark is still that one's."""

    key = _key()
    bucket = serializers.CharField(max_length=255)
    by = serializers.CharField(max_length=255)


class Forget(_Why):
    """Which planned slot to give back: only if it is still at that time."""

    key = _key()
    who = serializers.CharField(max_length=255)
    at = serializers.FloatField()


class Released(Named):
    """What was released."""

    key = serializers.CharField()
    fence = serializers.IntegerField()
    released = serializers.BooleanField()


class Done(Named):
    """What was done, to what."""

    key = serializers.CharField()
    done = serializers.CharField(help_text="drop, skip, reset, clear or forget.")


class Problem(Named):
    """What went wrong, and what to do."""

    code = serializers.CharField()
    detail = serializers.CharField()
    fields = serializers.DictField(child=serializers.ListField(child=serializers.CharField()), required=False)  # type: ignore[assignment]
    known = serializers.ListField(child=serializers.CharField(), required=False)
