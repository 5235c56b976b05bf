"""The demo project, tested as its author would: with `reactor_coord.testing` and the public API."""
