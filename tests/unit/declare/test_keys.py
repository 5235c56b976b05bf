"""Keys: from arguments to one text that every process agrees on."""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from reactor_coord import CoordinationKeyError, DefinitionError
from reactor_coord.declare.keys import parse_key

ID = UUID("12345678-1234-5678-1234-567812345678")


class Colour(enum.Enum):
    """A plain enum, whose text is its value."""

    RED = "red"


def key(template: Any, redacted: frozenset[str] = frozenset(), **arguments: Any) -> str:
    return parse_key("with_lock", template).compute(arguments, redacted)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        ("1", "1"),
        (1.0, "1.0"),
        (Decimal("1.10"), "1.10"),
        (0, "0"),
        (False, "False"),
        (ID, str(ID)),
        (str(ID), str(ID)),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (Colour.RED, "red"),
        ("e\u0301", "\u00e9"),
        (" x ", " x "),
        ("a:b{}%s\n", "a:b{}%s\n"),
        (SimpleNamespace(_meta=1, pk=7), "7"),
    ],
)
def test_a_value_counts_as_its_text(value: Any, text: str) -> None:
    assert key("acct:{who}", who=value) == f"acct:{text}"


def test_paths_specs_and_conversions_work() -> None:
    assert key("{order[id]}", order={"id": 3}) == "3"
    assert key("{point.x}", point=SimpleNamespace(x=4)) == "4"
    assert key("{amount:.2f}/{day:%Y-%m}", amount=1.0, day=dt.date(2026, 5, 1)) == "1.00/2026-05"
    assert key("{name!r}", name="a") == "'a'"
    assert key("plain {{}}") == "plain {}"


def test_two_values_cannot_be_cut_another_way() -> None:
    assert key("{a}:{b}", a="a:b", b="c") != key("{a}:{b}", a="a", b="b:c")
    assert key("{a}:{b}", a="a%3Ab", b="c") != key("{a}:{b}", a="a:b", b="c")
    assert key("x:{a}-{b}", a="1", b="2") == "x:1-2"


def test_a_callable_gets_the_arguments() -> None:
    assert key(lambda args: f"acct:{args['a'] + args['b']}", a=1, b=2) == "acct:3"
    assert key(lambda args: args["a"], a=5) == "5"


def test_a_redacted_value_appears_as_a_hash() -> None:
    hashed = key("card:{token}", frozenset({"token"}), token="tok_x")
    assert hashed.startswith("card:#")
    assert len(hashed) == len("card:#") + 12
    assert hashed != key("card:{token}", frozenset({"token"}), token="tok_y")


class Order:
    """Stands for a model instance, whose text may change and whose primary key does not."""

    _meta = None

    def __init__(self, pk: int, title: str) -> None:
        self.pk, self.title = pk, title

    def __str__(self) -> str:
        return self.title


@pytest.mark.parametrize(
    ("one", "other"),
    [("e\u0301", "\u00e9"), (Colour.RED, "red"), (Order(7, "old"), Order(7, "new")), (1, "1")],
)
def test_a_hash_is_that_of_the_text_the_value_counts_as(one: Any, other: Any) -> None:
    hashed = {key("card:{token}", frozenset({"token"}), token=each) for each in (one, other)}
    assert len(hashed) == 1
    assert key("card:{token}", frozenset({"token"}), token=Order(8, "old")) not in hashed


SECRET = frozenset({"token"})


def test_u119_a_function_reads_what_is_redacted_and_its_key_is_then_a_hash() -> None:
    def first_digits(args: Any) -> str:
        assert args["token"] in ("4111-1", "4111-2", "5500-1")
        return f"card:{args['token'][:4]}"

    keys = [key(first_digits, SECRET, token=token) for token in ("4111-1", "4111-2", "5500-1")]
    assert keys[0] == keys[1] != keys[2]
    assert all(each.startswith("#") and len(each) == 33 for each in keys)
    assert not any("4111" in each or "5500" in each for each in keys)


@pytest.mark.parametrize(
    ("template", "is_hashed"),
    [
        (lambda args: f"acct:{args['who']}", False),
        (lambda args: f"acct:{args.get('who')}:{'token' in args}:{len(args)}", False),
        (lambda args: f"acct:{args.get('token')}", True),
        (lambda args: "acct:{token}".format(**args), True),
        (lambda args: "acct:{token}".format_map(args), True),
        (lambda args: f"acct:{sorted(args.values())}", True),
        (lambda args: f"acct:{args}", True),
        (lambda args: dict(args)["who"], True),
    ],
)
def test_u119_it_is_a_hash_exactly_when_a_redacted_value_was_read(template: Any, is_hashed: bool) -> None:
    made = key(template, SECRET, who="w", token="tok_x")
    assert made.startswith("#") == is_hashed
    assert "tok_x" not in made


def test_u119_nor_does_its_error_say_what_it_read() -> None:
    with pytest.raises(CoordinationKeyError) as caught:
        key(lambda args: int(args["token"]), SECRET, token="tok_x")
    assert "raised ValueError." in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "tok_x" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "arguments", "problem"),
    [
        ("acct:{who}", {"who": None}, "'who' is None"),
        ("acct:{who}", {"who": ""}, "'who' is empty"),
        ("acct:{who}", {}, "no argument 'who'"),
        ("acct:{who[x]}", {"who": {}}, "KeyError"),
        ("acct:{who:>{width}}", {"who": 1, "width": None}, "None"),
        ("acct:{who}", {"who": {"a": 1}}, "dict"),
        ("acct:{who}", {"who": {1, 2}}, "set"),
        ("acct:{who}", {"who": object()}, "no text of its own"),
        (lambda args: None, {}, "it gave None"),
        (lambda args: "", {}, "it gave empty"),
        (lambda args: args["nothing"], {}, "KeyError"),
        (lambda args: 1 / 0, {}, "ZeroDivisionError"),
    ],
)
def test_a_key_that_cannot_be_told_is_an_error(template: Any, arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(CoordinationKeyError, match=problem):
        parse_key("with_lock", template).compute(arguments)


def test_a_redacted_missing_value_is_an_error_too() -> None:
    with pytest.raises(CoordinationKeyError):
        key("card:{token}", frozenset({"token"}), token=None)


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("", "the key is empty"),
        ("  ", "the key is empty"),
        ("acct:{", "not a valid format string"),
        ("acct:{}", "placeholders are argument names"),
        ("acct:{0}", "placeholders are argument names"),
        (3, "format string"),
        (None, "format string"),
        (int, "format string"),
    ],
)
def test_a_template_that_cannot_be_right_is_refused(template: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=rf"with_lock: .*{problem}"):
        parse_key("with_lock", template)


def test_the_names_in_a_template_are_known() -> None:
    assert parse_key("x", "{a}:{b.c}:{d[0]}:{e:>{f}}").names == {"a", "b", "d", "e", "f"}


def test_a_decorator_without_its_parentheses_is_told_so() -> None:
    from reactor_coord import Step, with_lock

    with pytest.raises(DefinitionError, match=r'Write @with_lock\("key"\)'):

        @with_lock
        class Bare(Step):
            pass
