"""The operators' surfaces: admin, API, commands."""
