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

-- Functions of another layout would read the ids of this one as other times and workers, and indexes and generated columns would
-- keep what the old functions returned. A comment says which layout is installed.
FOR other IN
    SELECT oid::regprocedure::text AS name, obj_description(oid, 'pg_proc') AS layout FROM pg_proc
    WHERE oid = to_regprocedure('{{name}}_time(bigint)')
    UNION ALL SELECT oid::regclass::text, obj_description(oid, 'pg_class') FROM pg_class
    WHERE oid = to_regclass('{{name}}_cursor')
LOOP
    IF other.layout LIKE '{{mark}}%' AND other.layout <> '{{mark}}{{layout}}' THEN
        RAISE EXCEPTION '% has the layout `%`, not `{{layout}}`', other.name, substr(other.layout, length('{{mark}}') + 1)
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Install with another --prefix and another worker, or first remove the installed layout with --drop.';
    END IF;
END LOOP;

CREATE OR REPLACE FUNCTION {{name}}_time(id bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN {{is_id}} THEN
    -- Whole seconds and the rest apart: an interval times a number is exact only below 2^53.
    (timestamp '1970-01-01' + {{unix_ms}} / 1000 * interval '1 second'
                            + {{unix_ms}} % 1000 * interval '1 millisecond') AT TIME ZONE 'UTC'
END;
COMMENT ON FUNCTION {{name}}_time(bigint) IS '{{mark}}{{layout}}';
