"""The commands. Each is one file of Django's; what they share lives above."""
