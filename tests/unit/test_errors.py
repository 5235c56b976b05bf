"""Errors carry attributes, make their own sentence, and survive pickling."""

from __future__ import annotations

import pickle

import pytest

from reactor_coord import errors
from reactor_coord.results import Decided, Failure, Halt, Skipped, Success

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ReactorCoordError)]
DETAILS = {"reactor": "Payment", "step": "charge", "primitive": "lock", "key": "acct:1", "holder": "execution 42"}


@pytest.mark.parametrize("kind", ALL)
def test_every_error_survives_pickling(kind: type[errors.ReactorCoordError]) -> None:
    error = pickle.loads(pickle.dumps(kind("said", step="charge", attempts=3)))
    assert type(error) is kind
    assert str(error) == "said"
    assert error.details == {"step": "charge", "attempts": 3}
    assert vars(error)["step"] == "charge"


@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_a_sentence_and_a_code(kind: type[errors.ReactorCoordError]) -> None:
    assert str(kind())
    assert kind.code


def test_codes_are_unique() -> None:
    assert len({kind.code for kind in ALL}) == len(ALL)


@pytest.mark.parametrize(
    "kind", [kind for kind in ALL if issubclass(kind, errors.ContentionError) and kind is not errors.RateLimitExceeded]
)
def test_contention_names_step_key_and_holder(kind: type[errors.ContentionError]) -> None:
    text = str(kind(**DETAILS))
    for part in ("Payment", "charge", "lock", "acct:1", "execution 42"):
        assert part in text


def test_rate_limit_says_when_to_come_again() -> None:
    error = errors.RateLimitExceeded(step="charge", primitive="rate_limit", key="api", retry_after=1.25)
    assert "1.250 s" in str(error)
    assert "rate limit 'api'" in str(error)


def test_ceiling_names_contention_and_count() -> None:
    text = str(errors.ContentionCeilingReached(**DETAILS, attempts=2))
    assert "contention" in text
    assert "2 attempts" in text


def test_deadlock_names_the_ring() -> None:
    text = str(errors.DeadlockDetected(**DETAILS, cycle=["X holds A wants B", "Y holds B wants A"]))
    assert "X holds A wants B -> Y holds B wants A" in text


def test_details_that_nobody_gave_read_as_none() -> None:
    error = errors.LockContended(key="acct:1")
    assert error.step is None
    assert error.holder is None


def test_a_layer_that_knows_more_fills_in_what_is_not_known() -> None:
    error = errors.LockContended(key="acct:1").fill(step="charge", key="other")
    assert (error.step, error.key) == ("charge", "acct:1")
    assert "step 'charge'" in str(error)


def test_unavailable_tells_its_cause() -> None:
    error = errors.CoordinationUnavailable(key="acct:1", step="charge")
    error.__cause__ = ConnectionError("refused")
    assert "refused" in str(error)


def test_input_error_lists_every_field() -> None:
    error = errors.InputValidationError(owner="Charge", fields={"amount": ["too small"], "who": ["missing", "odd"]})
    assert str(error) == "Invalid input for Charge: amount: too small; who: missing, odd"


def test_an_except_exception_does_not_swallow_a_verdict() -> None:
    for result in (Success(1), Failure("no"), Skipped(), Halt()):
        with pytest.raises(Decided) as caught:
            try:
                raise Decided(result)
            except Exception:
                pytest.fail("swallowed")
        assert caught.value.result == result
