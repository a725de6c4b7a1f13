-- What consume_begin() checks of the options that depend on one another, on the relation or on the database. The worker
-- checks the relation again with each batch (decoders), as it may be changed later.

CREATE FUNCTION pipeline_kafka.unique_keys(relation oid,
    OUT name text, OUT is_primary boolean, OUT columns text[], OUT equals text[], OUT collations text[]) RETURNS SETOF record
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.relname::text, i.indisprimary, array_agg(a.attname::text ORDER BY k.n),
           array_agg(format('OPERATOR(%I.%s)', s.nspname, o.oprname) ORDER BY k.n),
           array_agg(CASE WHEN l.oid IS NULL THEN '' ELSE format('COLLATE %I.%I', ls.nspname, l.collname) END ORDER BY k.n)
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid
    CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indclass::oid[], i.indcollation::oid[])
        WITH ORDINALITY AS k(attnum, opclass, coll, n)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    JOIN pg_opclass p ON p.oid = k.opclass
    JOIN pg_amop m ON m.amopfamily = p.opcfamily AND m.amoplefttype = p.opcintype AND m.amoprighttype = p.opcintype
                      AND m.amopstrategy = 3  -- equality, of a btree
    JOIN pg_operator o ON o.oid = m.amopopr
    JOIN pg_namespace s ON s.oid = o.oprnamespace
    LEFT JOIN pg_collation l ON l.oid = k.coll
    LEFT JOIN pg_namespace ls ON ls.oid = l.collnamespace
    WHERE i.indrelid = relation AND i.indisunique AND i.indisvalid AND i.indimmediate
      AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indexrelid, c.relname, i.indisprimary
    ORDER BY NOT i.indisprimary, c.relname
$$;
COMMENT ON FUNCTION pipeline_kafka.unique_keys(oid) IS
    'The primary key and the unique constraints and indexes of a table that ON CONFLICT can go by: not deferrable, partial or '
    'of expressions. equals and collations: what makes values of each column equal, as SQL.';

CREATE FUNCTION pipeline_kafka.check_copy(wanted pipeline_kafka.consumers) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF wanted.header AND wanted.format <> 'csv' THEN
        RAISE EXCEPTION 'header goes with format => ''csv'', not ''%''', wanted.format
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out.';
    END IF;
    IF wanted.format NOT IN ('text', 'csv') AND (wanted.delimiter <> E'\t' OR wanted.null_string IS NOT NULL) THEN
        RAISE EXCEPTION '% goes with format => ''text'' and ''csv'', not ''%''',
                CASE WHEN wanted.delimiter <> E'\t' THEN 'delimiter' ELSE 'null_string' END, wanted.format
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out.';
    END IF;
    IF wanted.null_string ~ '[\n\r]' OR strpos(wanted.null_string, wanted.delimiter) > 0
       OR (wanted.format = 'csv' AND strpos(wanted.null_string, coalesce(wanted.quote, '"')) > 0)
       OR (wanted.format = 'text' AND wanted.null_string ~ '\\$') THEN
        RAISE EXCEPTION 'null_string is "%", which COPY does not take as one', wanted.null_string
            USING ERRCODE = 'invalid_parameter_value',
            HINT = 'There must be no line end, no delimiter and, for csv, no quote in it, and for text no backslash at its end.';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_copy(pipeline_kafka.consumers) IS
    'Errors: 22023 where header, delimiter or null_string do not go with the format, or COPY would not take them.';

CREATE FUNCTION pipeline_kafka.check_json(wanted pipeline_kafka.consumers) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF wanted.format = 'json' AND current_setting('server_encoding') = 'SQL_ASCII' THEN
        RAISE EXCEPTION 'format json does not go into a database of encoding SQL_ASCII, which has no characters for JSON''s escapes'
            USING ERRCODE = 'feature_not_supported', HINT = 'Use a database of encoding UTF8, or another format.';
    END IF;
    IF wanted.unknown_fields IN ('ignore', 'error') THEN
        IF wanted.unknown_fields = 'error' AND wanted.format <> 'json' THEN
            RAISE EXCEPTION 'unknown_fields goes with format => ''json'', not ''%''', wanted.format
                USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out.';
        END IF;
    ELSIF wanted.format <> 'json' OR NOT EXISTS (
            SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = wanted.relation AND a.attname = wanted.unknown_fields AND a.attnum > 0 AND NOT a.attisdropped
              AND a.attgenerated = '' AND a.attname !~ '^kafka_(topic|partition|offset|timestamp|key|headers)$'
              AND 'jsonb'::regtype IN (t.oid, t.typbasetype)) THEN
        RAISE EXCEPTION 'unknown_fields is "%", which is no jsonb column that % can take JSON fields in',
                wanted.unknown_fields, wanted.relation
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is ignore, error, or the name of a jsonb column, with format => ''json''.';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_json(pipeline_kafka.consumers) IS
    'Errors: 22023 where unknown_fields is no jsonb column of the relation, 0A000 for JSON in a database of encoding SQL_ASCII.';

CREATE FUNCTION pipeline_kafka.check_conflict(wanted pipeline_kafka.consumers) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    target pg_class := (SELECT c FROM pg_class c WHERE c.oid = wanted.relation);
    known record;
BEGIN
    IF wanted.on_null = 'delete' AND wanted.on_conflict <> 'update' THEN
        RAISE EXCEPTION 'on_null => ''delete'' goes with on_conflict => ''update'', not ''%''', wanted.on_conflict
            USING ERRCODE = 'invalid_parameter_value', HINT = 'A message without a value deletes the row of its key.';
    END IF;
    IF wanted.on_conflict = 'error' THEN
        IF wanted.conflict_key <> '' THEN
            RAISE EXCEPTION 'conflict_key goes with on_conflict => ''ignore'' and ''update'''
                USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out, or say what to do where a key is there already.';
        END IF;
        RETURN;
    END IF;
    IF wanted.format NOT IN ('json', 'raw') THEN
        RAISE EXCEPTION 'on_conflict => ''%'' goes with format => ''json'' and ''raw'', not ''%'', which is loaded by COPY',
                wanted.on_conflict, wanted.format
            USING ERRCODE = 'feature_not_supported', HINT = 'Send JSON, or let a BEFORE INSERT trigger settle conflicts.';
    END IF;
    IF target.relkind NOT IN ('r', 'p') THEN
        RAISE EXCEPTION 'on_conflict => ''%'' needs a table, which % is not', wanted.on_conflict, wanted.relation
            USING ERRCODE = 'wrong_object_type', HINT = 'Name the table or partitioned table that has the key.';
    END IF;
    IF EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = wanted.relation AND r.ev_type IN ('2', '3')) THEN
        RAISE EXCEPTION 'on_conflict => ''%'' does not go with rules, which % has', wanted.on_conflict, wanted.relation
            USING ERRCODE = 'feature_not_supported', HINT = 'Make triggers of its rules for INSERT and UPDATE.';
    END IF;
    SELECT * INTO known FROM pipeline_kafka.unique_keys(wanted.relation) k
    WHERE CASE WHEN wanted.conflict_key <> '' THEN k.name = wanted.conflict_key ELSE k.is_primary END;
    IF NOT FOUND THEN
        PERFORM pipeline_kafka.refuse_key(wanted);
    END IF;
    PERFORM pipeline_kafka.check_key(wanted, known.name, known.columns);
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_conflict(pipeline_kafka.consumers) IS
    'What consume_begin() checks of on_conflict, conflict_key and on_null. Errors: 22023, 42704, 42809, 42501, 0A000.';

CREATE FUNCTION pipeline_kafka.refuse_key(wanted pipeline_kafka.consumers) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    usable text := (SELECT string_agg(name, ', ') FROM pipeline_kafka.unique_keys(wanted.relation));
BEGIN
    IF wanted.conflict_key <> '' THEN
        RAISE EXCEPTION 'conflict_key is "%", which is no unique constraint of % that on_conflict can go by',
                wanted.conflict_key, wanted.relation
            USING ERRCODE = 'undefined_object',
            HINT = 'It must not be deferrable, partial or of expressions. ' || coalesce('Usable: ' || usable || '.', 'There is none.');
    END IF;
    RAISE EXCEPTION '% has no primary key that on_conflict can go by', wanted.relation USING ERRCODE = 'undefined_object',
        HINT = coalesce('Name a unique constraint as conflict_key: ' || usable || '.', 'Give it one that is not deferrable.');
END $$;
COMMENT ON FUNCTION pipeline_kafka.refuse_key(pipeline_kafka.consumers) IS
    'Raises 42704: the relation has no such key; the hint names those that would do.';

CREATE FUNCTION pipeline_kafka.check_key(wanted pipeline_kafka.consumers, key text, columns text[]) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    filled text := (SELECT string_agg(quote_ident(a.attname), ', ') FROM pg_attribute a
                    WHERE a.attrelid = wanted.relation AND a.attname = ANY (columns)
                      AND (a.attgenerated <> '' OR a.attidentity = 'a' OR a.attname = wanted.unknown_fields));
    lacking text;
BEGIN
    IF filled IS NOT NULL THEN
        RAISE EXCEPTION 'key % of % has a column that no message can name: %', key, wanted.relation, filled
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name another unique constraint as conflict_key.';
    END IF;
    SELECT privilege INTO lacking FROM unnest(CASE wanted.on_conflict WHEN 'update' THEN '{SELECT,UPDATE}' ELSE '{SELECT}' END::text[]) privilege
    WHERE NOT has_any_column_privilege(wanted.owner, wanted.relation, privilege);
    IF wanted.on_null = 'delete' AND NOT has_table_privilege(wanted.owner, wanted.relation, 'DELETE') THEN
        lacking := 'DELETE';
    END IF;
    IF lacking IS NOT NULL THEN
        RAISE EXCEPTION 'role % lacks % on %, which on_conflict or on_null needs', wanted.owner, lacking, wanted.relation
            USING ERRCODE = 'insufficient_privilege', HINT = format('GRANT %s ON %s TO %s;', lacking, wanted.relation, wanted.owner);
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_key(pipeline_kafka.consumers, text, text[]) IS
    'Errors: 22023 where a column of the key is the server''s to fill, 42501 where the owner lacks a privilege it takes.';
