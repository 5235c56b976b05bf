"""What a confirmation asks."""

from __future__ import annotations

from typing import Any

from django import forms


class ReasonForm(forms.Form):
    """Why: kept in the admin's history, and in the trace where the verb takes it."""

    reason = forms.CharField(
        max_length=500,
        widget=forms.TextInput(attrs={"class": "vTextField", "autofocus": True, "autocomplete": "off"}),
        help_text="For those who read the history later.",
    )


class CancelForm(ReasonForm):
    """And whether what was done is undone."""

    as_it_stands = forms.BooleanField(
        required=False,
        label="Undo nothing",
        help_text="What it did stands, and so does what it handed off. It can be neither undone nor retried afterwards.",
    )


class Exact(forms.CharField):
    """A text as it is: a key may begin or end with a space."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"strip": False, **options})
