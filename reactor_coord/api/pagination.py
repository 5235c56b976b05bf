"""Pages with a cap: nobody can ask for the whole table at once."""

from __future__ import annotations

from rest_framework.pagination import PageNumberPagination


class CappedPagination(PageNumberPagination):
    """50 a page, at most 200 with `?page_size=`."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200
