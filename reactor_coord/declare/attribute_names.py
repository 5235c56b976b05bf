"""Names of class attributes that authors write and that nothing would read, each with what to write instead.

`{label}` stands for the class, `{name}` for the attribute. An option that comes to be is taken out of here.
"""

from __future__ import annotations

from collections.abc import Mapping

STEP_OPTIONS = frozenset({"retry", "atomic", "allow_in_atomic"})
REACTOR_OPTIONS = frozenset({
    "returns", "queue", "on_crash", "allow_in_atomic", "background_after", "background_before",
})  # fmt: skip

_NO_LIMIT = "Nothing here ends a body: give the client that it calls a timeout of its own."
_AT_RUN = "It belongs to one run: {label}.options({name}=...)."
_AT_REACTOR = "No step reads it: write it on the Reactor class."
_AT_STEP = "No reactor reads it: write it on a Step class, or as step(..., {name}=...)."
_DECORATOR = "What is shared is declared by a decorator above the class, as in @{word}(...)."
_RETRY = "Retries are declared as retry = Retry(max_attempts=3) on a Step, or as step(..., retry=Retry(...))."
_RESERVED = "The name is reserved for an option that this version does not have. "

_RETRIES = (
    "retries", "max_retries", "max_attempts", "attempts", "retry_policy", "retry_backoff", "retry_kwargs", "retry_jitter",
    "autoretry_for", "default_retry_delay",
)  # fmt: skip
_SHARED = {
    "lock": "with_lock", "locks": "with_lock", "coordination": "with_lock", "semaphore": "with_semaphore",
    "rate_limit": "with_rate_limit", "rate_limits": "with_rate_limit", "ordered_lock": "with_ordered_lock",
}  # fmt: skip
_EITHER: Mapping[str, str] = {
    **dict.fromkeys(_RETRIES, _RETRY),
    **{name: _DECORATOR.replace("{word}", word) for name, word in _SHARED.items()},
    "timeout": _RESERVED + _NO_LIMIT,
    "time_limit": _NO_LIMIT,
    "soft_time_limit": _NO_LIMIT,
    "output": _RESERVED + "Check in run() what it returns.",
    "schedule": _RESERVED + "Enqueue it from Celery beat, or from another scheduler.",
    "failure_policy": _RESERVED + "What fails for good is rolled back.",
    "renamed_from": "No class reads it: say it where the step stands, as in step({label}, renamed_from=...).",
    "acks_late": "A lost message is always sent again: the execution's row is the truth.",
    "ignore_result": "The value of a step is always kept.",
}

STEP_WRONG: Mapping[str, str] = {
    **_EITHER,
    **dict.fromkeys(REACTOR_OPTIONS - STEP_OPTIONS, _AT_REACTOR),
    **dict.fromkeys(("undo_timeout", "compensate_timeout"), _RESERVED + _NO_LIMIT),
    "recover": _RESERVED + "Catch the exception in run().",
    "after": "An order is said where the step is used: step({label}, after=...).",
}
"""Of a `Step`."""

REACTOR_WRONG: Mapping[str, str] = {
    **_EITHER,
    **dict.fromkeys(STEP_OPTIONS - REACTOR_OPTIONS, _AT_STEP),
    **dict.fromkeys(("ask_for", "forgets", "deadline", "expires"), _RESERVED.rstrip()),
    **dict.fromkeys(("tags", "countdown", "idempotency_key"), _AT_RUN),
}
"""Of a `Reactor`."""

HANDLERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("on_failure", "on_error", "compensation"),
        "When the step itself fails, compensate(self, error) is called; when a later one fails, undo(self, result).",
    ),
    "on_success": "Do it at the end of run(), or in a step after this one.",
    "on_retry": "self.context.attempt tells run() which attempt it is.",
}
"""Methods that other frameworks call, and this one does not."""
