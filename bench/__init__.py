"""What the package costs, beside its peers: `python -m bench` (or `make bench`).

Absolute times vary with the machine by almost half, so every figure stands beside a floor or a peer that was measured in the
same repetition of the same run. Each row also checks that what it timed really happened. Servers are its own.
"""
