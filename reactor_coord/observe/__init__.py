"""Receivers of the signals: structured log lines always, traces and metrics when a project asks for them.

Nothing here decides or writes a row, and nothing in the product depends on it.
"""
