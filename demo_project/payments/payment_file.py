"""A file of payments: CSV with the columns `reference,account,amount` and, if one likes, `fail_at`.

The whole file is read and checked before anything is done with it, so a bad one costs nothing and can be mended and given
again. Each problem names its line and what to write instead.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

SHIPPED = Path(__file__).parent / "data" / "payments.csv"
REQUIRED = ("reference", "account", "amount")
COLUMNS = (*REQUIRED, "fail_at")
FAILURES = ("", "audit", "charge", "notify")
LARGEST = Decimal("9999999999.99")
LONGEST_WORD = 36
SHOWN = 8


@dataclass(frozen=True, slots=True)
class PaymentRow:
    """One line of the file. `fail_at` empty: it is to go through."""

    line: int
    reference: str
    account: str
    amount: Decimal
    fail_at: str = ""


class PaymentFileError(Exception):
    """The file is not one of payments; `problems` says where and what to do, one sentence each."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.path = path
        self.problems = problems
        shown = [f"  {problem}" for problem in problems[:SHOWN]]
        if len(problems) > SHOWN:
            shown.append(f"  ... and {len(problems) - SHOWN} more")
        super().__init__("\n".join([f"{path} cannot be taken, and nothing of it was:", *shown]))


def read_payments(path: Path) -> list[PaymentRow]:
    """All rows of the file in its order. Raises PaymentFileError with every problem found."""
    reader = csv.reader(_text(path).splitlines(keepends=True), strict=True)
    try:
        lines = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        remedy = "check the quotes: each that opens must close on its line"
        raise PaymentFileError(path, [f"line {reader.line_num}: {error}; {remedy}"]) from error
    if not lines:
        raise PaymentFileError(path, [f"the file is empty: its first line must be {','.join(REQUIRED)}"])
    (_, header), *body = lines
    columns = [cell.strip().lower() for cell in header]
    if problems := _header_problems(columns):
        raise PaymentFileError(path, problems)
    return _rows(path, columns, body)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise PaymentFileError(path, ["there is no such file: check --file"]) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PaymentFileError(path, [f"line {line}: not UTF-8; save the file as CSV UTF-8"]) from error
    except OSError as error:
        raise PaymentFileError(path, [f"cannot be read: {error.strerror}"]) from error


def _header_problems(columns: list[str]) -> list[str]:
    expected = ",".join(COLUMNS)
    problems = [
        f"line 1: no column {name!r}; the first line must be {expected}" for name in REQUIRED if name not in columns
    ]
    problems += [
        f"line 1: unknown column {name!r}; the columns are {expected}" for name in columns if name not in COLUMNS
    ]
    problems += [
        f"line 1: column {name!r} twice; leave one out" for name in dict.fromkeys(columns) if columns.count(name) > 1
    ]
    return problems


def _rows(path: Path, columns: list[str], body: list[tuple[int, list[str]]]) -> list[PaymentRow]:
    rows: list[PaymentRow] = []
    problems: list[str] = []
    first_seen: dict[str, int] = {}
    for line, cells in body:
        try:
            row = _row(line, columns, [cell.strip() for cell in cells])
            if row.reference in first_seen:
                raise ValueError(
                    f"reference {row.reference!r} was on line {first_seen[row.reference]} already; "
                    "each payment needs its own, or it would be paid once only"
                )
        except ValueError as error:
            problems.append(f"line {line}: {error}")
        else:
            first_seen[row.reference] = line
            rows.append(row)
    if not body:
        problems.append("the file has a first line and no payments: add one line for each")
    if problems:
        raise PaymentFileError(path, problems)
    return rows


def _row(line: int, columns: list[str], cells: list[str]) -> PaymentRow:
    """One row; a ValueError says what is wrong with it."""
    if len(cells) != len(columns):
        raise ValueError(
            f"{len(cells)} values for {len(columns)} columns ({','.join(columns)}); "
            "an amount takes a point, not a comma, and text with a comma goes in quotes"
        )
    values = dict(zip(columns, cells, strict=True))
    for name in ("reference", "account"):
        if not 0 < len(values[name]) <= LONGEST_WORD:
            raise ValueError(f"{name} is empty or longer than {LONGEST_WORD} signs; give each payment its {name}")
    fail_at = values.get("fail_at", "")
    if fail_at not in FAILURES:
        raise ValueError(f"fail_at is {fail_at!r}; leave it empty or write audit, charge or notify")
    return PaymentRow(line, values["reference"], values["account"], _amount(values["amount"]), fail_at)


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
        whole_cents = amount == amount.quantize(Decimal("0.01"))
    except InvalidOperation:
        raise ValueError(f"amount is {text!r}; write a number like 12.50") from None
    if not whole_cents or not 0 < amount <= LARGEST:
        raise ValueError(f"amount is {text}; write a positive number of at most {LARGEST} with two decimals")
    return amount.quantize(Decimal("0.01"))
