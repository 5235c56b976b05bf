"""The demo project: payments on accounts that only the locks of their steps keep right.

The Celery app is imported here, so that `shared_task` binds to it in every process.
"""

from __future__ import annotations

from demo_project.celery import app as celery_app

__all__ = ["celery_app"]
