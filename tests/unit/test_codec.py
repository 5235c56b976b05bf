"""Each type survives as it was, or is refused with its place, its type and the remedy; people see no tags and no secrets."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import threading
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from django.core.files.base import ContentFile
from django.http import HttpRequest
from django.utils.functional import lazystr
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from reactor_coord.errors import CodecError
from reactor_coord.storage import codec


class Color(Enum):
    RED = "red"
    ODD = (1, 2)


class Size(IntEnum):
    SMALL = 1


class Kind(StrEnum):
    CARD = "card"


class Rights(Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True, slots=True)
class Money:
    amount: Decimal
    currency: str = "EUR"


@dataclass
class Basket:
    items: list[Money]
    count: int = field(init=False)
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.count = len(self.items)


class Point(NamedTuple):
    x: int
    y: int = 0


Old = namedtuple("Old", "a b")


class Address(BaseModel):
    model_config = ConfigDict(extra="allow")

    street: str = Field(alias="Street")
    since: dt.date | None = None


class Outer:
    class Inner(Enum):
        A = 1


PARIS = ZoneInfo("Europe/Paris")
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**53,
    2**53 + 1,
    -(2**80),
    7**9999,
    0.0,
    -0.0,
    0.1,
    1.0,
    1e22,
    1e-7,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
    "",
    "ünï\u2028",
    "\U0001f680",
    "nul\x00",
    "\ud800",
    mark_safe("<b>\x00</b>"),
    b"",
    b"\x00\xff",
    bytearray(b"x"),
    Decimal("9.50"),
    Decimal("1E+5"),
    Decimal("-0"),
    Decimal("Infinity"),
    UUID(int=7),
    dt.date(2024, 2, 29),
    dt.datetime.fromisoformat("2024-02-29T01:02:03.000004"),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=PARIS),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=PARIS, fold=1),
    dt.datetime.fromisoformat("2024-10-27T02:30:00").replace(fold=1),
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3, minutes=-30), "odd")),
    dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=1, microseconds=5))),
    dt.time(1, 2, 3, 4),
    dt.time(1, tzinfo=dt.UTC, fold=1),
    dt.timedelta(days=-1, microseconds=1),
    [],
    [1, [2, [3]]],
    (),
    (1, (2,)),
    set(),
    {1, "a", 2.5, None},
    frozenset({(1, 2)}),
    {},
    {"a": 1, "b": {"c": [Decimal("1")]}},
    {"$rc": "decimal", "v": "1"},
    {"$order": ["x"]},
    {1: "a", (1, 2): "b", None: "c", Decimal("1"): "d"},
    {"\x00": 1},
    OrderedDict([("b", 1), ("a", 2)]),
    Color.RED,
    Color.ODD,
    Size.SMALL,
    Kind.CARD,
    Rights.READ | Rights.WRITE,
    Outer.Inner.A,
    Money(Decimal("9.50")),
    Basket([Money(Decimal(1)), Money(Decimal(2), "CHF")], {"x": {1}}),
    Point(1),
    Old(1, [2]),
    Address.model_validate({"Street": "Main", "since": dt.date(2020, 1, 1), "floor": Decimal(3)}),
]


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return repr(left) == repr(right)
    if isinstance(left, Decimal):
        return str(left) == str(right)
    if isinstance(left, dt.datetime | dt.time):
        zones = str(left.tzinfo) == str(right.tzinfo) and type(left.tzinfo) is type(right.tzinfo)
        return zones and left.fold == right.fold and left.replace(tzinfo=None) == right.replace(tzinfo=None)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def through_a_database(value: Any) -> Any:
    """Encoded, as JSON text without anything PostgreSQL refuses, with keys in PostgreSQL's order, and back."""
    text = json.dumps(codec.encode(value), allow_nan=False)
    assert "\\u0000" not in text
    json.dumps(json.loads(text), ensure_ascii=False).encode()  # refuses lone surrogates

    def like_jsonb(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(sorted(pairs, key=lambda pair: (len(pair[0].encode()), pair[0].encode())))

    return codec.decode(json.loads(text, object_pairs_hook=like_jsonb))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_with_its_type(value: Any) -> None:
    back = through_a_database(value)

    assert same(value, back), (value, back)
    nested = through_a_database({"in": [value, (value,)]})
    assert same(nested, {"in": [value, (value,)]})


def test_a_nan_stays_one() -> None:
    assert math.isnan(through_a_database(math.nan))
    assert through_a_database(Decimal("sNaN")).is_snan()


def test_what_json_has_is_written_as_it_is_so_that_it_can_be_queried() -> None:
    value = {"id": 1, "paid": True, "lines": [{"qty": 2}], "receipt": "r1"}
    assert codec.encode(value) == value
    assert codec.encode({"paid": True, "id": 1}) == {"paid": True, "id": 1, "$order": ["paid", "id"]}
    assert type(codec.encode(2**53)) is int
    assert codec.encode(2**53 + 1) == {"$rc": "int", "v": "9007199254740993"}
    assert codec.encode(Decimal("9.50")) == {"$rc": "decimal", "v": "9.50"}


def test_a_dict_keeps_its_order_where_a_database_would_not() -> None:
    assert list(through_a_database({"zz": 1, "a": 2, "m": 3})) == ["zz", "a", "m"]


def test_lazy_text_becomes_text() -> None:
    assert through_a_database(gettext_lazy("hello")) == "hello"
    assert type(through_a_database([lazystr("x")])[0]) is str


def test_a_dataclass_is_put_together_without_its_constructor() -> None:
    basket = Basket([])
    basket.count = 99

    assert codec.decode(codec.encode(basket)).count == 99


def test_fields_gained_since_take_their_defaults_and_lost_ones_go() -> None:
    encoded = codec.encode(Money(Decimal(1), "CHF"))
    del encoded["v"]["currency"]
    encoded["v"]["gone"] = 1

    assert codec.decode(encoded) == Money(Decimal(1), "EUR")
    del encoded["v"]["amount"]
    with pytest.raises(CodecError, match="new field 'amount' without a default"):
        codec.decode(encoded)


def test_a_pydantic_model_keeps_what_was_set_and_what_was_extra() -> None:
    address = Address.model_validate({"Street": "Main", "floor": 3})

    back = codec.decode(codec.encode(address))

    assert back == address
    assert back.model_fields_set == {"street", "floor"}
    assert back.model_extra == {"floor": 3}


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("dataclass", "os:system"),
        ("enum", "subprocess:Popen"),
        ("pydantic", "builtins:eval"),
        ("dataclass", "tests.unit.test_codec:Color"),
        ("enum", "no.such.module:X"),
        ("namedtuple", "builtins:tuple"),
        ("dataclass", ""),
        ("no such tag", "x:Y"),
    ],
)
def test_a_row_never_makes_the_process_call_what_is_no_such_class(tag: str, name: str) -> None:
    with pytest.raises(CodecError, match="cannot be read"):
        codec.decode({"result": {"$rc": tag, "type": name, "v": {"args": ["true"]}}})


class Shouting(str):
    __slots__ = ()


class Local:
    """A class of the author's own."""


def _lambda_class() -> Any:
    return make_dataclass("Hidden", ["x"])(1)


REFUSED: list[tuple[Any, str, str]] = [
    (lambda: 1, "builtins|function", "pass what it returns"),
    ((each for each in [1]), "generator", "pass a list of what it yields"),
    (open, "builtin_function_or_method", "pass what it returns"),
    (ContentFile(b"x"), "ContentFile", "pass its name"),
    (io.BytesIO(), "BytesIO", "pass its name"),
    (HttpRequest(), "HttpRequest", "the values of the request"),
    (threading.Lock(), "lock", "pass plain data"),
    (ValueError("x"), "ValueError", "str(error)"),
    (int, "type", "pass its name"),
    (Shouting("x"), "Shouting", "the plain type"),
    (Local(), "Local", "pass plain data"),
    (_lambda_class(), "Hidden", "define it at the top of a module"),
    (dt.datetime(2024, 1, 1, tzinfo=type("Zone", (dt.tzinfo,), {})()), "datetime", "zoneinfo"),
    (1j, "complex", "pass plain data"),
    (range(3), "range", "pass plain data"),
]


@pytest.mark.parametrize(("value", "kind", "remedy"), REFUSED, ids=lambda each: type(each).__name__)
def test_what_cannot_be_carried_is_refused_with_place_type_and_remedy(value: Any, kind: str, remedy: str) -> None:
    with pytest.raises(CodecError) as caught:
        codec.encode({"basket": [0, 1, {"photo": value}]}, path="result")

    message = str(caught.value)
    assert caught.value.path == "result.basket[2].photo"
    assert message.startswith("result.basket[2].photo is a ")
    assert any(each in message for each in kind.split("|"))
    assert remedy in message


def test_the_place_names_keys_and_fields_too() -> None:
    places = [
        ({1: object()}, "[1]"),
        ({(1, object()): 2}, "[key"),
        (Money(object()), "amount"),  # type: ignore[arg-type]
        ((0, object()), "[1]"),
    ]
    for value, place in places:
        with pytest.raises(CodecError) as caught:
            codec.encode(value)
        assert place in caught.value.path


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(CodecError, match="contain itself"):
        codec.encode(value)


def test_a_value_too_large_is_refused_with_both_sizes(settings: Any) -> None:
    settings.REACTOR_COORD = {"MAX_PAYLOAD_BYTES": 1_000}
    codec.encode("x" * 990)
    with pytest.raises(CodecError, match=r"result takes 1,002 bytes as JSON, more than the 1,000 of MAX_PAYLOAD_BYTES"):
        codec.encode("x" * 1_000, path="result")
    with pytest.raises(CodecError, match="MAX_PAYLOAD_BYTES"):
        codec.encode({"a": ["ü" * 300, "ü" * 300]})


def test_what_is_redacted_is_read_by_code_and_hidden_from_people() -> None:
    inputs = {"card": {"number": "4111", "cvc": Decimal(1)}, "amount": Decimal("9.50"), "none": None}

    encoded = codec.encode(inputs, {"card", "none", "absent"})

    assert codec.decode(encoded) == inputs
    shown = codec.display(encoded)
    assert shown == {"card": "[redacted]", "amount": "9.50", "none": "[redacted]"}
    assert "4111" not in json.dumps(shown)


def test_people_see_plain_words() -> None:
    when = dt.datetime(2024, 10, 27, 2, 30, tzinfo=PARIS, fold=1)
    value = {
        "z": Decimal("9.50"),
        "a": when,
        "tags": {"x"},
        "money": Money(Decimal(1)),
        "point": Point(1, 2),
        "color": [Color.RED, Color.ODD],
        "raw": b"abc",
        "span": dt.timedelta(minutes=5),
        "big": 2**60,
        "keys": {1: 2},
        "nul": "a\x00b",
        "nan": math.nan,
    }
    assert codec.display(codec.encode(value)) == {
        "z": "9.50",
        "a": "2024-10-27T02:30:00+01:00",
        "tags": ["x"],
        "money": {"amount": "1", "currency": "EUR"},
        "point": {"x": 1, "y": 2},
        "color": ["red", "ODD"],
        "raw": "<3 bytes>",
        "span": "0:05:00",
        "big": "1152921504606846976",
        "keys": {"1": 2},
        "nul": "a\ufffdb",
        "nan": "nan",
    }
    assert list(codec.display(codec.encode(value)))[:2] == ["z", "a"]


def test_what_is_long_is_cut_with_a_mark() -> None:
    shown = codec.display({"text": "x" * 5_000, "list": list(range(250)), "dict": {str(n): n for n in range(150)}})

    assert shown["text"] == "x" * 2_000 + "… (5,000 characters)"
    assert shown["list"][99:] == [99, "… 150 more"]
    assert len(shown["dict"]) == 101
    assert shown["dict"]["…"] == "50 more"


@pytest.mark.parametrize(
    "data",
    [
        None,
        1,
        {"$rc": "decimal"},
        {"$rc": "no"},
        {"$rc": 1, "v": {}},
        {"$order": ["a"]},
        {"$order": 1},
        {"$rc": []},
        {1: {"$order": [[]]}},
    ],
)
def test_showing_never_raises(data: Any) -> None:
    json.dumps(codec.display(data))


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.dates()
    | st.datetimes()
    | st.datetimes(timezones=st.timezones())
    | st.times()
    | st.timedeltas()
    | st.sampled_from([Color.RED, Size.SMALL, Kind.CARD])
)
KEYS = (
    st.text(st.characters(exclude_categories=()), max_size=5) | st.integers() | st.sampled_from(["$rc", "$order", "v"])
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.tuples(inner, inner)
        | st.builds(Money, amount=inner, currency=st.just("EUR"))
        | st.frozensets(st.integers() | st.text(), max_size=4)
    ),
    max_leaves=12,
)


@given(TREES)
def test_any_tree_of_values_comes_back_with_its_types(value: Any) -> None:
    assert same(through_a_database(value), value)


@given(TREES, st.sets(st.text(max_size=3)))
def test_any_tree_can_be_shown(value: Any, redacted: set[str]) -> None:
    json.dumps(codec.display(codec.encode(value, redacted)), allow_nan=False)


def test_ids_given_as_values_stay_what_they_are() -> None:
    value = uuid4()
    assert type(codec.decode(codec.encode({"id": value}))["id"]) is UUID
    assert type(codec.decode(codec.encode(SafeString("x")))) is SafeString


@pytest.mark.parametrize("data", [{"$order": 5}, {"$order": ["zz"]}, {"$order": [5], "a": 1}, {"a": {"$order": {}}}])
def test_an_order_that_was_not_written_here_cannot_be_read(data: Any) -> None:
    with pytest.raises(CodecError, match="its order names other keys"):
        codec.decode(data)
