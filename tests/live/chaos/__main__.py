"""`python -m tests.live.chaos`: kill at every effect, and print what came of each. Exits 1 if anything was violated.

`RC_TEST_DB=sqlite` (the default) or `postgres` chooses the database. The servers are started for it, and gone afterwards.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from reactor_coord.testing.servers import postgres_server, redis_server
from tests.live.chaos import report
from tests.live.chaos.lane import Answer
from tests.live.chaos.lanes import Lane, Point, own_databases, play_all
from tests.live.chaos.variants import VARIANTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what the arguments name; the process's exit code."""
    options = _parser().parse_args(arguments)
    started = time.monotonic()
    with _lanes(1 if options.only else options.lanes) as lanes:
        if options.only:
            answers = [_play_one(lanes[0], _one_variant(options), number) for number in options.only]
        else:
            answers = _play_all(lanes, options.variant or list(VARIANTS), options.every, options.first)
    _say(report.summary(answers), f"{time.monotonic() - started:.0f} s")
    return int(any(answer.violations for answer in answers))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.live.chaos", description=__doc__)
    parser.add_argument("--variant", action="append", choices=list(VARIANTS), help="only this way (may be repeated)")
    parser.add_argument("--only", type=int, action="append", metavar="N", help="only this point, with its journal")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th point")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="begin with this point")
    parser.add_argument("--lanes", type=int, default=4, metavar="N", help="points played beside each other")
    return parser


def _one_variant(options: argparse.Namespace) -> str:
    return options.variant[0] if options.variant else next(iter(VARIANTS))


def _play_one(lane: Lane, variant: str, number: int) -> Answer:
    answer = lane.play((variant, number), keep=True)
    _say(*answer.journal, report.HEAD, report.row(answer))
    _say(f"journal and log: {answer.directory}")
    return answer


def _play_all(lanes: Sequence[Lane], variants: Sequence[str], every: int, first: int) -> list[Answer]:
    _say(report.HEAD)
    counts: list[Point] = [(variant, None) for variant in variants]
    clean = play_all(lanes, counts, lambda answer: _say(f"{report.row(answer)}  {len(answer.effects)} effects"))
    points: list[Point] = [
        (answer.variant, number) for answer in clean for number in range(first, len(answer.effects) + 1, every)
    ]
    return clean + play_all(lanes, points, lambda answer: _say(report.row(answer)))


@contextmanager
def _lanes(count: int) -> Iterator[list[Lane]]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rc-chaos-")))
        url = ""
        if os.environ.get("RC_TEST_DB", "sqlite") == "postgres":
            url = os.environ["RC_TEST_DATABASE_URL"] = stack.enter_context(postgres_server()).url
        redis_url = stack.enter_context(redis_server()).url
        os.environ.update(RC_TEST_REDIS_URL=redis_url, RC_TEST_DIR=str(directory), RC_TEST_RUN="chaos")
        databases = own_databases(count, directory, url)
        yield [stack.enter_context(Lane(names, migrates=True)) for names in databases]


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
