"""A fork in the middle of a sweep: the child must not inherit the sweep's database connection."""

from __future__ import annotations

import os
import threading
import time
import warnings

from reactor_coord.workers.forking import Unforked


def test_a_fork_waits_until_the_block_is_left_and_the_child_begins_anew() -> None:
    unforked = Unforked()
    entered = threading.Event()

    def sweep() -> None:
        with unforked:
            entered.set()
            time.sleep(0.3)

    sweeping = threading.Thread(target=sweep)
    sweeping.start()
    entered.wait()
    before = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later, of a fork beside threads
        child = os.fork()
    if child == 0:
        with unforked:
            os._exit(0)
    assert time.monotonic() - before > 0.2
    assert os.waitpid(child, 0)[1] == 0
    sweeping.join()
    with unforked:  # and the parent's goes on as it was
        pass
