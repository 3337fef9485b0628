-- Make {{shown_column}} again what it was before {{name}}_next_id() made its ids. PostgreSQL 15 or later.
-- One statement, which works or changes nothing. Each statement that it executes is a NOTICE.
-- The table is locked until the end of the transaction. Ids stay, and bigint columns too. The sequence continues where it was.

{{begin}}
IF attribute.expression IS DISTINCT FROM next_id::text THEN
    RAISE EXCEPTION '% is not converted: its default is %', shown, coalesce(attribute.expression, 'none')
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Is it another column, --schema or --prefix?';
ELSIF sequence.name IS NULL THEN
    RAISE EXCEPTION 'no sequence says what % was before: its comment, or the sequence, is gone', shown
        USING ERRCODE = 'object_not_in_prerequisite_state',
        HINT = format('Choose one: ALTER TABLE %s ALTER COLUMN %I SET DEFAULT nextval(...).', target, the_column);
END IF;

SELECT array_agg(d.adrelid::regclass ORDER BY d.adrelid <> target, d.adrelid::regclass::text) INTO converted
    FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attname = the_column AND pg_get_expr(d.adbin, d.adrelid) = next_id::text
        AND (a.attrelid = target OR a.attrelid IN (SELECT relid FROM pg_partition_tree(target)));

IF sequence.was = 'DEFAULT' THEN
    steps := ARRAY(
        SELECT format('ALTER TABLE ONLY %s ALTER COLUMN %I SET DEFAULT nextval(%L)', relation, the_column, sequence.name)
        FROM unnest(converted) AS relation);
ELSE
    steps := ARRAY(
        SELECT format('ALTER TABLE ONLY %s ALTER COLUMN %I DROP DEFAULT', relation, the_column)
        FROM unnest(converted) AS relation)
        || format('DROP SEQUENCE %s', sequence.name)
        || format('ALTER TABLE %s ALTER COLUMN %I ADD %s (SEQUENCE NAME %s %s)', target, the_column, sequence.was, sequence.name,
            sequence.options)
        || format('SELECT setval(%L, %s, %L)', sequence.name, state.last_value, state.is_called)
        || grants;
END IF;
steps := steps || format('COMMENT ON SEQUENCE %s IS %L', sequence.name, sequence.comment);
RAISE NOTICE '% continues after %, below the ids that it has meanwhile', shown, state.last_value;
{{end}}