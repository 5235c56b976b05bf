"""Killed at every effect: one reactor that uses everything, ended by SIGKILL at each row, command, message and body.

    make chaos                                             all of it, on SQLite and on PostgreSQL
    python -m tests.live.chaos --variant fails --only 17   one point again, with its journal

A first run that is left alone counts the effects. Then, for each of them, a worker process runs the reactor and kills
itself there, another worker takes over, and what the bodies noted is held against what must be true (`invariants`).

    everything.py   the reactor, whose bodies note what they do        journal.py      what they note it in
    variants.py     the ways through it, and how each must end         actors.py       the processes that play a point
    stage.py        one point played: its processes, and its rows      invariants.py   what must be true afterwards
    lane.py         a process that plays points one after the other    lanes.py        several of them, from outside
    report.py       the table                                          __main__.py     the command
"""
