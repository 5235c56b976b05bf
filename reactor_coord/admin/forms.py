"""What a confirmation asks."""

from __future__ import annotations

from django import forms


class ReasonForm(forms.Form):
    """Why: kept in the admin's history, and in the trace where the verb takes it."""

    reason = forms.CharField(
        max_length=500,
        widget=forms.TextInput(attrs={"class": "vTextField", "autofocus": True, "autocomplete": "off"}),
        help_text="For those who read the history later.",
    )


class ReleaseForm(ReasonForm):
    """Which hold: the fence shown on the page is what is released, nothing that came after it."""

    key = forms.CharField(widget=forms.HiddenInput)
    primitive = forms.CharField(widget=forms.HiddenInput)
    fence = forms.IntegerField(widget=forms.HiddenInput)
