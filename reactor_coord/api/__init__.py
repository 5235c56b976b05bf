"""The HTTP API of operators: the read models of `operations` as JSON, and its verbs as POST actions.

Mount it with `path("api/", include("reactor_coord.api.urls"))`. Staff only by default (`API_PERMISSION_CLASSES`), and every
action needs its model permission besides. No row is written here.
"""
