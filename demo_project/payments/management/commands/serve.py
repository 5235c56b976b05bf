"""`manage.py serve`: the demo site, a worker and what they need, until Ctrl-C."""

from __future__ import annotations

import os
import socket
import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from demo_project import place, seed
from demo_project.demonstration import services, show
from reactor_coord.errors import ReactorCoordError
from reactor_coord.testing.servers import ServerError, free_port

FIRST_CHOICE = 8000
READY_SECONDS = 20.0


class Command(BaseCommand):
    """Web, worker, a Valkey where none is given, and a user to log in with."""

    help = "Run the demo site, a Celery worker and, unless REDIS_URL is set, a Valkey. Ctrl-C ends all of them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What one may ask for."""
        parser.add_argument(
            "--port", type=int, help=f"where to listen (default: {FIRST_CHOICE}, or a free port if that is taken)"
        )
        parser.add_argument("--workers", type=int, default=4, help="processes of the Celery worker (default: 4)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Start all, print the address, wait for Ctrl-C."""
        services.end_on_sigterm()
        try:
            with place.place_held():
                if not os.environ.get("REDIS_URL"):
                    sys.exit(services.run_again_with_valkey(sys.argv[1:]))
                show.migrate()
                self._serve(_port(options["port"]), options["workers"])
        except KeyboardInterrupt:
            self.stdout.write("\nEnded; nothing is left running.")
        except (place.PlaceTaken, services.WorkerFailed, ServerError, ReactorCoordError) as error:
            raise CommandError(str(error)) from error

    def _serve(self, port: int, processes: int) -> None:
        login = seed.sow()
        web = services.Child(
            [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"], place.folder() / "web.log"
        )
        try:
            with services.worker(processes) as worker:
                worker.wait_until_ready()
                _wait_for(web, port)
                address = f"http://127.0.0.1:{port}"
                self.stdout.write(f"{address}/          the demo\n{address}/admin/    {login}")
                self.stdout.write(f"{address}/api/docs/ the same over HTTP")
                self.stdout.write(
                    "Commands in another terminal find it too: manage.py coordination. Ctrl-C ends everything."
                )
                self.stdout.flush()
                while web.is_running and not services.is_orphaned():
                    worker.check()
                    time.sleep(0.3)
                raise CommandError(f"the web server has ended; its log ends:\n{web.log_end()}")
        finally:
            web.end()


def _port(wanted: int | None) -> int:
    """The port asked for, the usual one, or any that is free."""
    for port in [wanted] if wanted else [FIRST_CHOICE]:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if wanted:
                    raise CommandError(
                        f"port {wanted} cannot be used ({error.strerror}): choose another with --port"
                    ) from error
            else:
                return port
    return free_port()


def _wait_for(web: services.Child, port: int) -> None:
    """Until the site answers."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and web.is_running:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise CommandError(f"the web server did not start; its log ends:\n{web.log_end()}")
