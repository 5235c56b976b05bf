"""Another owner that waits in line for a key, and keeps it for as long as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from reactor_coord import testing
from reactor_coord.testing.recorder import Recorder

PATIENCE_SECONDS = 20.0


@contextmanager
def in_line_for(key: str, recorder: Recorder, label: str, *, until: str) -> Iterator[None]:
    """Stand in line for the lock `key` inside the block; once it is had, keep it until a body `until` has begun.

    What it keeps is recorded under `label`. Leaving the block waits for its end, and raises what it raised.
    """
    raised: list[BaseException] = []

    def keep() -> None:
        try:
            with testing.hold(key, wait=PATIENCE_SECONDS), recorder.recording(label):
                recorder.wait_for(until)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    yield
    thread.join(2 * PATIENCE_SECONDS)
    assert not thread.is_alive(), f"the one in line for {key} did not end"
    if raised:
        raise raised[0]
