"""The registry: found by full name, by app and label, by label; otherwise told what there is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from reactor_coord import Input, Reactor, Step, UnknownReactor, step
from reactor_coord.declare import registry


class Work(Step):
    """Something to do."""

    def run(self) -> None: ...


@pytest.fixture(autouse=True)
def only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_definitions", {})


def define(module: str, name: str, **body: Any) -> type[Reactor]:
    return type(name, (Reactor,), {"__module__": module, "work": step(Work), **body})


def test_a_reactor_is_found_by_its_names() -> None:
    payment = define("shop.payments.reactors", "Payment")
    for name in ("shop.payments.reactors.Payment", "payments.Payment", "shop.Payment", "Payment"):
        assert registry.lookup(name) is payment.definition
    assert registry.all_definitions() == (payment.definition,)


def test_an_ambiguous_label_names_the_candidates() -> None:
    define("shop.payments.reactors", "Payment")
    other = define("wages.reactors", "Payment")
    with pytest.raises(
        UnknownReactor, match=r"several reactors: shop\.payments\.reactors\.Payment, wages\.reactors\.Payment"
    ):
        registry.lookup("Payment")
    assert registry.lookup("wages.Payment") is other.definition


def test_an_unknown_name_is_answered_with_what_there_is() -> None:
    define("shop.payments.reactors", "Payment")
    with pytest.raises(UnknownReactor, match=r"No reactor is named 'Paiment'\. Did you mean 'Payment'\?") as caught:
        registry.lookup("Paiment")
    assert caught.value.known == ("shop.payments.reactors.Payment",)
    with pytest.raises(UnknownReactor, match="There is: Payment, shop"):
        registry.lookup("nothing.like.It")


def test_without_any_reactor_it_says_where_to_write_one() -> None:
    with pytest.raises(UnknownReactor, match=r"reactors\.py"):
        registry.lookup("Payment")


def test_a_reload_replaces_and_an_abstract_base_is_not_listed() -> None:
    define("shop.reactors", "Payment")
    again = define("shop.reactors", "Payment")
    define("shop.reactors", "Base", work=None)
    assert registry.all_definitions() == (again.definition,)


MODULE = """
from reactor_coord import Reactor, Step, step
class Work(Step):
    def run(self): pass
class Outer:
    class Inner(Reactor):
        work = step(Work)
"""


def test_a_full_name_imports_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_reactors.py").write_text(MODULE)
    (tmp_path / "broken_reactors.py").write_text("import no_such_library\n")
    (tmp_path / "unready_reactors.py").write_text("raise RuntimeError('models of an app that is not installed')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert registry.lookup("late_reactors.Outer.Inner").label == "Inner"
        with pytest.raises(UnknownReactor, match="cannot be imported: No module named 'no_such_library'"):
            registry.lookup("broken_reactors.Payment")
        with pytest.raises(UnknownReactor, match="cannot be imported: models of an app that is not installed"):
            registry.lookup("unready_reactors.Payment")
        with pytest.raises(UnknownReactor, match="No reactor is named"):
            registry.lookup("late_reactors.Gone")
    finally:
        sys.modules.pop("late_reactors", None)


def test_inputs_of_a_definition_are_at_hand() -> None:
    define("shop.reactors", "Payment", amount=Input(int))
    assert list(registry.lookup("Payment").schema.fields) == ["amount"]
