"""Commands for operators and for scripts, and what they print with."""
