-- A job queue for PostgreSQL. Ids come from `snowmint serve` and hold their time, so the primary key answers questions about time
-- and there is no column and no index for it. See README.md.

CREATE TABLE jobs (
    id bigint PRIMARY KEY,
    work text NOT NULL,
    taken_by text,
    done boolean NOT NULL DEFAULT false
);
-- Only waiting jobs are in it, so it stays small.
CREATE INDEX jobs_waiting ON jobs (id) WHERE taken_by IS NULL;

-- The layout `twitter`: 22 bits below the time, which begins at 2010-11-04T01:42:54.657Z.
CREATE FUNCTION job_first_id(at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT
    RETURN ((extract(epoch FROM at) * 1000)::bigint - 1288834974657) << 22;
CREATE FUNCTION job_time(id bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT
    RETURN to_timestamp(((id >> 22) + 1288834974657) / 1000.0);

-- The oldest waiting job, for one worker of many: nobody waits for a job that another one is taking.
CREATE FUNCTION job_take(worker text) RETURNS SETOF jobs LANGUAGE sql
    BEGIN ATOMIC
        UPDATE jobs SET taken_by = worker
        WHERE id = (SELECT id FROM jobs WHERE taken_by IS NULL ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING *;
    END;

-- How long the oldest job has waited, for an alarm.
CREATE VIEW jobs_lag AS SELECT now() - job_time(min(id)) AS lag FROM jobs WHERE taken_by IS NULL;
