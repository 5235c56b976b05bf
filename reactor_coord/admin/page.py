"""A page of the admin, whatever is in the rows and keys that it shows."""

from __future__ import annotations

from django.template.response import TemplateResponse


class Page(TemplateResponse):
    """A key may hold half of a surrogate pair, for which UTF-8 has no bytes: it is shown escaped."""

    @property
    def rendered_content(self) -> str:
        """The text, in characters that can be sent."""
        return super().rendered_content.encode("utf-8", "backslashreplace").decode("utf-8")
