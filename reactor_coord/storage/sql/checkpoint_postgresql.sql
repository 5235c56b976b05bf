-- A checkpoint or a park as one statement: every part depends on the row of `guard`, which is there only for the holder of
-- the lease. Outside a transaction it commits by itself, so that a step costs one round trip and one commit.
--
-- Rows come as one JSON array a table. Parts that a batch does not need are left out; `postgresql.py` puts them together.
-- Half of what it costs is being parsed and planned, so it is kept short: rows keep the order of their array because the
-- one row of `guard` is joined to the function's scan, and nothing sorts.
-- What stays true: either all of it is written, under the lease, or nothing. No row is touched twice.

-- part: guard
-- The root, while the lease stands.
WITH guard AS (
    UPDATE {execution} AS root SET {changes} WHERE id = %s AND lease_token = %s
    RETURNING cancel_requested, wake_requested
)

-- part: guard_of_park
-- The same, and what the row said of a wake before this statement cleared it: so it is locked first.
WITH held AS (
    SELECT id, wake_requested FROM {execution} WHERE id = %s AND lease_token = %s FOR UPDATE
), guard AS (
    UPDATE {execution} AS root SET {changes} FROM held WHERE root.id = held.id
    RETURNING root.cancel_requested, held.wake_requested
)

-- part: update
-- One other execution of the tree.
, {name} AS (
    UPDATE {execution} AS member SET {changes} FROM guard WHERE member.id = %s
)

-- part: insert
-- New executions, or trace rows, in the order given.
, {name} AS (
    INSERT INTO {table} ({columns})
    SELECT {picked} FROM guard, jsonb_to_recordset(%s::jsonb) AS given ({types})
)

-- part: upsert
-- Step runs, new or changed: one row for each step of an execution.
, {name} AS (
    INSERT INTO {table} ({columns})
    SELECT {picked} FROM guard, jsonb_to_recordset(%s::jsonb) AS given ({types})
    ON CONFLICT (execution_id, step) DO UPDATE SET {overwrites}
)

-- part: answer
SELECT cancel_requested, wake_requested FROM guard
