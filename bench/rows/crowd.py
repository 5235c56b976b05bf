"""Many processes that block on one key and ask again at once: throughput, hand-offs and fairness, beside the peers."""

from __future__ import annotations

import itertools
import multiprocessing
from dataclasses import dataclass

from bench.contender import BODY, MAKERS, OURS, Seen, stand
from bench.result import Figure, Row, check
from bench.stage import Stage
from bench.timing import jain, ms, quantile

AIM_SHARE, AIM_JAIN = 0.83, 0.99


@dataclass(frozen=True, slots=True)
class Verdict:
    """One contender's figures."""

    per_second: float
    hand_off_50: float
    hand_off_99: float
    slowest_over_fastest: float
    jain: float


def measure_8(stage: Stage) -> Row:
    """Eight."""
    return _measure(stage, 8, stage.either(6, 2))


def measure_48(stage: Stage) -> Row:
    """Forty-eight: far more than there are cores."""
    return _measure(stage, 48, stage.either(12, 4))


def _measure(stage: Stage, count: int, seconds: float) -> Row:
    rounds = stage.either(3, 1)
    runs: dict[str, list[Verdict]] = {name: [] for name in MAKERS}
    for _ in range(rounds):
        for name in MAKERS:
            runs[name].append(_contend(name, stage.valkey.url, count, seconds))
    figures: list[Figure] = []
    chosen = {name: sorted(verdicts, key=lambda each: each.per_second)[rounds // 2] for name, verdicts in runs.items()}
    for name, verdict in chosen.items():
        is_ours = name == OURS
        handed = f"{ms(verdict.hand_off_50)}, {ms(verdict.hand_off_99)}"
        shares = f"{verdict.slowest_over_fastest:.1f}, {verdict.jain:.3f}"
        figures += [
            Figure(name, f"{verdict.per_second:.0f}/s", verdict.per_second * BODY, is_ours),
            Figure("  hand-off p50, p99", handed, None, is_ours),
            Figure("  slowest over fastest, Jain", shares, None, is_ours),
        ]
    ours = chosen[OURS]
    return Row(
        name=f"crowd-{count}",
        title=f"{count} processes block on one key, {BODY * 1000:.0f} ms body, each asks again at once",
        conditions=f"not pinned; {seconds:.0f} s each, {rounds} rounds in turn, the round with the median rate",
        figures=tuple(figures),
        floor=f"the ideal of {1 / BODY:.0f}/s",
        checked="no two bodies overlapped",
        notes=("slowest over fastest: how much longer between two turns of the process that had the fewest",),
        aim=f"at least {AIM_SHARE} of the ideal, Jain at least {AIM_JAIN}",
        is_met=ours.per_second * BODY >= AIM_SHARE and ours.jain >= AIM_JAIN,
    )


def _contend(name: str, url: str, count: int, seconds: float) -> Verdict:
    # A server that has imported everything forks them: nobody's start costs the others their cores.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.contender"])
    results = context.SimpleQueue()
    ready, go = context.Semaphore(0), context.Event()
    crowd = [context.Process(target=stand, args=(name, url, seconds, ready, go, results)) for _ in range(count)]
    for each in crowd:
        each.start()
    for _ in crowd:
        check(ready.acquire(timeout=60), f"a process of {name} did not start")
    go.set()
    seen = [results.get() for _ in crowd]
    for each in crowd:
        each.join(30)
    return _judge(name, seen, seconds)


def _judge(name: str, seen: list[Seen], seconds: float) -> Verdict:
    bodies = sorted(body for each in seen for body in each.bodies)
    check(len(bodies) > 1, f"{name}: nobody got the key")
    gaps = [after[0] - before[1] for before, after in itertools.pairwise(bodies)]
    check(min(gaps) >= 0, f"{name}: two bodies overlapped")
    counts = [len(each.bodies) for each in seen]
    took = bodies[-1][1] - bodies[0][0]
    return Verdict(
        per_second=len(bodies) / max(took, seconds),
        hand_off_50=quantile(gaps, 0.5),
        hand_off_99=quantile(gaps, 0.99),
        slowest_over_fastest=max(counts) / min(counts) if min(counts) else float("inf"),
        jain=jain(counts),
    )
