"""Decisions only: given state, an event and the present time, the new state and what is to be done. No clock, no I/O."""
