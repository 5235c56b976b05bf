"""The rows on a real database: claims, leases, checkpoints, what the sweep finds."""
