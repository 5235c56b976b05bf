"""The read models of `operations.views` as JSON, field by field, so that the schema tells the truth.

Output only, but for the last few.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.drainage import set_override
from drf_spectacular.helpers import lazy_serializer
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

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
    parent = serializers.CharField(allow_blank=True)  # type: ignore[assignment]
    created_at = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    duration = serializers.FloatField(allow_null=True, help_text="Seconds.")


class Coordination(Named):
    """One declared hold of a step or of the reactor."""

    primitive = serializers.CharField()
    key = serializers.CharField(allow_blank=True)
    declared = serializers.CharField(allow_blank=True, help_text="The key as it is written in the code.")
    state = serializers.CharField(help_text="pending, waiting, granted, held, parked, released, passed or not taken.")
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


class Failure(Named):
    """What ended an execution."""

    step = serializers.CharField(allow_blank=True)
    reactor = serializers.CharField(allow_blank=True)
    type = serializers.CharField()
    message = serializers.CharField(allow_blank=True)
    arguments = serializers.JSONField(allow_null=True)


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


class Park(Named):
    """One execution that stepped aside."""

    execution = serializers.UUIDField()
    reactor = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    status = serializers.CharField()
    wait = Wait()


class Start(Named):
    """What to start."""

    reactor = serializers.CharField(help_text="Dotted path, or the class's own name where only one has it.")
    inputs = serializers.DictField(child=serializers.JSONField(allow_null=True), default=dict)
    idempotency_key = serializers.CharField(
        required=False, max_length=255, help_text="The same key returns the first execution."
    )
    queue = serializers.CharField(required=False, max_length=255)
    countdown = serializers.FloatField(required=False, min_value=0, help_text="Seconds to wait before it starts.")
    tags = serializers.DictField(child=serializers.JSONField(), required=False)


class Started(Named):
    """What was started. It can be read at once."""

    id = serializers.UUIDField()
    status = serializers.CharField()
    url = serializers.CharField()


class Reason(Named):
    """Why, for those who read the trace later."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)


class Retry(Reason):
    """From where to run again: as the state allows it, unless said otherwise."""

    from_step = serializers.CharField(required=False, allow_null=True, default=None, max_length=255)


class Payload(Reason):
    """The answer to an interrupt; nothing for a run that was aborted."""

    payload = serializers.JSONField(required=False, allow_null=True, default=None)


class Release(Named):
    """Which hold to release: only if `fence` is still its fence."""

    key = serializers.CharField()
    primitive = serializers.CharField(required=False, default="lock")
    fence = serializers.IntegerField(min_value=1)
    reason = serializers.CharField(max_length=500)


class Released(Named):
    """What was released."""

    key = serializers.CharField()
    fence = serializers.IntegerField()
    released = serializers.BooleanField()


class Problem(Named):
    """What went wrong, and what to do."""

    code = serializers.CharField()
    detail = serializers.CharField()
    fields = serializers.DictField(child=serializers.ListField(child=serializers.CharField()), required=False)  # type: ignore[assignment]
    known = serializers.ListField(child=serializers.CharField(), required=False)
