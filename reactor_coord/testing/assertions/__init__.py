"""Assertions about executions, steps and keys, each of which says in plain words what it found instead.

An execution is given as what `run` or `enqueue` returned, or as its row or its id. A step is named as in its reactor
(`"charge"`), or by its path from that execution: `"payment.charge"` in a composed reactor, `"lines[2].reserve"` in the third
element of a map, `"lines.reserve"` in any of them. A name that no step has fails the assertion, also one that says what did
not happen. Import them from `reactor_coord.testing`.
"""
