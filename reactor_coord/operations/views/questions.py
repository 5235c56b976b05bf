"""What a paused execution asks: the question's name, the shape of its answer, until when. Read from step runs and definitions.

The payload of an answer is validated by the runtime alone; what is said of its shape here is for people, and for a form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from reactor_coord.declare.definition import StepDefinition
from reactor_coord.declare.inputs import NO_DEFAULT
from reactor_coord.declare.payload import Payload
from reactor_coord.declare.references import PathRef, Reference, StepRef
from reactor_coord.engine.states import ExecutionStatus, StepStatus
from reactor_coord.errors import CodecError
from reactor_coord.models import Execution, StepRun
from reactor_coord.storage import codec

from .shapes import FieldView, QuestionView

KIND = "interrupt"


def question_of(row: Execution, run: StepRun, declared: StepDefinition | None) -> QuestionView | None:
    """The open question of this step, if it is one and still waits."""
    if run.kind != KIND or run.status != StepStatus.WAITING or row.status != ExecutionStatus.PAUSED:
        return None
    timeout = declared.options.get("timeout") if declared is not None else None
    payload = declared.options.get("payload") if declared is not None else None
    ends_at = run.started_at + timedelta(seconds=timeout) if timeout is not None and run.started_at else None
    return QuestionView(
        step=run.step,
        execution=str(row.pk),
        reactor=row.label or row.reactor,
        correlation_id=run.correlation_id,
        since=run.started_at,
        until=ends_at,
        fields=tuple(_fields(payload)) if payload is not None else (),
        definition_missing=declared is None,
    )


def _fields(payload: Payload) -> Iterator[FieldView]:
    if payload.schema is not None:
        for name, each in payload.schema.fields.items():
            schema = each.json_schema()
            words = str(schema.get("description") or "")
            initial = None if each.default is NO_DEFAULT or each.redact else codec.display(_stored(each.default))
            kind = _type_of(schema) if "enum" in schema else each.type_label
            yield FieldView(name, kind, each.required, each.redact, words, schema, initial)
    elif payload.model is not None:
        whole = payload.model.model_json_schema()
        required = frozenset(whole.get("required", ()))
        for name, found in whole.get("properties", {}).items():
            schema = _closed(found, whole.get("$defs", {}))
            words, initial = str(schema.get("description") or ""), schema.get("default")
            yield FieldView(name, _type_of(schema), name in required, False, words, schema, initial)


def _stored(value: Any) -> Any:
    """A default as JSON, if it can be: a form that does not know it begins empty."""
    try:
        return codec.encode(value)
    except CodecError:
        return None


def _closed(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """One property's schema with what it refers to: a plain reference is followed, deeper ones are kept beside it."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found = {**definitions.get(name, {}), **{key: value for key, value in schema.items() if key != "$ref"}}
    return {**found, "$defs": dict(definitions)} if definitions and "$ref" in str(found) else found


def _type_of(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    several = [_type_of(each) for each in schema.get("anyOf", ())]
    return " | ".join(several) or str(schema.get("format") or schema.get("type") or "anything")


def secrets_in(declared: Mapping[str, StepDefinition]) -> dict[str, frozenset[str]]:
    """Interrupts whose answers have values that are not to be shown, with the names of those."""
    payloads = {name: step.options.get("payload") for name, step in declared.items() if step.kind == KIND}
    found = {
        name: each.schema.redacted for name, each in payloads.items() if each is not None and each.schema is not None
    }
    return {name: redacted for name, redacted in found.items() if redacted}


def without(value: Any, names: frozenset[str]) -> Any:
    """An answer as it is displayed, without those values."""
    if not isinstance(value, dict):
        return value
    return {name: codec.REDACTED_SHOWN if name in names else each for name, each in value.items()}


def arguments_without(declared: StepDefinition, shown: Any, secrets: Mapping[str, frozenset[str]]) -> Any:
    """The arguments of a step as they are displayed, without what they took from such an answer."""
    if not isinstance(shown, dict) or not secrets:
        return shown
    masked = dict(shown)
    for name, reference in declared.arguments.items():
        for source in reference.steps() & secrets.keys() if name in masked else ():
            masked[name] = _taken(reference, masked[name], secrets[source])
    return masked


def _taken(reference: Reference, value: Any, secret: frozenset[str]) -> Any:
    """What one argument took: a named value as it is, unless it is one of those; what a function made of it, never."""
    if isinstance(reference, StepRef):
        return without(value, secret) if isinstance(value, dict) else codec.REDACTED_SHOWN
    key = None
    while isinstance(reference, PathRef):
        key, reference = reference.key, reference.source
    return value if isinstance(reference, StepRef) and key not in secret else codec.REDACTED_SHOWN
