"""A file of payments is taken whole or not at all, and what is wrong with it is said by line, with what to write instead."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from demo_project.payments.payment_file import SHIPPED, PaymentFileError, PaymentRow, read_payments

HEADER = "reference,account,amount,fail_at\n"


def _file(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "payments.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def _problems(tmp_path: Path, text: str | bytes) -> list[str]:
    with pytest.raises(PaymentFileError) as caught:
        read_payments(_file(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path))
    return caught.value.problems


def test_the_shipped_file_is_200_payments_on_10_accounts_some_failing_late() -> None:
    rows = read_payments(SHIPPED)
    assert len(rows) == len({row.reference for row in rows}) == 200
    assert len({row.account for row in rows}) == 10
    assert sum(row.fail_at == "notify" for row in rows) > 5


def test_a_row_is_read_with_its_line_and_exact_amount(tmp_path: Path) -> None:
    rows = read_payments(_file(tmp_path, HEADER + "\nP1, A , 12.5,\nP2,B,0.01,notify\n"))
    assert rows == [PaymentRow(3, "P1", "A", Decimal("12.50")), PaymentRow(4, "P2", "B", Decimal("0.01"), "notify")]


@pytest.mark.parametrize("text", ["\ufeffreference,account,amount\r\nP1,A,1\r\n", "Amount,Account,Reference\n1,A,P1\n"])
def test_what_spreadsheets_write_is_read(tmp_path: Path, text: str) -> None:
    assert read_payments(_file(tmp_path, text))[0].reference == "P1"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("P1,A,12,50,", "an amount takes a point, not a comma"),
        ("P1,A", "2 values for 4 columns"),
        ("P1,A,abc,", "write a number like 12.50"),
        ("P1,A,,", "write a number like 12.50"),
        ("P1,A,NaN,", "positive number"),
        ("P1,A,Infinity,", "write a number like 12.50"),
        ("P1,A,1e400,", "write a number like 12.50"),
        ("P1,A,-3,", "positive number"),
        ("P1,A,0,", "positive number"),
        ("P1,A,1.005,", "two decimals"),
        ("P1,A,99999999999,", "at most 9999999999.99"),
        (",A,1,", "reference is empty"),
        ("P1,,1,", "account is empty"),
        ("P1,A,1,late", "leave it empty or write audit, charge or notify"),
    ],
)
def test_a_bad_line_is_named_with_its_remedy(tmp_path: Path, line: str, said: str) -> None:
    (problem,) = _problems(tmp_path, f"{HEADER}P0,A,1,\n{line}\n")
    assert problem.startswith("line 3: ")
    assert said in problem


def test_a_reference_that_comes_twice_names_both_lines(tmp_path: Path) -> None:
    (problem,) = _problems(tmp_path, HEADER + "P1,A,1,\nP2,A,1,\nP1,B,2,\n")
    assert problem.startswith("line 4: ")
    assert "line 2" in problem


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    assert len(_problems(tmp_path, HEADER + "P1,A,x,\nP2,A,1,\n,A,1,\n")) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        (HEADER, "no payments"),
        ("reference,amount\nP1,1\n", "no column 'account'"),
        ("reference,account,amount,note\nP1,A,1,x\n", "unknown column 'note'"),
        ("reference,account,amount,amount\nP1,A,1,1\n", "column 'amount' twice"),
        ('reference,account,amount\nP1,"A,1\n', "check the quotes"),
        (b"reference,account,amount\nP1,M\xfcller,1\n", "line 2: not UTF-8"),
    ],
)
def test_a_bad_file_is_told_what_it_lacks(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in "\n".join(_problems(tmp_path, text))


def test_a_file_that_is_not_there_points_to_the_option(tmp_path: Path) -> None:
    with pytest.raises(PaymentFileError, match="check --file"):
        read_payments(tmp_path / "none.csv")
    with pytest.raises(PaymentFileError, match="cannot be read"):
        read_payments(tmp_path)
