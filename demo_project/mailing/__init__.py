"""Mail to customers, at most one a day for each address: a step that its guard refuses."""
