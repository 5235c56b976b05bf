"""No two lists of values make one key, and no value makes two keys in two processes."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import functools
import itertools
import subprocess
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from reactor_coord import CoordinationKeyError, DefinitionError, Input, Reactor, Step, step, with_lock
from reactor_coord.declare.keys import parse_key


def key(template: Any, **arguments: Any) -> str:
    return parse_key("with_lock", template).compute(arguments)


# ---- u54: two inputs never meet

SPLIT = [
    "{a}{b}", "{a}-{b}", "{a}:{b}", "{a}|{b}", "{a}%{b}", "{a}%25{b}", "{a}25{b}", "{a}D{b}", "{a}{b}:{c}", "{a}:{b}{c}",
    "{a}{b}{c}", "{a}%{b}{c}", "x{a}={b}=", "e{a}e{b}", "{a}\u00e9{b}", "{a}::{b}", "{a}{{{b}", "{a}}}{b}{{", "{a!s}{b!s}",
    "{a}\u1100{b}", "{a}A{b}", "{a} {b}", "\u0301{a}/{b}",
]  # fmt: skip
"""Templates with two placeholders and more, in whose values what stands between them may come."""

chars = st.sampled_from([*"12:-|%={}eDAC25 é≠", "\u0301", "\u0338", "\u0323", "\u1161", "\u11a8", "\uac00", "\ud800"])
values = st.text(chars, min_size=1, max_size=4)


@given(template=st.sampled_from(SPLIT), one=st.tuples(values, values, values), other=st.tuples(values, values, values))
@example("{a}{b}", ("1", "23", "x"), ("12", "3", "x"))
@example("{a}-{b}", ("1-2", "3", "x"), ("1", "2-3", "x"))
@example("{a}%{b}", ("x", "25y%z", "x"), ("x%y", "25z", "x"))
@example("{a}={b}", ("p≠q", "\u0338r", "x"), ("p", "\u0338q≠r", "x"))
@example("e{a}e{b}", ("é", "x", "x"), ("e", "\u0301x", "x"))
def test_u54_values_are_escaped_so_that_two_inputs_never_meet(
    template: str, one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    read = sorted(parse_key("x", template).names)

    def made(values: tuple[str, ...]) -> str:
        return key(template, **dict(zip("abc", values, strict=True)))

    def counted(values: tuple[str, ...]) -> list[str]:
        return [unicodedata.normalize("NFC", value) for _, value in zip(read, values, strict=False)]

    assert (made(one) == made(other)) == (counted(one) == counted(other))


@pytest.mark.parametrize(
    ("template", "values", "made"),
    [
        # As they always were: what stands between two placeholders tells them apart.
        ("acct:{a}", {"a": "1:2%3|4"}, "acct:1:2%3|4"),
        ("{a}:{b}", {"a": "1", "b": "2"}, "1:2"),
        ("{a}:{b}", {"a": "1:2", "b": "3|4"}, "1%3A2:3|4"),
        ("{a}-{b}", {"a": "1-2", "b": "3%"}, "1%2D2-3%25"),
        ("order:{a}:item:{b}", {"a": "acme", "b": 5}, "order:ac%6D%65:item:5"),
        ("{a}:{b}", {"a": "e\u0301", "b": "\u00e9"}, "\u00e9:\u00e9"),
        ("e{a}", {"a": "\u0301"}, "\u00e9"),
        ("{a:>3}:{b!r}", {"a": "x", "b": "y"}, "  x:'y'"),
        ("{a[0]}/{a[1]}", {"a": ["x", "y/z"]}, "x/y%2Fz"),
        # Two inputs met: these have changed.
        ("{a}{b}", {"a": "1", "b": "23"}, "1|23"),
        ("{a}{b}", {"a": "1|2", "b": "3%"}, "1%7C2|3%25"),
        ("{a}:{b}{c}", {"a": "1|", "b": "2", "c": "3"}, "1%7C:2|3"),
        ("{a}%{b}", {"a": "1", "b": "25"}, "1%%25"),
        ("{a}={b}", {"a": "1", "b": "\u03382"}, "1=%CC%B82"),
    ],
)
def test_u54_only_keys_that_were_ambiguous_have_changed(template: str, values: dict[str, Any], made: str) -> None:
    assert key(template, **values) == made


def test_a_text_that_would_become_a_part_of_the_value_before_it_is_refused() -> None:
    for between in ("\u0301", "\u1161x"):
        with pytest.raises(DefinitionError, match="begins with a combining mark"):
            parse_key("with_lock", f"{{a}}{between}{{b}}")
    assert key("{a}\u0301", a="e") == "\u00e9"


@pytest.mark.parametrize("template", ["{a!s}", "{a:.0}", "x{a:.0}"])
def test_a_value_that_is_empty_as_it_is_formatted_makes_no_key(template: str) -> None:
    with pytest.raises(CoordinationKeyError, match="'a' is empty"):
        key(template, a="")


# ---- u53: one value never makes two keys


@dataclasses.dataclass
class Tagged:
    """Prints its fields."""

    name: str
    tags: Any = frozenset()


@dataclasses.dataclass(slots=True)
class Slotted:
    """The same without a dictionary of its own."""

    tags: Any


class Model(BaseModel):
    """Prints its fields, too."""

    tags: set[str]


class Pair(NamedTuple):
    """Prints its items."""

    one: Any
    other: Any


class Account:
    """Has a text of its own, and attributes that are not in it."""

    def __init__(self, number: int) -> None:
        self.number, self.cache, self.lock = number, {1: 2}, object()

    def __str__(self) -> str:
        return f"account {self.number}"


class Shown(Account):
    """Its text is that of `repr`."""

    def __repr__(self) -> str:
        return f"<account {self.number}>"


class Items(collections.abc.Sequence[int]):
    """A sequence that prints its place in memory."""

    def __getitem__(self, index: Any) -> Any:
        return [1][index]

    def __len__(self) -> int:
        return 1


class Silent:
    """Has none."""


async def later() -> None: ...


def numbers() -> Iterator[int]:
    yield 1


UNSTABLE: list[Callable[[], Any]] = [
    lambda: [{"a", "b"}],
    lambda: ("x", [frozenset({"a"})]),
    lambda: [{"a": 1}],
    lambda: [len, later],
    lambda: [lambda: 1],
    lambda: later,
    lambda: functools.partial(later),
    lambda: Account(1).__str__,
    numbers,
    lambda: iter([1]),
    lambda: [Silent()],
    lambda: Tagged("x", {"a", "b"}),
    lambda: Tagged("x", [{"a"}]),
    lambda: [Tagged("x", {"a", "b"})],
    lambda: Tagged("x", Tagged("y", {"a"})),
    lambda: Tagged("x", later),
    lambda: Slotted({"a"}),
    lambda: Model(tags={"a"}),
    lambda: Pair(1, {"a"}),
    lambda: collections.deque([{"a"}]),
    lambda: SimpleNamespace(tags={"a"}),
    lambda: ValueError({"a"}),
    lambda: {"a": 1}.keys(),
    lambda: {"a": 1}.values(),
    lambda: memoryview(b"x"),
    lambda: [Items()],
]


@pytest.mark.parametrize("make", UNSTABLE)
@pytest.mark.parametrize("template", ["{v}", "{v!r}", "{v!s}", "{v!a}", "{w[v]}", lambda args: args["v"]])
def test_u53_what_prints_itself_differently_in_another_process_makes_no_key(template: Any, make: Any) -> None:
    value = make()
    with pytest.raises(CoordinationKeyError, match=r"order is not fixed|place in memory|no text of its own"):
        key(template, v=value, w={"v": value})


def test_u53_nor_does_a_repr_that_is_not_its_own() -> None:
    assert key("{v}", v=Account(1)) == "account 1"
    for template in ("{v!r}", "{v!a}"):
        with pytest.raises(CoordinationKeyError, match="no text of its own"):
            key(template, v=Account(1))
    with pytest.raises(CoordinationKeyError, match="no text of its own"):
        key("{v}", v=[Account(1)])


def test_u53_nor_does_a_spec_that_reads_one() -> None:
    with pytest.raises(CoordinationKeyError, match="a set, whose order"):
        key("{v:{w}}", v="x", w={"<"})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, "a", None], "[1, 'a', None]"),
        ((Decimal("1.0"), dt.date(2026, 1, 2)), "(Decimal('1.0'), datetime.date(2026, 1, 2))"),
        ([[1], [2]], "[[1], [2]]"),
        (Pair(1, "x"), "Pair(one=1, other='x')"),
        (Shown(1), "account 1"),
        ([Shown(1)], "[<account 1>]"),
        (SimpleNamespace(a=1), "namespace(a=1)"),
        ("a function at 0x7f00", "a function at 0x7f00"),
        (["at 0x7f00"], "['at 0x7f00']"),
        (range(3), "range(0, 3)"),
    ],
)
def test_what_has_one_text_everywhere_keeps_it(value: Any, text: str) -> None:
    assert key("{v}", v=value) == text


def test_u53_what_was_accepted_is_one_key_under_any_seed_of_hashes() -> None:
    """The very values a process of another hash seed prints are those this one prints."""
    program = textwrap.dedent("""
        import sys
        sys.path[:0] = sys.argv[1:]
        from tests.unit.declare.test_key_texts import Pair, Shown, key
        for value in ([1, "a", ("b", None)], Pair(1, "x"), Shown(1), {"a": ["x"]}["a"]):
            print(key("k:{v}", v=value), key("k:{v!r}", v=value))
    """)
    texts = {
        subprocess.run(
            [sys.executable, "-c", program, *sys.path],
            env={"PYTHONHASHSEED": seed, "DJANGO_SETTINGS_MODULE": "tests.settings"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


# ---- u53, at import: a type whose values never have one text


@pytest.mark.parametrize(
    ("type_", "named"),
    [
        (set[str], "set"),
        (frozenset, "frozenset"),
        (dict[str, int], "dict"),
        (list[set[int]], "set"),
        (tuple[int, dict[str, int]], "dict"),
        (set[str] | None, "set"),
        (Annotated[set[int], "doc"], "set"),
        (Callable[[int], int], "Callable"),
    ],
)
def test_u53_a_key_over_an_input_of_such_a_type_is_refused_at_import(type_: Any, named: str) -> None:
    words = rf"Bad: with_lock\('k:\{{tags\}}'\) reads 'tags' whole, .* a {named}, .* name one value in it"
    with pytest.raises(DefinitionError, match=words):
        with_lock("k:{tags}")(type("Bad", (Step,), {"tags": Input(type_)}))

    def work(tags: Any) -> None: ...

    with pytest.raises(DefinitionError, match=r"step 'work' of Bad: with_lock\(.*whole"):
        type("Bad", (Reactor,), {"tags": Input(type_), "work": step()(with_lock("k:{tags!r}")(work))})


@pytest.mark.parametrize("type_", [list[int], int | set[str], Any, object, Literal["a"], Tagged, tuple[int, ...], list])
def test_a_type_that_may_have_a_text_is_left_to_its_values(type_: Any) -> None:
    with_lock("k:{tags}")(type("Good", (Step,), {"tags": Input(type_)}))


def test_a_value_inside_such_an_input_is_fine() -> None:
    with_lock("k:{order[id]}")(type("Good", (Step,), {"order": Input(dict[str, int])}))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (later, "later is async"),
        (numbers, "numbers has a yield in it"),
        (lambda: "k", "called with one mapping"),
        (lambda account, amount: "k", "called with one mapping"),
        (lambda *, account: "k", "called with one mapping"),
    ],
)
def test_a_key_function_that_could_not_be_called_is_refused_at_import(function: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=rf"with_lock: the key: the function .*{words}"):
        with_lock(function)


def test_the_pairs_of_the_row_are_four_keys() -> None:
    pairs = [("1", "23"), ("12", "3"), ("1-2", "3"), ("1", "2-3")]
    for template in ("{a}{b}", "{a}-{b}"):
        assert len({key(template, a=a, b=b) for a, b in pairs}) == 4
    assert all(key("{a}{b}", a=a, b=b) != key("{a}{b}", a=b, b=a) for a, b in itertools.combinations("abc", 2))
