DO $convert$
DECLARE
    the_schema CONSTANT pg_catalog.text := {{column_schema}};
    the_table CONSTANT pg_catalog.text := {{column_table}};
    the_column CONSTANT pg_catalog.text := {{column_name}};
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    row_security CONSTANT pg_catalog.text := pg_catalog.current_setting('row_security');
    lock_timeout CONSTANT pg_catalog.text := pg_catalog.current_setting('lock_timeout');
    next_id pg_catalog.regprocedure;
    target pg_catalog.regclass;
    shown pg_catalog.text;
    attribute record;
    sequence record;
    state record;
    grants pg_catalog.text[];
    other record;
    converted pg_catalog.regclass[];
    names pg_catalog.text;
    narrow pg_catalog.text;
    relations pg_catalog.text;
    views pg_catalog.text[] := '{}';
    publications pg_catalog.text[] := '{}';
    largest pg_catalog.int8;
    drawn pg_catalog.int8;
    busy pg_catalog.text;
    steps pg_catalog.text[] := '{}';
BEGIN
PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
-- A read must see all rows: also those that others commit while this waits for the lock, and those that a policy hides.
IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'the transaction is %: it would not see rows that others commit while it waits for the lock',
        current_setting('transaction_isolation')
        USING ERRCODE = 'object_not_in_prerequisite_state',
        HINT = 'SET default_transaction_isolation = ''read committed'', and run this again.';
END IF;
PERFORM set_config('row_security', 'off', true);
-- While this waits for a lock, every other session that uses the table waits behind it.
IF lock_timeout = '0' THEN
    PERFORM set_config('lock_timeout', '5s', true);
END IF;

next_id := to_regprocedure('{{name}}_next_id()');
IF next_id IS NULL OR to_regclass('{{name}}_cursor') IS NULL THEN
    RAISE EXCEPTION 'the function {{name}}_next_id() is not installed' USING ERRCODE = 'undefined_function',
        HINT = 'Install it first: snowmint sql postgres --worker W, with the same --layout, --schema and --prefix.';
END IF;
names := obj_description(to_regclass('{{name}}_cursor'), 'pg_class');
IF names LIKE '{{mark}}%' AND names <> '{{mark}}{{layout}}' THEN
    RAISE EXCEPTION '{{name}}_next_id() has the layout `%`, not `{{layout}}`', substr(names, length('{{mark}}') + 1)
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Name the installed layout, or another --schema or --prefix.';
END IF;

<<work>>
BEGIN
busy := format('%I.%I', the_schema, the_table);
EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', busy);
target := to_regclass(busy);
shown := format('%s.%I', target, the_column);
SELECT c.relkind, c.relpersistence, c.relispartition, c.relowner, pg_get_userbyid(c.relowner) AS owner,
        a.attnum, a.atttypid, a.attidentity, d.oid AS default_oid, pg_get_expr(d.adbin, d.adrelid) AS expression
    INTO STRICT attribute
    FROM pg_class c
    LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = the_column AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE c.oid = target;
IF attribute.relkind NOT IN ('r', 'p') OR attribute.relpersistence = 't' THEN
    RAISE EXCEPTION '% is a view or temporary: expected a table', target USING ERRCODE = 'wrong_object_type';
ELSIF attribute.attnum IS NULL THEN
    RAISE EXCEPTION 'the table % has no column %', target, quote_ident(the_column) USING ERRCODE = 'undefined_column';
ELSIF attribute.relispartition THEN
    RAISE EXCEPTION '% is a partition: convert the column of %', target, pg_partition_root(target)
        USING ERRCODE = 'wrong_object_type';
ELSIF EXISTS (
    SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhrelid = target OR i.inhparent = target AND NOT c.relispartition
) THEN
    RAISE EXCEPTION '% has inheritance: convert it by hand', target USING ERRCODE = 'feature_not_supported';
END IF;

-- The sequence of the column. Once the column is converted, the first line of the comment says what it was.
SELECT s.oid::regclass::text AS name, s.relacl, s.relowner, s.relpersistence, d.deptype, q.seqtypid::regtype AS type,
        format('INCREMENT BY %s MINVALUE %s MAXVALUE %s START WITH %s CACHE %s %s', q.seqincrement, q.seqmin, q.seqmax,
            q.seqstart, q.seqcache, CASE WHEN q.seqcycle THEN 'CYCLE' ELSE 'NO CYCLE' END) AS options,
        mark.was, nullif(substr(mark.comment, coalesce(length('Snowmint: ' || mark.was) + 2, 1)), '') AS comment
    INTO sequence
    FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S' JOIN pg_sequence q ON q.seqrelid = s.oid
    CROSS JOIN LATERAL (
        SELECT text AS comment,
            substring(text FROM '^Snowmint: (DEFAULT|GENERATED (?:ALWAYS|BY DEFAULT) AS IDENTITY)(?:\n|$)') AS was
        FROM obj_description(s.oid, 'pg_class') AS text
    ) AS mark
    WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
        AND d.refobjid = target AND d.refobjsubid = attribute.attnum
        AND (d.deptype = 'i'
            OR attribute.expression LIKE 'nextval(''%''::regclass)' AND EXISTS (
                SELECT FROM pg_depend u WHERE u.classid = 'pg_attrdef'::regclass AND u.objid = attribute.default_oid
                    AND u.refclassid = 'pg_class'::regclass AND u.refobjid = s.oid)
            OR attribute.expression = next_id::text AND mark.was IS NOT NULL);
IF sequence.name IS NOT NULL THEN
    EXECUTE 'SELECT last_value, is_called FROM ' || sequence.name INTO state;
    grants := ARRAY(
        SELECT format('GRANT %s ON SEQUENCE %s TO %s%s', g.privilege_type, sequence.name,
            CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
            CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' END)
        FROM aclexplode(sequence.relacl) AS g WHERE g.grantee <> sequence.relowner);
END IF;

