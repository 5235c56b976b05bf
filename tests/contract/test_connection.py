"""What Redis and the network can do to an operation: never unprotected work, never a lost release, never a spoilt connection."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from redis.connection import BlockingConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError

from reactor_coord.conf import SETTING
from reactor_coord.coordination import Locks, Refused, Taken
from reactor_coord.coordination.connection import Connection
from reactor_coord.coordination.inspect import holds, look
from reactor_coord.errors import CoordinationUnavailable
from reactor_coord.testing.proxy import Proxy
from reactor_coord.testing.servers import ValkeyServer, free_port
from tests.contract.conftest import MakeLocks
from tests.contract.people import eventually, exit_code, in_child, refused, taken, who


@pytest.mark.parametrize("backend", [None, "django.core.cache.backends.locmem.LocMemCache"])
def test_an_alias_that_is_not_of_django_redis_is_told_as_such(settings: Any, backend: str | None) -> None:
    settings.CACHES = {**settings.CACHES, **({"other": {"BACKEND": backend}} if backend else {})}
    with pytest.raises(ImproperlyConfigured, match=rf"CACHES\['other'\], which {SETTING}.*django_redis"):
        _ = Connection("other").client


def in_use(locks: Locks) -> int:
    """Connections out of the pool that are not at hand."""
    pool = locks.connection.pool
    if isinstance(pool, BlockingConnectionPool):
        return len(pool._connections) - sum(each is not None for each in pool.pool.queue)
    return len(pool._in_use_connections) - len(locks.connection._at_hand)


def test_b007_a_lost_acquire_reply_neither_protects_nor_blocks(
    make_locks: MakeLocks, locks: Locks, proxy: Proxy
) -> None:
    """Swallowed with the connection cut: the retry of the same token finds out what the first had taken."""
    behind = make_locks(proxy.url)
    behind.give(taken(behind.take(["warm"], who("A"), ttl=60)))
    proxy.swallow_replies(1, match=b"EVALSHA")
    held = taken(behind.take(["k"], who("A"), ttl=60))
    assert proxy.swallowed == 1
    assert held.keys[0].how == "free"
    behind.give(held)
    assert isinstance(locks.take(["k"], who("B"), ttl=60), Taken)


def test_b007_twice_lost_it_is_given_back_in_the_background(
    make_locks: MakeLocks, locks: Locks, proxy: Proxy, woken: list[str]
) -> None:
    behind = make_locks(proxy.url)
    behind.give(taken(behind.take(["warm"], who("A"), ttl=60)))
    proxy.swallow_replies(2, match=b"EVALSHA")
    with pytest.raises(CoordinationUnavailable) as caught:
        behind.take(["k"], who("A"), ttl=60)
    assert (caught.value.key, caught.value.primitive) == ("k", "lock")
    assert isinstance(caught.value.__cause__, RedisConnectionError)
    assert proxy.swallowed == 2
    eventually(lambda: look("k", locks).hold is None, within=3)
    assert in_use(behind) == 0


def test_b007_the_owners_next_attempt_is_not_blocked_by_its_orphan(make_locks: MakeLocks, proxy: Proxy) -> None:
    behind = make_locks(proxy.url)
    behind.give(taken(behind.take(["warm"], who("A"), ttl=60)))
    proxy.swallow_replies(2, match=b"EVALSHA")
    with pytest.raises(CoordinationUnavailable):
        behind.take(["k"], who("A"), ttl=60)
    held = taken(behind.take(["k"], who("A"), ttl=60))
    time.sleep(0.3)  # the orphan is given back; what was taken since stays
    assert behind.renew(held) == frozenset()


def test_b007_a_reply_that_never_comes(make_locks: MakeLocks, locks: Locks, proxy: Proxy) -> None:
    behind = make_locks(proxy.url, SOCKET_TIMEOUT=0.6)
    behind.give(taken(behind.take(["warm"], who("A"), ttl=60)))
    proxy.delay_down = 2
    begun = time.monotonic()
    with pytest.raises(CoordinationUnavailable):
        behind.take(["k"], who("A"), ttl=60)
    assert time.monotonic() - begun < 1.15  # waited for once, not twice
    proxy.delay_down = 0
    eventually(lambda: look("k", locks).hold is None, within=3)
    assert in_use(behind) == 0


def test_b006_a_reply_later_than_the_lease_allows_is_not_a_hold(
    make_locks: MakeLocks, locks: Locks, proxy: Proxy
) -> None:
    behind = make_locks(proxy.url)
    behind.give(taken(behind.take(["warm"], who("A"), ttl=60)))
    proxy.delay_down = 0.3
    with pytest.raises(CoordinationUnavailable, match="half the ttl"):
        behind.take(["k"], who("A"), ttl=0.4)
    assert look("k", locks).hold is None
    proxy.delay_down = 0
    held = taken(behind.take(["k"], who("A"), ttl=0.4))
    assert behind.renew(held) == frozenset()


def test_b006_once_late_it_is_given_back_and_tried_again(make_locks: MakeLocks, locks: Locks, proxy: Proxy) -> None:
    behind = make_locks(proxy.url)
    behind.give(taken(behind.take(["warm"], who("A"), ttl=60)))
    proxy.delay_down = 0.3
    threading.Timer(0.35, lambda: setattr(proxy, "delay_down", 0.0)).start()
    held = taken(behind.take(["k"], who("A"), ttl=0.5))
    behind.give(held)
    assert look("k", locks).hold is None


def test_b026_a_release_that_fails_is_tried_again_and_its_wakes_are_sent(
    make_locks: MakeLocks, locks: Locks, proxy: Proxy, woken: list[str]
) -> None:
    behind = make_locks(proxy.url)
    held = taken(behind.take(["k"], who("A"), ttl=120))
    refused(locks.take(["k"], who("B"), ttl=10))
    proxy.refuse()
    assert behind.give(held) == ()
    time.sleep(0.5)
    assert woken == []
    proxy.refuse(False)
    eventually(lambda: woken == ["B"], within=3)
    assert isinstance(locks.take(["k"], who("B"), ttl=10), Taken)


def test_b026_a_release_whose_reply_is_lost_still_answers_whom_to_wake(
    make_locks: MakeLocks, locks: Locks, proxy: Proxy
) -> None:
    behind = make_locks(proxy.url)
    held = taken(behind.take(["k"], who("A"), ttl=120))
    refused(locks.take(["k"], who("B"), ttl=10))
    proxy.swallow_replies(1, match=b"EVALSHA")
    assert behind.give(held) == ("B",)


def test_tend_and_leave_and_force_survive_a_lost_reply(make_locks: MakeLocks, locks: Locks, proxy: Proxy) -> None:
    behind = make_locks(proxy.url)
    taken(behind.take(["k"], who("A"), ttl=0.05))
    for name in ("B", "C", "D"):
        refused(locks.take(["k"], who(name), ttl=10))
    time.sleep(0.06)
    proxy.swallow_replies(1, match=b"EVALSHA")
    assert behind.tend() == ("B",)
    proxy.swallow_replies(1, match=b"EVALSHA")
    assert behind.leave(["k"], who("B")) == ("C",)
    held = taken(locks.take(["k"], who("C"), ttl=10))
    proxy.swallow_replies(1, match=b"EVALSHA")
    assert behind.release_by_force("k", fence=held.keys[0].fence) == (True, ("D",))


def test_b183_with_redis_down_every_operation_says_so(make_locks: MakeLocks, settings: Any) -> None:
    settings.DJANGO_REDIS_IGNORE_EXCEPTIONS = True
    locks = make_locks(
        f"redis://:sesame@127.0.0.1:{free_port()}/0",
        IGNORE_EXCEPTIONS=True,
        SOCKET_TIMEOUT=0.1,
        SOCKET_CONNECT_TIMEOUT=0.1,
    )
    begun = time.monotonic()
    for operation in (
        lambda: locks.take(["k"], who("A"), ttl=10),
        lambda: locks.wait(["k"], who("A"), ttl=10, timeout=5),
        lambda: locks.leave(["k"], who("A")),
        lambda: locks.tend(),
        lambda: locks.release_by_force("k", fence=1),
        lambda: holds(locks),
    ):
        with pytest.raises(CoordinationUnavailable) as caught:
            operation()
        assert isinstance(caught.value.__cause__, RedisConnectionError)
        assert "sesame" not in f"{caught.value} {caught.value!r} {caught.value.details}"
    assert time.monotonic() - begun < 3


def test_lock_11_a_server_that_dies_and_comes_back(make_locks: MakeLocks, own_server: ValkeyServer) -> None:
    locks = make_locks(own_server.url)
    old = taken(locks.take(["k"], who("A"), ttl=10))
    own_server.kill()
    with pytest.raises(CoordinationUnavailable):
        locks.take(["k"], who("B"), ttl=10)
    own_server.start()
    new = taken(locks.take(["k"], who("B"), ttl=10))
    assert new.keys[0].fence > old.keys[0].fence
    assert locks.renew(old) == {"k"}


def test_a_frozen_server_is_not_waited_for_for_ever(make_locks: MakeLocks, own_server: ValkeyServer) -> None:
    locks = make_locks(f"{own_server.url}?socket_timeout=0.3")
    held = taken(locks.take(["k"], who("A"), ttl=10))
    own_server.pause()
    try:
        begun = time.monotonic()
        with pytest.raises(CoordinationUnavailable):
            locks.take(["k"], who("B"), ttl=10)
        assert locks.give(held) == ()
        assert time.monotonic() - begun < 3
    finally:
        own_server.resume()
    eventually(lambda: look("k", locks).hold is None, within=5)


def test_b179_script_flush_under_load_is_not_noticed(make_locks: MakeLocks, own_server: ValkeyServer) -> None:
    locks = make_locks(own_server.url)
    over = threading.Event()

    def flush() -> None:
        while not over.is_set():
            locks.connection.client.script_flush()
            time.sleep(0.001)

    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        for number in range(200):
            held = taken(locks.take(["k"], who("A"), ttl=10))
            refused(locks.take(["k"], who("B"), ttl=10))
            assert locks.renew(held) == frozenset()
            locks.park(held, 10)
            held = taken(locks.take(["k"], who("A", f"{number}"), ttl=10))
            assert locks.give(held) == ("B",)
            assert locks.leave(["k"], who("B")) == ()
            locks.tend()
    finally:
        over.set()
        flusher.join()


def is_open(locks: Locks) -> bool:
    try:
        return isinstance(locks.take(["other"], who("B"), ttl=10), Taken)
    except CoordinationUnavailable:
        return False


def test_b182_a_full_redis_fails_closed_and_recovers(make_locks: MakeLocks) -> None:
    with ValkeyServer() as server:
        locks = make_locks(server.url)
        held = taken(locks.take(["k"], who("A"), ttl=10))
        client = locks.connection.client
        empty = client.info("memory")["used_memory"]
        client.set("filler", "x" * 8 * 2**20)
        client.config_set(
            "maxmemory", empty + 4 * 2**20
        )  # megabytes below what is in use: buffers that it frees change nothing
        with pytest.raises(CoordinationUnavailable, match="memory"):
            locks.take(["other"], who("B"), ttl=10)
        client.flushdb()
        eventually(lambda: is_open(locks))
        assert locks.renew(held) == {"k"}
        eventually(lambda: in_use(locks) == 0)


def test_b180_a_replica_refuses_and_is_ridden_out(make_locks: MakeLocks, own_server: ValkeyServer) -> None:
    locks = make_locks(own_server.url)
    client = locks.connection.client
    held = taken(locks.take(["k"], who("A"), ttl=30))
    client.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
    with pytest.raises(CoordinationUnavailable):
        locks.take(["other"], who("B"), ttl=10)
    assert locks.give(held) == ()
    client.execute_command("REPLICAOF", "NO", "ONE")
    assert isinstance(locks.take(["other"], who("B"), ttl=10), Taken)
    eventually(lambda: look("k", locks).hold is None)


@pytest.mark.parametrize(
    "options",
    [
        {"CONNECTION_POOL_KWARGS": {"decode_responses": True}},
        {"CONNECTION_POOL_KWARGS": {"protocol": 2}},
        {"CONNECTION_POOL_KWARGS": {"protocol": 3, "decode_responses": True}},
        {"CONNECTION_POOL_KWARGS": {"encoding": "utf-16"}},
        {"COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor"},
        {"SERIALIZER": "django_redis.serializers.json.JSONSerializer"},
        {"CONNECTION_POOL_KWARGS": {"max_connections": 2}},
        {"PARSER_CLASS": "redis.connection._RESP2Parser", "CONNECTION_POOL_KWARGS": {"protocol": 2}},
    ],
    ids=lambda options: " ".join(f"{name}={value}" for name, value in options.items()),
)
def test_b025_the_caches_options_have_no_say(make_locks: MakeLocks, options: dict[str, Any]) -> None:
    locks = make_locks(**options)
    key = "konto:ünï \ud800 {1}"
    held = taken(locks.take([key, "b"], who("A ü"), ttl=10))
    answer = refused(locks.take([key], who("B"), ttl=10))
    assert answer.holder is not None
    assert answer.holder.owner == "A ü"
    view = look(key, locks).hold
    assert view is not None
    assert (view.key, view.owner) == (key, "A ü")
    assert {each.key for each in holds(locks)} == {key, "b"}
    assert locks.renew(held) == frozenset()
    assert locks.park(held, 1) == frozenset()
    held = taken(locks.take([key, "b"], who("A ü", "2"), ttl=10))
    assert isinstance(locks.wait(["b"], who("C", blocks=True), ttl=10, timeout=0.05), Refused)
    assert locks.give(held) == ("B",)
    assert locks.leave([key], who("B")) == ()
    assert locks.tend() == ()


def test_without_hiredis_it_is_slower_and_the_same(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reactor_coord.coordination.connection.hiredis", None)
    held = taken(locks.take(["ü \ud800"], who("A"), ttl=10))
    assert refused(locks.take(["ü \ud800"], who("B"), ttl=10)).place == 1
    assert locks.give(held) == ("B",)


def test_a_small_pool_is_left_to_others(make_locks: MakeLocks) -> None:
    locks = make_locks(CONNECTION_POOL_KWARGS={"max_connections": 1})
    held = taken(locks.take(["k"], who("A"), ttl=10))
    locks.connection.client.ping()
    assert isinstance(locks.wait(["k"], who("B", blocks=True), ttl=10, timeout=0.1), Refused)
    locks.give(held)


def test_an_exhausted_pool_is_unavailable_not_a_crash(make_locks: MakeLocks) -> None:
    locks = make_locks(CONNECTION_POOL_KWARGS={"max_connections": 1})
    borrowed = locks.connection.pool.get_connection()
    with pytest.raises(CoordinationUnavailable):
        locks.take(["k"], who("A"), ttl=10)
    locks.connection.pool.release(borrowed)
    assert isinstance(locks.take(["k"], who("A"), ttl=10), Taken)


def test_blocking_waiters_take_no_connection_of_the_pool(make_locks: MakeLocks) -> None:
    locks = make_locks(
        CONNECTION_POOL_CLASS="redis.connection.BlockingConnectionPool", CONNECTION_POOL_KWARGS={"max_connections": 2}
    )
    held = taken(locks.take(["k"], who("A"), ttl=30))
    got: list[Taken | Refused] = []
    threads = [
        threading.Thread(
            target=lambda n=n: got.append(locks.wait(["k"], who(f"W{n}", blocks=True), ttl=30, timeout=0.6))
        )
        for n in range(6)
    ]
    for each in threads:
        each.start()
        time.sleep(0.03)
    eventually(lambda: look("k", locks).waiting == 6)
    eventually(lambda: in_use(locks) == 0)
    locks.give(held)
    for each in threads:
        each.join()
    assert sum(isinstance(each, Taken) for each in got) == 1


def test_a_broken_sleep_wakes_and_asks_again(make_locks: MakeLocks, locks: Locks, proxy: Proxy) -> None:
    behind = make_locks(proxy.url)
    held = taken(locks.take(["k"], who("A"), ttl=30))
    got: list[Taken | Refused] = []
    thread = threading.Thread(target=lambda: got.append(behind.wait(["k"], who("B", blocks=True), ttl=30, timeout=20)))
    thread.start()
    eventually(lambda: look("k", locks).waiting == 1)
    time.sleep(0.05)
    proxy.cut()
    time.sleep(0.05)
    begun = time.monotonic()
    locks.give(held)
    thread.join(6)
    assert isinstance(got[0], Taken)
    assert time.monotonic() - begun < 1


def test_a_waiter_that_loses_redis_leaves_the_line_when_it_is_back(
    make_locks: MakeLocks, locks: Locks, proxy: Proxy
) -> None:
    behind = make_locks(proxy.url)
    taken(locks.take(["k"], who("A"), ttl=30))
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            behind.wait(["k"], who("B", blocks=True), ttl=30, timeout=20)
        except CoordinationUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: look("k", locks).waiting == 1)
    proxy.refuse()
    thread.join(8)
    assert len(errors) == 1
    proxy.refuse(False)
    eventually(lambda: look("k", locks).waiting == 0)


def test_an_interrupt_amid_a_reply_spoils_no_connection(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A soft time limit may be raised anywhere: the half-used connection must not answer somebody else's question."""
    from reactor_coord.coordination import connection

    reply = connection._reply

    def interrupted(*_: Any) -> Any:
        monkeypatch.setattr(connection, "_reply", reply)
        raise KeyboardInterrupt

    locks.give(taken(locks.take(["warm"], who("A"), ttl=10)))
    monkeypatch.setattr(connection, "_reply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        locks.take(["k"], who("A"), ttl=60)
    eventually(lambda: look("k", locks).hold is None)
    held = taken(locks.take(["other"], who("A"), ttl=10))
    assert held.names == ("other",)
    assert locks.renew(held) == frozenset()
    eventually(lambda: in_use(locks) == 0)


def test_a_fork_shares_no_connection(locks: Locks) -> None:
    held = taken(locks.take(["k"], who("A"), ttl=30))
    taken(locks.wait(["b"], who("A", blocks=True), ttl=30, timeout=1))

    def body() -> None:
        for number in range(200):
            each = taken(locks.take([f"child {os.getpid()}"], who(f"{os.getpid()} {number}"), ttl=10))
            locks.give(each)
        for _ in range(5):
            assert isinstance(locks.wait(["k"], who("x", blocks=True), ttl=10, timeout=0.001), Refused)

    children = [in_child(body) for _ in range(3)]
    for number in range(200):
        locks.give(taken(locks.take(["parent"], who(str(number)), ttl=10)))
        assert locks.renew(held) == frozenset()
    assert [exit_code(child) for child in children] == [0, 0, 0]
