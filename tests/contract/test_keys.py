"""Names: any text is a key, no two share one, none breaks a hash tag, none is longer than Redis or a person can bear."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactor_coord.coordination import Locks
from reactor_coord.coordination.keys import LONGEST, Names, encode, to_bytes, to_text
from tests.contract.people import refused, taken, who

ODD = [
    "a:b",
    "a:b:c",
    "{}",
    "{x}",
    "}{",
    "%7B",
    "{",
    "%s",
    "a\nb",
    "a b",
    "a\tb",
    "\0",
    "x" * 10_000,
    "x" * 9_999 + "y",
    "😀",
    "ü",
]


def test_b160_odd_keys_neither_collide_nor_fail(locks: Locks) -> None:
    held = [taken(locks.take([key], who(f"owner {number}"), ttl=10)) for number, key in enumerate(ODD)]
    for number, key in enumerate(ODD):
        answer = refused(locks.take([key], who("B"), ttl=10, join=False))
        assert answer.holder is not None
        assert answer.holder.owner == f"owner {number}"
    assert all(locks.renew(each) == frozenset() for each in held)


@given(st.text(), st.text())
def test_two_texts_never_share_a_name(one: str, other: str) -> None:
    assert (encode(one) == encode(other)) == (one == other)


@given(st.text(max_size=400))
def test_a_name_has_one_hash_tag_and_bounded_length(key: str) -> None:
    for name in Names("rc").resource("lock", key):
        text = name.decode()
        assert text.count("{") == text.count("}") == 1
        assert text.startswith("rc:{lock:")
        assert len(name) < LONGEST + 100
        assert not any(character.isspace() or ord(character) < 32 for character in text)


@given(st.text())
def test_an_encoded_key_cannot_be_taken_for_another(key: str) -> None:
    assert encode(encode(key)) == encode(key) if encode(key) == key else encode(encode(key)) != encode(key)


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_survives_the_way_to_redis_and_back(text: str) -> None:
    assert to_text(to_bytes(text)) == text


@pytest.mark.parametrize(("key", "readable"), [("acct:17", "acct:17"), ("a b{c}", "a%20b%7Bc%7D"), ("100%", "100%25")])
def test_ordinary_keys_stay_readable(key: str, readable: str) -> None:
    assert encode(key) == readable
