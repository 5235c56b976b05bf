"""The command. It fails only where a row cannot be measured: a missed aim is a figure, and printed as one."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence

from bench import report
from bench.result import Row, Unmeasurable
from bench.stage import Stage, stage


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a row could not be measured."""
    options = _options(arguments)
    rows: list[Row] = []
    failures: list[tuple[str, str]] = []
    with stage(is_quick=options.quick) as ground:
        from bench.rows import BY_HAND, ROWS

        unknown = set(options.only) - set(ROWS) - set(BY_HAND)
        if unknown:
            known = ", ".join([*ROWS, *BY_HAND])
            print(f"no row {', '.join(sorted(unknown))}; there are: {known}", file=sys.stderr)
            return 2
        if not options.json:
            print(f"{report.surroundings()}\n")
        for name in options.only or ROWS:
            row = _measure(name, ground, failures)
            if row is not None:
                rows.append(row)
                if not options.json:
                    report.show(row)
    if options.json:
        print(report.as_json(rows, failures))
    return 1 if failures else 0


def _measure(name: str, ground: Stage, failures: list[tuple[str, str]]) -> Row | None:
    from bench.rows import BY_HAND, ROWS

    began = time.monotonic()
    try:
        row = {**ROWS, **BY_HAND}[name](ground)
    except Unmeasurable as error:
        failures.append((name, str(error)))
        print(f"{name}: not measured: {error}\n", file=sys.stderr)
        return None
    except Exception as error:  # noqa: BLE001 - the other rows are worth having
        failures.append((name, repr(error)))
        print(f"{name}: not measured:\n{traceback.format_exc()}\n", file=sys.stderr)
        return None
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return row


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="this row (may be repeated); very long ones run only so",
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: to see that it works, not to quote")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
