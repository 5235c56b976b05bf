"""Store, runner, admin and API, in process."""
