"""`manage.py demo`: watch it work, and have it proven."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from demo_project import place
from demo_project.demonstration import services, show
from demo_project.demonstration.screen import Screen
from demo_project.payments.payment_file import SHIPPED, PaymentFileError, PaymentRow, read_payments
from reactor_coord.errors import ReactorCoordError
from reactor_coord.testing.servers import ServerError


class Command(BaseCommand):
    """Nine claims, shown on real processes with times; the exit status is 0 only if all of them were so."""

    help = (
        "Show payments whose charge locks its account (serialized, contended, compensated, reconciled), then a shop that "
        "ships (limited, slotted, once-a-day, in-order), then a mail that its guard refuses (guarded). "
        "Brings a Valkey of its own unless REDIS_URL is set, keeps a SQLite file in .demo/ unless DATABASE_URL is set."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What one may ask for."""
        parser.add_argument(
            "--file",
            type=Path,
            default=SHIPPED,
            help="a CSV of payments: reference,account,amount[,fail_at] (default: the one shipped)",
        )
        parser.add_argument(
            "--keep", action="store_true", help="keep what earlier demos left in .demo/ (default: start afresh)"
        )
        parser.add_argument("--workers", type=int, default=4, help="processes of the Celery worker (default: 4)")
        parser.add_argument(
            "--part",
            action="append",
            choices=show.PARTS,
            dest="parts",
            help="only this part; may be given several times",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Read the file first: a bad one costs nothing. Then the servers, then the show."""
        services.end_on_sigterm()
        try:
            rows = read_payments(options["file"])
            if options["workers"] < 1:
                raise CommandError("--workers must be at least 1")
            with place.place_held():
                if not os.environ.get("REDIS_URL"):
                    sys.exit(services.run_again_with_valkey(sys.argv[1:]))
                good = self._play(rows, options)
        except KeyboardInterrupt:
            raise CommandError("stopped; nothing is left running", returncode=130) from None
        except (PaymentFileError, place.PlaceTaken, services.WorkerFailed, ServerError, ReactorCoordError) as error:
            raise CommandError(str(error)) from error
        if not good:
            raise CommandError("a claim did not hold; see NOT SO above")

    def _play(self, rows: list[PaymentRow], options: dict[str, Any]) -> bool:
        if not options["keep"]:
            connections.close_all()
            place.forget_everything()
        show.migrate()
        parts = options["parts"] or show.PARTS
        return show.play(Screen(sys.stdout), rows, workers=options["workers"], parts=parts)
