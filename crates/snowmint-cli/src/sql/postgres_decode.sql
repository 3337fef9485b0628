-- Read ids of the layout {{layout}}
-- PostgreSQL 15 or later. Safe to run again.
-- Each function is immutable and one expression: the planner inlines it, and indexes and generated columns may use it.
-- A number that is not an id of the layout gives NULL.
-- Everything is one statement, which either works or changes nothing. It looks up operators in pg_catalog only: a function keeps
-- the operators that its installer's search_path finds.

DO $install$
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    other record;
BEGIN
PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

CREATE OR REPLACE FUNCTION {{name}}_time(id bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN {{is_id}} THEN
    -- Whole seconds and the rest apart: an interval times a number is exact only below 2^53.
    (timestamp '1970-01-01' + {{unix_ms}} / 1000 * interval '1 second'
                            + {{unix_ms}} % 1000 * interval '1 millisecond') AT TIME ZONE 'UTC'
END;
