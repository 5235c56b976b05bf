"""Accounts, a ledger, and two workflows on them: `Payment` and `Transfer` in `reactors.py`."""
