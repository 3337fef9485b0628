-- Let {{name}}_next_id() make the ids of {{shown_column}}, instead of its sequence. PostgreSQL 15 or later.
-- One statement, which works or changes nothing. Safe to run again. To try it, run it between BEGIN and ROLLBACK: each statement
-- that it executes is a NOTICE.
-- The table is locked until the end of the transaction. Existing rows keep their numbers. The sequence stays, for the way back
-- (--revert) and for programs that still draw from it.

{{begin}}
IF attribute.expression = next_id::text THEN
    RAISE NOTICE '% was converted before', shown;
    EXIT work;
ELSIF attribute.atttypid NOT IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) OR sequence.name IS NULL THEN
    RAISE EXCEPTION '% is %, its default %: expected serial, bigserial or an identity column', shown,
        attribute.atttypid::regtype, coalesce(attribute.expression, 'none')
        USING ERRCODE = 'object_not_in_prerequisite_state',
        HINT = format('If this column alone uses its sequence, ALTER SEQUENCE ... OWNED BY %s, and run this again.', shown);
END IF;

-- Whoever owns the function may replace it, and the new one would run with the rights of everybody who inserts.
SELECT r.rolname INTO names FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
    WHERE p.oid = next_id AND NOT r.rolsuper AND r.oid <> attribute.relowner AND r.rolname <> current_user;
IF names IS NOT NULL THEN
    RAISE EXCEPTION '% belongs to %, who could replace it for everybody who inserts into %', next_id, names, target
        USING ERRCODE = 'insufficient_privilege',
        HINT = format('Give it and its sequences to %s, who owns the table, or to a superuser.', attribute.owner);
END IF;

SELECT r.rolname INTO names FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
    WHERE p.oid = next_id AND NOT r.rolsuper AND (SELECT rolsuper FROM pg_roles WHERE rolname = current_user);
IF names IS NOT NULL THEN
    RAISE EXCEPTION 'this script calls %, which % may have replaced, with the rights of a superuser', next_id, names
        USING ERRCODE = 'insufficient_privilege', HINT = format('Run SET ROLE %I first.', names);
END IF;

-- The table, and the partitions that have the same default. Partitions that make numbers of their own stay as they are.
SELECT array_agg(r.relation) FILTER (WHERE r.same),
        string_agg(r.relation::text, ', ') FILTER (WHERE NOT r.same AND r.expression IS NOT NULL)
    INTO converted, names
    FROM (
        SELECT a.attrelid::regclass AS relation, pg_get_expr(d.adbin, d.adrelid) AS expression,
            a.attrelid = target OR a.attidentity <> ''
                OR coalesce(pg_get_expr(d.adbin, d.adrelid) = attribute.expression, false) AS same
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attname = the_column
            AND (a.attrelid = target OR a.attrelid IN (SELECT relid FROM pg_partition_tree(target)))
        ORDER BY a.attrelid <> target, a.attrelid::regclass::text
    ) AS r;
IF names IS NOT NULL THEN
    RAISE WARNING 'these partitions keep their own defaults, which apply to rows that name the partition: %', names;
END IF;

-- Who inserts calls the function.
SELECT string_agg(DISTINCT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END, ', ')
    INTO names
    FROM (
        SELECT relowner AS grantee, 'INSERT' AS privilege FROM pg_class WHERE oid = ANY (converted)
        UNION ALL
        SELECT acl.grantee, acl.privilege_type FROM pg_class, aclexplode(relacl) AS acl WHERE oid = ANY (converted)
        UNION ALL
        SELECT acl.grantee, acl.privilege_type FROM pg_attribute, aclexplode(attacl) AS acl WHERE attrelid = ANY (converted)
    ) AS g
    WHERE g.privilege = 'INSERT' AND NOT CASE g.grantee
        WHEN 0 THEN has_function_privilege('public', next_id, 'EXECUTE')
        ELSE has_function_privilege(g.grantee, next_id, 'EXECUTE') END;
IF names IS NOT NULL THEN
    RAISE EXCEPTION 'these roles may insert into %, but not call %: %', target, next_id, names
        USING ERRCODE = 'insufficient_privilege', HINT = format('GRANT EXECUTE ON FUNCTION %s TO %s', next_id, names);
END IF;

IF NOT EXISTS (
    SELECT FROM pg_index i
    WHERE i.indrelid = target AND i.indisunique AND attribute.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
) THEN
    RAISE WARNING '% has no unique index: nothing would notice another database that makes ids of this worker', shown;
END IF;

-- An id does not fit into an integer: neither of this column, nor of those that refer to it by foreign keys, or to these.
FOR other IN
    WITH RECURSIVE ids (relation, name) AS (
        SELECT attrelid, attname FROM pg_attribute WHERE attrelid = target AND attnum = attribute.attnum
        UNION
        SELECT coalesce(pg_partition_root(k.conrelid), k.conrelid)::oid, ours.attname
        FROM ids
        JOIN pg_constraint k ON k.contype = 'f' AND coalesce(pg_partition_root(k.confrelid), k.confrelid) = ids.relation
        CROSS JOIN unnest(k.conkey, k.confkey) AS key (ours, theirs)
        JOIN pg_attribute ours ON ours.attrelid = k.conrelid AND ours.attnum = key.ours
        JOIN pg_attribute theirs ON theirs.attrelid = k.confrelid AND theirs.attnum = key.theirs AND theirs.attname = ids.name
    )
    SELECT ids.relation::regclass::text AS relation,
        string_agg(format('%s.%I', ids.relation::regclass, ids.name), ', ' ORDER BY ids.name) AS columns,
        string_agg(format('ALTER COLUMN %I TYPE bigint', ids.name), ', ' ORDER BY ids.name) AS changes,
        (SELECT array_agg(v.ev_class::regclass::text)
            FROM pg_depend d JOIN pg_rewrite v ON d.classid = 'pg_rewrite'::regclass AND v.oid = d.objid
            WHERE v.ev_class <> ids.relation AND d.refclassid = 'pg_class'::regclass AND d.refobjid = ids.relation
                AND d.refobjsubid = ANY (array_agg(a.attnum))) AS views,
        (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
            WHERE c.oid = ids.relation OR c.oid IN (SELECT relid FROM pg_partition_tree(ids.relation::regclass))) AS size,
        (SELECT array_agg(p.pubname::text) FROM pg_publication_tables p
            WHERE to_regclass(format('%I.%I', p.schemaname, p.tablename)) IN (
                SELECT ids.relation UNION ALL SELECT relid FROM pg_partition_tree(ids.relation::regclass))) AS publications
    FROM ids
    JOIN pg_attribute a ON a.attrelid = ids.relation AND a.attname = ids.name AND NOT a.attisdropped
        AND a.atttypid IN ('int2'::regtype, 'int4'::regtype)
    GROUP BY ids.relation ORDER BY ids.relation <> target, 1
LOOP
    narrow := concat_ws(', ', narrow, format('%s (%s)', other.columns, pg_size_pretty(other.size)));
    relations := concat_ws(', ', relations, other.relation);
    views := views || other.views;
    publications := publications || other.publications;
    steps := steps || format('ALTER TABLE %s %s', other.relation, other.changes);
END LOOP;
IF narrow IS NOT NULL THEN
    IF NOT {{rewrite}} THEN
        RAISE EXCEPTION 'ids are bigint, and these columns are narrower: %', narrow
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Print the script with --rewrite: it changes them too. That writes tables of these sizes again, while every '
                'other session that uses them waits.';
    ELSIF views <> '{}' THEN
        RAISE EXCEPTION 'these views use columns that have to become bigint: %',
            (SELECT string_agg(DISTINCT it, ', ') FROM unnest(views) AS it)
            USING ERRCODE = 'dependent_objects_still_exist',
            HINT = 'In one transaction, drop the views, run this, and create them again.';
    END IF;
    busy := relations;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', relations);
    IF publications <> '{}' THEN
        RAISE WARNING 'subscribers stop at the first id unless their columns are bigint too: publication %',
            (SELECT string_agg(DISTINCT it, ', ') FROM unnest(publications) AS it);
    END IF;
END IF;

-- Ids of one generator increase. So no later one repeats a number, if the first one is above them all.
EXECUTE format('SELECT max(%I) FROM %s', the_column, target) INTO largest;
EXECUTE 'SELECT {{name}}_next_id()' INTO drawn;
IF greatest(largest, state.last_value) >= drawn THEN
    RAISE EXCEPTION '% has numbers up to %, and new ids begin with %: they could repeat a number', shown,
        greatest(largest, state.last_value), drawn
        USING ERRCODE = 'object_not_in_prerequisite_state',
        HINT = 'The numbers, or those of its sequence, are ids of another layout or of a clock that was ahead: see docs/migrate.';
END IF;

IF sequence.deptype = 'i' THEN
    -- Without the property, PostgreSQL drops the sequence. Another one takes over its name, settings and numbers.
    steps := ARRAY[format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', target, the_column)] || steps
        || format('CREATE %sSEQUENCE %s AS %s %s', CASE sequence.relpersistence WHEN 'u' THEN 'UNLOGGED ' END, sequence.name,
            sequence.type, sequence.options)
        || format('ALTER SEQUENCE %s OWNER TO %I', sequence.name, attribute.owner)
        || format('ALTER SEQUENCE %s OWNED BY %s', sequence.name, shown)
        || format('SELECT setval(%L, %s, %L)', sequence.name, state.last_value, state.is_called)
        || grants;
END IF;
steps := steps
    || format('COMMENT ON SEQUENCE %s IS %L', sequence.name, 'Snowmint: ' || CASE attribute.attidentity
        WHEN 'a' THEN 'GENERATED ALWAYS AS IDENTITY' WHEN 'd' THEN 'GENERATED BY DEFAULT AS IDENTITY' ELSE 'DEFAULT' END
        || coalesce(E'\n' || sequence.comment, ''))
    || ARRAY(
        SELECT format('ALTER TABLE ONLY %s ALTER COLUMN %I SET DEFAULT {{name}}_next_id()', relation, the_column)
        FROM unnest(converted) AS relation);
IF attribute.attidentity = 'a' THEN
    RAISE NOTICE '% was GENERATED ALWAYS: from now on, clients may write ids of their own, unless you grant INSERT on the '
        'other columns only', shown;
END IF;
{{end}}