
-- Make ids of worker {{node}}: DEFAULT {{prefix}}_next_id(), or SELECT * FROM {{prefix}}_next_ids(1000).
-- Of all databases, only this one may make ids of this worker, and in it only these three sequences.
--
-- A copy of the database (a restored dump, TEMPLATE, a clone) has the same worker: beside the original it makes the same ids. Run
-- this script there with another --worker before it inserts rows.
--
-- A cursor is a tick, shifted left by the {{sequence_bits}} bits of the sequence, plus the sequence. An id is a function of its
-- cursor and of the worker. No cursor is used twice:
--
-- 1. A *region* is the {{region}} cursors below {{prefix}}_edge. A draw reads the edge, then takes the next value of
--    {{prefix}}_cursor, and uses it only if it lies in the region that ends at the edge it has read.
-- 2. Only {{prefix}}_jump opens regions, one call at a time (an advisory lock): it sets the cursor to the start of a region that
--    begins at or above the edge, then sets the edge to its end. So the edge only grows, and regions never overlap.
-- 3. Once an edge can be read, the cursor has reached the start of its region, and until it leaves that region it only grows:
--    each value in the region is drawn once at most. Draws before that have read an older edge and do not use it. The cursor may
--    run past the edge, and the next jump then sets it back, but nobody has used a value above the edge.
--
-- So the clock, pauses and cancelled statements decide only which ids are made. A session that is paused inside a jump, even for
-- an hour and with the clock set back, sets the cursor to a region that nobody has used, since no other session can open one.
--
-- The lock cannot be left behind: it belongs to a subtransaction, which is rolled back in any case. Values of sequences are not
-- rolled back with it. Nothing is locked until the end of a transaction, and nothing is kept in a session, so that a pooler may
-- share sessions.
--
-- The cursor and the edge are not logged: a draw has nothing to sync and needs no transaction id. A crash or a failover resets
-- both, and a jump follows. {{prefix}}_logged is logged, and no region ends above that limit: a jump that needs more raises it
-- before it opens the region, and by {{reserve}} more, so that few draws log anything. The first region after a crash begins at
-- or above the limit. An id of a committed transaction lies below it, since the limit was logged before the commit.
--
-- The jump after a crash also skips {{may_lose}} of timestamps above the limit, for ids that were given out by transactions which
-- did not write and whose log was lost. Ids made faster than the layout allows use up timestamps faster than the clock: the skip
-- covers a loss of that many timestamps, not of that much time. So use ids only after the commit of a transaction that writes.

-- Another owner could set a sequence back or replace a function.
FOR other IN
    SELECT oid::regclass::text AS name, pg_get_userbyid(relowner) AS owner FROM pg_class
    WHERE oid IN (to_regclass('{{name}}_cursor'), to_regclass('{{name}}_edge'), to_regclass('{{name}}_logged'))
    UNION ALL SELECT oid::regprocedure::text, pg_get_userbyid(proowner) FROM pg_proc
    WHERE oid IN (to_regprocedure('{{name}}_clock()'), to_regprocedure('{{name}}_jump()'),
        to_regprocedure('{{name}}_next_id()'), to_regprocedure('{{name}}_next_ids(integer)'))
LOOP
    IF other.owner <> current_user THEN
        RAISE EXCEPTION '% exists and belongs to %, not to %', other.name, other.owner, current_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'Install as its owner (SET ROLE), or with another --prefix.';
    END IF;
END LOOP;

-- An older version of this script had another meaning for it.
IF to_regclass('{{name}}_limit') IS NOT NULL THEN
    RAISE EXCEPTION '{{prefix}}_limit is of an older version of these functions, which this one cannot continue'
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Install with another worker and another --prefix.';
END IF;

CREATE UNLOGGED SEQUENCE IF NOT EXISTS {{name}}_cursor MINVALUE -4611686018427387904 CACHE 1;
CREATE UNLOGGED SEQUENCE IF NOT EXISTS {{name}}_edge MINVALUE 0 CACHE 1;
CREATE SEQUENCE IF NOT EXISTS {{name}}_logged MINVALUE 0 CACHE 1;
COMMENT ON SEQUENCE {{name}}_cursor IS '{{mark}}{{layout}}';
-- A role that can set a sequence could set it back. The functions below run with the rights of their owner instead.
-- Default privileges and GRANT ON ALL SEQUENCES give rights to other roles too.
FOR other IN
    SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END AS name
    FROM pg_class, aclexplode(relacl) AS acl
    WHERE oid IN ('{{name}}_cursor'::regclass, '{{name}}_edge'::regclass, '{{name}}_logged'::regclass)
        AND acl.grantee <> relowner
LOOP
    EXECUTE 'REVOKE ALL ON SEQUENCE {{name}}_cursor, {{name}}_edge, {{name}}_logged FROM ' || other.name || ' CASCADE';
END LOOP;

-- The clock, in unix milliseconds. A float has room for the microseconds until the year 2255.
CREATE OR REPLACE FUNCTION {{name}}_clock() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::bigint;

-- Opens a region at the clock, or at the edge if that is later, and returns its first cursor.
CREATE OR REPLACE FUNCTION {{name}}_jump() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $snowmint$
DECLARE
    edge bigint;
    drawn bigint;
    logged bigint;
    now_tick bigint;
    tick bigint;
BEGIN
    BEGIN
        PERFORM pg_advisory_xact_lock({{lock}}, '{{name}}_logged'::regclass::oid::integer);
        edge := pg_sequence_last_value('{{name}}_edge');
        drawn := nextval('{{name}}_cursor');
        now_tick := ({{name}}_clock() - {{epoch_ms}}) / {{tick_ms}};
        -- Did another session jump while this one waited?
        IF edge IS NULL OR drawn >= edge OR drawn < edge - {{region}}
            OR (drawn >> {{sequence_bits}}) + {{behind}} < now_tick
        THEN
            logged := pg_sequence_last_value('{{name}}_logged');
            -- NULLs do not count: before the first draw there is neither an edge nor a limit, after a crash no edge.
            tick := greatest(
                now_tick,
                edge >> {{sequence_bits}},
                CASE WHEN edge IS NULL OR drawn < edge - {{region}} THEN (logged >> {{sequence_bits}}) + {{may_lose_ticks}} END
            );
            IF now_tick < 0 THEN
                RAISE EXCEPTION '{{prefix}}_next_id: the clock is before the epoch of the layout, {{first}}'
                    USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Correct the clock of the database server.';
            ELSIF tick >= {{max_tick}} THEN
                RAISE EXCEPTION '{{prefix}}_next_id: no timestamps left: the layout ends on {{last}}'
                    USING ERRCODE = 'sequence_generator_limit_exceeded', HINT = 'Move to another layout.';
            ELSIF tick - now_tick > {{max_ahead_ticks}} THEN
                RAISE EXCEPTION '{{prefix}}_next_id: ids are % s ahead of the clock, more than --max-ahead {{max_ahead}}',
                    (tick - now_tick) * {{tick_ms}} / 1000
                    USING ERRCODE = 'object_not_in_prerequisite_state',
                    HINT = 'The clock went back, or ids are made faster than the layout allows. Correct the clock of the '
                        'server, wait, or install the functions again with another worker and --prefix.';
            END IF;
            edge := least(tick + {{region_ticks}}, {{max_tick}}) << {{sequence_bits}};
            IF logged IS NULL OR logged < edge THEN
                PERFORM setval('{{name}}_logged', least(tick + {{region_ticks}} + {{reserve_ticks}}, {{max_tick}}) << {{sequence_bits}});
            END IF;
            -- The sequence continues where it was, in the lower half: if each tick began with 0, id % n would pick one shard. Less
            -- one, since the caller has drawn as well.
            drawn := (tick << {{sequence_bits}}) | ((drawn - 1) & {{roll}});
            PERFORM setval('{{name}}_cursor', drawn);
            PERFORM setval('{{name}}_edge', edge);
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'SNOWM';
    EXCEPTION WHEN SQLSTATE 'SNOWM' THEN
        RETURN drawn;
    END;
END
$snowmint$;
REVOKE ALL ON FUNCTION {{name}}_jump() FROM PUBLIC;

-- Names and operators are qualified, not found by the caller's search_path: setting it would cost a third of a call.
CREATE OR REPLACE FUNCTION {{name}}_next_id() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
AS $snowmint$
DECLARE
    -- The order counts: first the edge, then the draw.
    edge bigint := pg_catalog.pg_sequence_last_value('{{name}}_edge');
    drawn bigint := pg_catalog.nextval('{{name}}_cursor');
BEGIN
    IF drawn OPERATOR(pg_catalog.<) edge
        AND drawn OPERATOR(pg_catalog.>=) (edge OPERATOR(pg_catalog.-) {{region}}::pg_catalog.int8)
        AND ((drawn OPERATOR(pg_catalog.>>) {{sequence_bits}}) OPERATOR(pg_catalog.+) {{behind}}) OPERATOR(pg_catalog.>=)
            (({{name}}_clock() OPERATOR(pg_catalog.-) {{epoch_ms}}::pg_catalog.int8) OPERATOR(pg_catalog./) {{tick_ms}}::pg_catalog.int8)
    THEN
        RETURN {{compose}};
    END IF;
    drawn := {{name}}_jump();
    RETURN {{compose}};
END
$snowmint$;

CREATE OR REPLACE FUNCTION {{name}}_next_ids(number integer) RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $snowmint$
DECLARE
    missing integer := number;
    made bigint;
    edge bigint;
    lowest bigint;
BEGIN
    IF number IS NULL OR number NOT BETWEEN 1 AND 10000000 THEN
        RAISE EXCEPTION '{{prefix}}_next_ids: invalid number %: expected 1 to 10000000', number
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOOP
        -- As in {{prefix}}_next_id: first the edge, then the draws.
        edge := pg_sequence_last_value('{{name}}_edge');
        lowest := greatest(
            edge - {{region}},
            (({{name}}_clock() - {{epoch_ms}}) / {{tick_ms}} - {{behind}}) << {{sequence_bits}}
        );
        RETURN QUERY SELECT {{compose_plain}}
            FROM (SELECT nextval('{{name}}_cursor') AS drawn FROM generate_series(1, least(missing, {{batch}}))) AS draws
            WHERE drawn >= lowest AND drawn < edge;
        GET DIAGNOSTICS made = ROW_COUNT;
        missing := missing - made;
        EXIT WHEN missing = 0;
        IF made < {{batch}} THEN
            RETURN NEXT {{name}}_next_id();
            missing := missing - 1;
            EXIT WHEN missing = 0;
        END IF;
    END LOOP;
END
$snowmint$;
