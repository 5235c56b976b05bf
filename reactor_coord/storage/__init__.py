"""Rows and how they are claimed, checkpointed and fenced, and the JSON they carry. The only writer of rows.

`store` has the operations, `codec` the values, `verbs` the port through which a row's own methods reach the operators'
verbs. What the rows mean is the engine's; who calls is the runtime's.
"""
