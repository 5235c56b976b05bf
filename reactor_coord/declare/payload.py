"""What an interrupt accepts as its answer: a mapping of names to types, or a pydantic model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from reactor_coord.declare.inputs import InputSchema, schema_from_types
from reactor_coord.declare.shown import shown
from reactor_coord.errors import DefinitionError, InputValidationError


@dataclass(frozen=True, slots=True)
class Payload:
    """One of both; neither: anything goes."""

    schema: InputSchema | None = None
    model: type[BaseModel] | None = None

    @property
    def redacted(self) -> frozenset[str]:
        """The fields that must not be shown."""
        return self.schema.redacted if self.schema is not None else frozenset()

    def validate(self, value: Any, owner: str = "payload") -> Any:
        """The payload coerced: a dict, or an instance of the model. Raises `InputValidationError` with `.fields`."""
        if self.model is not None:
            return _model_value(self.model, value, owner)
        if self.schema is None:
            return value
        if not isinstance(value, Mapping):
            problem = f"must be an object with {', '.join(self.schema.fields)}"
            raise InputValidationError(owner=owner, fields={"payload": [problem]})
        return self.schema.validate(value)


def _model_value(model: type[BaseModel], value: Any, owner: str) -> BaseModel:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fields: dict[str, list[str]] = {}
        for detail in error.errors(include_url=False, include_input=False, include_context=False):
            fields.setdefault(".".join(map(str, detail["loc"])) or "payload", []).append(detail["msg"])
        raise InputValidationError(owner=owner, fields=fields) from None


def payload_of(place: str, value: Any) -> Payload:
    """Read what `interrupt(payload=...)` was given."""
    if value is None:
        return Payload()
    if isinstance(value, type) and issubclass(value, BaseModel):
        return Payload(model=value)
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return Payload(schema=schema_from_types("payload", value))
    raise DefinitionError(
        f'{place}: payload={shown(value)} must map names to types, as in {{"approved": bool}}, or be a pydantic model class.'
    )
