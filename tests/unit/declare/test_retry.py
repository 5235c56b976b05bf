"""`Retry` is a value, checked when it is made."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from reactor_coord import DefinitionError, Retry


def test_defaults_and_forms() -> None:
    assert Retry(3) == Retry(max_attempts=3, backoff="exponential", base_delay=1.0, on=(Exception,))
    assert Retry(1, on=ValueError).on == (ValueError,)  # type: ignore[arg-type]
    assert Retry(1, on=[ValueError, KeyError]).on == (ValueError, KeyError)  # type: ignore[arg-type]
    assert Retry(1, base_delay=dt.timedelta(minutes=1)).base_delay == 60.0  # type: ignore[arg-type]
    assert Retry(1, base_delay=0, max_delay=5, jitter=0.5).max_delay == 5.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_attempts": 0}, "max_attempts must be a whole number of at least 1"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"backoff": "exponentail"}, "Did you mean 'exponential'"),
        ({"base_delay": -1}, "base_delay"),
        ({"max_delay": -1}, "max_delay"),
        ({"jitter": 2}, "fraction"),
        ({"on": (BaseException,)}, "exception classes"),
        ({"on": (ValueError(),)}, "exception classes"),
        ({"on": ()}, "names no exception"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=rf"Retry\(.*{words}"):
        Retry(**{"max_attempts": 3, **options})
