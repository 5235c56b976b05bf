"""A form for the answer to an interrupt, made from the shape the question has; what is valid the runtime decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from reactor_coord.operations.views import FieldView, QuestionView

PREFIX = "payload-"
"""Before the name of each field: an answer may well have a `reason` or a `step` of its own."""

WHOLE = f"{PREFIX}payload"
"""The one field of a question that says nothing of its answer's shape."""


class AnswerForm(forms.Form):
    """One field for each value; yes or no, a number, a choice, a line of text, or JSON for what is none of these."""

    reason = forms.CharField(
        max_length=500,
        required=False,
        label="Remark",
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
        help_text="For those who read the history later. It is no part of the answer.",
    )

    def __init__(self, question: QuestionView, data: Any = None) -> None:
        super().__init__(data)
        self.question = question
        fields = {f"{PREFIX}{each.name}": _field(each) for each in question.fields}
        if not question.fields:
            fields[WHOLE] = _json("Answer", "JSON, or nothing.", required=False)
        self.fields = {**fields, **self.fields}

    def payload(self) -> Any:
        """What was answered: what was left empty and may be is left out, so that its default holds."""
        if not self.question.fields:
            return self.cleaned_data[WHOLE]
        values = {each.name: (each, self.cleaned_data[f"{PREFIX}{each.name}"]) for each in self.question.fields}
        return {
            name: value
            for name, (each, value) in values.items()
            if each.required or value not in ("", None) or isinstance(value, bool)
        }

    def refuse(self, problems: Mapping[str, list[str]]) -> None:
        """Put what the runtime does not accept beside the fields; a place inside a value stands beside the value."""
        for place, texts in problems.items():
            name = f"{PREFIX}{place.partition('.')[0]}"
            for text in texts:
                self.add_error(name if name in self.fields else None, text)


def _field(each: FieldView) -> forms.Field:
    words: dict[str, Any] = {"label": each.name, "help_text": each.help or each.type, "initial": each.initial}
    schema = _plain(each.schema)
    if "enum" in schema:
        return _choice([(str(value), str(value)) for value in schema["enum"]], each, words)
    match schema.get("type"):
        case "boolean":  # a checkbox would say no for who has not looked
            return _choice([("true", "yes"), ("false", "no")], each, {**words, "initial": _yes_or_no(each.initial)})
        case "integer":
            return forms.IntegerField(required=each.required, **words)
        case "number":
            return forms.CharField(required=each.required, widget=_text_widget(each, schema), **words)
        case "string":
            return forms.CharField(required=each.required, strip=False, widget=_text_widget(each, schema), **words)
        case _:
            return _json(each.name, f"JSON: {each.help or each.type}", required=each.required, initial=each.initial)


def _yes_or_no(initial: Any) -> str | None:
    return None if initial is None else str(bool(initial)).lower()


def _choice(choices: list[tuple[str, str]], each: FieldView, words: dict[str, Any]) -> forms.Field:
    """One of these; nothing is chosen before somebody has, unless it has a default."""
    return forms.ChoiceField(choices=[("", "---------"), *choices], required=each.required, **words)


def _text_widget(each: FieldView, schema: Mapping[str, Any]) -> forms.Widget:
    attributes = {"class": "vTextField", "autocomplete": "off"}
    if each.redact:
        return forms.PasswordInput(attrs=attributes)
    kinds = {"date": "date", "email": "email"}
    return forms.TextInput(attrs={**attributes, "type": kinds.get(str(schema.get("format")), "text")})


class _Json(forms.JSONField):
    """Empty where there is nothing yet, not `null`."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


def _json(label: str, words: str, *, required: bool, initial: Any = None) -> forms.Field:
    widget = forms.Textarea(attrs={"class": "vLargeTextField", "rows": 4, "spellcheck": "false"})
    return _Json(label=label, help_text=words, required=required, widget=widget, initial=initial)


def _plain(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is optional is asked for as what it is otherwise; a Decimal, which is a number or a text, as a number."""
    kinds = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if kinds and {each.get("type") for each in kinds} == {"number", "string"}:
        return {**schema, "type": "number"}
    return kinds[0] if len(kinds) == 1 else schema
