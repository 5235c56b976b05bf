"""Tests against real worker processes, and the Django app whose reactors they run."""
