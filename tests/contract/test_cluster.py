"""A cluster of one node with all the slots: keys of different slots one by one, the index beside the scripts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django_redis.pool import ConnectionFactory
from redis.cluster import RedisCluster

from reactor_coord.coordination import Deadlocks, Locks, OrderedLines, Refused, Semaphores, Taken, Turn
from reactor_coord.coordination.inspect import holds, line, look
from reactor_coord.coordination.keeper import Keeper
from reactor_coord.coordination.period import Periods
from reactor_coord.errors import CoordinationDamaged
from reactor_coord.testing.servers import ValkeyServer, free_port
from tests.contract.conftest import MakeLocks
from tests.contract.people import eventually, refused, taken, who


class ClusterFactory(ConnectionFactory):  # type: ignore[misc]
    """How a project reaches a cluster through django-redis, which has no client of its own for it."""

    def connect(self, url: str) -> Any:
        return RedisCluster.from_url(url)


@pytest.fixture
def cluster(make_locks: MakeLocks) -> Iterator[Locks]:
    bus = str(free_port())  # by default 10,000 above the port, which may be too high
    options = ("--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-port", bus)
    with ValkeyServer(*options) as server:
        server._ask("CLUSTER ADDSLOTSRANGE 0 16383")
        eventually(lambda: b"cluster_state:ok" in server._ask("CLUSTER INFO"), within=15)
        yield make_locks(server.url, CONNECTION_FACTORY="tests.contract.test_cluster.ClusterFactory")


def test_one_key(cluster: Locks) -> None:
    assert cluster.connection.is_cluster
    held = taken(cluster.take(["k"], who("A"), ttl=10))
    inner = taken(cluster.take(["k"], who("A"), ttl=10))
    assert inner.keys[0].how == "reentered"
    cluster.give(inner)
    assert refused(cluster.take(["k"], who("B"), ttl=10)).place == 1
    assert [waiter.owner for waiter in line("k", cluster)] == ["B"]
    assert [hold.key for hold in holds(cluster)] == ["k"]
    assert cluster.renew(held) == frozenset()
    assert cluster.park(held, 20) == frozenset()
    held = taken(cluster.take(["k"], who("A", "2"), ttl=10))
    assert cluster.give(held) == ("B",)
    view = look("k", cluster).hold
    assert view is not None
    assert cluster.release_by_force("k", fence=view.fence) == (True, ())


def test_several_keys_are_all_or_none(cluster: Locks) -> None:
    b = taken(cluster.take(["b"], who("X"), ttl=10))
    assert refused(cluster.take(["a", "b", "c"], who("A"), ttl=10)).key == "b"
    assert look("a", cluster).hold is None
    assert [waiter.owner for waiter in line("b", cluster)] == ["A"]
    assert cluster.give(b) == ("A",)
    c = taken(cluster.take(["c"], who("Y"), ttl=10))
    refused(cluster.take(["b"], who("B"), ttl=10))
    answer = refused(cluster.take(["a", "b", "c"], who("A"), ttl=10))
    assert (answer.key, answer.wakes) == ("c", ("B",))
    cluster.give(taken(cluster.take(["b"], who("B"), ttl=10)))
    assert cluster.give(c) == ("A",)
    held = taken(cluster.take(["a", "b", "c"], who("A"), ttl=10))
    assert cluster.lost(held) == frozenset()
    assert cluster.give(held) == ()


def test_blocking_and_opposite_orders(cluster: Locks) -> None:
    got: list[Taken | Refused] = []

    def body(name: str, keys: list[str]) -> None:
        for _ in range(20):
            answer = cluster.wait(keys, who(name, blocks=True), ttl=10, timeout=20)
            got.append(answer)
            if isinstance(answer, Taken):
                cluster.give(answer)

    threads = [
        threading.Thread(target=body, args=("A", ["x", "y"])),
        threading.Thread(target=body, args=("B", ["y", "x"])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [type(answer) for answer in got] == [Taken] * 40


def test_what_lapsed_is_tended(cluster: Locks) -> None:
    taken(cluster.take(["k"], who("A"), ttl=0.2))
    refused(cluster.take(["k"], who("B"), ttl=10))
    wakes: list[str] = []
    eventually(lambda: wakes.extend(cluster.tend()) or wakes == ["B"])  # type: ignore[func-returns-value]
    cluster.give(taken(cluster.take(["k"], who("B"), ttl=10)))


def test_a_semaphore(cluster: Locks, woken: list[str]) -> None:
    semaphores = Semaphores(cluster.connection, cluster.names, keeper=cluster.keeper)
    held = [taken(semaphores.take("k", who(name), limit=2, ttl=10)) for name in "AB"]
    for name in "CD":
        refused(semaphores.take("k", who(name), limit=2, ttl=10))
    assert [(hold.key, hold.owner) for hold in holds(semaphores)] == [("k", "A"), ("k", "B")]
    assert [waiter.owner for waiter in line("k", semaphores)] == ["C", "D"]
    assert semaphores.renew(held[0]) == frozenset()
    assert semaphores.give(held[0]) == ("C",)
    taken(semaphores.take("k", who("C"), limit=3, ttl=10))
    assert woken == ["D"]


def test_a_ring_of_keys_in_different_slots_is_found(cluster: Locks) -> None:
    walk = Deadlocks(cluster.connection, cluster.names)
    for owner, has in (("X", "a"), ("Y", "b")):
        taken(cluster.take([has], who(owner, step="outer"), ttl=10))
    refused(cluster.take(["a"], who("Y", step="inner"), ttl=10))
    me = who("X", step="inner")
    refused(cluster.take(["b"], me, ttl=10))
    cluster.note_wait(["b"], me)  # whoever walks records its own wait first: no script can reach the record
    assert walk.find("X") is None  # Y has not looked, and so not recorded anything
    cluster.note_wait(["a"], who("Y", step="inner"))
    ring = walk.find("Y")
    assert ring is not None and ring.victim == "Y" and set(ring.owners) == {"X", "Y"}


def test_a_blocking_victim_in_a_cluster_is_told(cluster: Locks) -> None:
    walk = Deadlocks(cluster.connection, cluster.names)
    taken(cluster.take(["a"], who("X", step="outer"), ttl=10))
    taken(cluster.take(["b"], who("Y", step="outer"), ttl=10))
    rings: list[str] = []

    def look(refused_: Refused) -> None:
        ring = walk.find("Y")
        if ring is not None:
            rings.append(ring.victim)
            raise KeyError("victim")

    def block() -> None:
        with pytest.raises(KeyError):
            cluster.wait(["a"], who("Y", step="inner", blocks=True), ttl=10, timeout=20, on_refused=look)

    blocking = threading.Thread(target=block)
    blocking.start()
    eventually(lambda: cluster.connection.client.exists(cluster.names.waits("Y")))
    me = who("X", step="inner")
    refused(cluster.take(["b"], me, ttl=10))
    cluster.note_wait(["b"], me)
    ring = walk.find("X")
    assert ring is not None and ring.victim == "Y"
    walk.tell(ring.wait_of("Y"))
    blocking.join(5)
    assert rings == ["Y"]


def test_u107_a_bucket_lists_its_successes_and_is_listed_while_there_is_one(cluster: Locks) -> None:
    periods = Periods(cluster.connection, cluster.names)
    bucket, mark = periods.look("k", "year", "UTC")
    assert mark is None
    for run in ("A/report", "B/report", "A/report"):
        periods.mark("k", bucket, run)
    ((key, (mark,)),) = periods.survey()
    assert (key, mark.runs) == ("k", ("A/report", "B/report"))
    assert (periods.unmark("k", "A/report"), periods.unmark("k", "A/report")) == (1, 0)
    assert not periods.free("k", bucket.name, "A")
    assert periods.free("k", bucket.name, "B")
    assert periods.survey() == []
    index = cluster.names.index("period")
    assert cluster.connection.commands(("ZCARD", index)) == [0]


def test_u117_a_failed_line_stays_listed_until_it_is_healed(cluster: Locks) -> None:
    lines = OrderedLines(cluster.connection, cluster.names, Keeper())

    def arrive(name: str, retry_of: str = "") -> Turn:
        ask = lines.entering("k", name, who(name), poison_timeout=60, ttl=600, retry_of=retry_of)
        found = lines.send(ask)
        assert isinstance(found, Turn)
        return found

    first = arrive("A")
    lines.complete(first.taken, failed=True, chain_ttl=60)
    (view,) = lines.survey()
    assert (view.key, view.is_drained, view.first_failed, view.failed_by) == ("k", True, 1, "A")
    behind = arrive("B")
    assert behind.failed == 1
    assert behind.epoch > first.epoch
    lines.complete(behind.taken, failed=False)
    lines.complete(arrive("C", retry_of="A").taken, failed=False)
    assert lines.survey() == []
    assert arrive("D").failed == 0


def test_u05_a_damaged_key_is_named_and_an_index_is_rebuilt(cluster: Locks) -> None:
    client, name = cluster.connection.client, f"{cluster.names.tag('lock', 'k')}:hold"
    client.rpush(name, "somebody else's")
    with pytest.raises(CoordinationDamaged) as caught:
        cluster.take(["k"], who("A"), ttl=10)
    assert (caught.value.redis_key, caught.value.key) == (name, "k")
    client.delete(name)
    held = taken(cluster.take(["k"], who("A"), ttl=10))
    index = cluster.names.index("lock").decode()
    for broken in (index, cluster.names.slot_index("lock", "k").decode()):
        client.delete(broken)
        client.set(broken, "somebody else's")
    assert [hold.key for hold in holds(cluster)] == ["k"]
    assert cluster.renew(held) == frozenset()
    cluster.give(held)
