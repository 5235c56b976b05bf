"""Django's entry: finds the project's reactors, ties the layers' ports together. Starts no thread, opens no connection."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class ReactorCoordConfig(AppConfig):
    """The app `reactor_coord`."""

    name = "reactor_coord"
    label = "reactor_coord"
    verbose_name = _("Reactor coordination")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Bind the ports, connect the receivers, then import every installed app's `reactors` module."""
        import reactor_coord.checks
        import reactor_coord.observe.logs
        import reactor_coord.operations
        import reactor_coord.runtime
        import reactor_coord.workers  # noqa: F401 - each binds itself on import

        autodiscover_modules("reactors")
