-- What consume_begin(), replay() and the requests they make are checked for. 45_options.sql has the checks of single options.

CREATE FUNCTION pipeline_kafka.row_security_holds(role oid, relation oid) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
           AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE'))
    FROM pg_class c, pg_roles r WHERE c.oid = relation AND r.oid = role
$$;
COMMENT ON FUNCTION pipeline_kafka.row_security_holds(oid, oid) IS
    'Whether row security applies to this role on this relation, as check_enable_rls() in PostgreSQL decides.';

CREATE FUNCTION pipeline_kafka.check_range(name text, value bigint, low bigint, high bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF value IS NULL OR value NOT BETWEEN low AND high THEN
        RAISE EXCEPTION '% is %, which is not within % to %', name, coalesce(value::text, 'NULL'), low, high
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one that is, or leave it out.';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_range(text, bigint, bigint, bigint) IS
    'Errors: 22023, naming the argument, where its value is not between low and high.';

CREATE FUNCTION pipeline_kafka.check_choice(name text, value text, choices text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF value IS NULL OR value <> ALL (choices) THEN
        RAISE EXCEPTION '% is %, which is not known', name, coalesce('"' || value || '"', 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = format('It is one of %s.', array_to_string(choices, ', '));
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_choice(text, text, text[]) IS
    'Errors: 22023, naming the argument, where its value is not one of the choices.';

CREATE FUNCTION pipeline_kafka.check_pattern(pattern text) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    BEGIN
        PERFORM '' ~ pattern;
    EXCEPTION WHEN invalid_regular_expression THEN
        RAISE EXCEPTION 'topic pattern "%" is no regular expression: %', pattern, SQLERRM
            USING ERRCODE = 'invalid_regular_expression', HINT = 'It is an extended one, such as ^events_.*';
    END;
    IF pattern ~ '\\[[:alnum:]]|\(\?|[*+?}]\?|\[[:.=]' THEN  -- PostgreSQL, librdkafka and Python would not agree on these
        RAISE EXCEPTION 'topic pattern "%" is more than a plain extended regular expression', pattern
            USING ERRCODE = 'invalid_regular_expression',
                HINT = 'Write [0-9] for \d, and exclude => ''…'' for (?!…); \ is for characters such as the dot.';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_pattern(text) IS
    'Errors: 2201B where a topic pattern is no extended regular expression of POSIX, as librdkafka knows them.';

CREATE FUNCTION pipeline_kafka.check_character(name text, value text, format text) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF octet_length(value) <> 1 OR value IN (E'\n', E'\r') OR (format = 'text' AND value ~ '[\\.a-z0-9]') THEN
        RAISE EXCEPTION '% is "%", which COPY does not take as one', name, value USING ERRCODE = 'invalid_parameter_value',
            HINT = 'It must be a single one-byte character, and for text none of \ . a-z 0-9: the rules of COPY''s option.';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_character(text, text, text) IS
    'Errors: 22023, naming the argument, where COPY would not take its value as delimiter, quote or escape.';

CREATE FUNCTION pipeline_kafka.check_consumer(wanted pipeline_kafka.consumers) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    target pg_class := (SELECT c FROM pg_class c WHERE c.oid = wanted.relation);
    kind "char" := target.relkind;
BEGIN
    IF wanted.topic IS NULL OR wanted.topic !~ '^([A-Za-z0-9._-]{1,249}|\^.+)$' OR wanted.topic IN ('.', '..') THEN
        RAISE EXCEPTION '"%" is no topic''s name', wanted.topic USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Name it with up to 249 of A-Z a-z 0-9 . _ -, or give a pattern that begins with ^.';
    END IF;
    PERFORM pipeline_kafka.check_range('batchsize', wanted.batchsize, 1, 1000000),
            pipeline_kafka.check_range('maxbytes', wanted.maxbytes, 1, 2147483647),
            pipeline_kafka.check_range('parallelism', wanted.parallelism, 1, 1024),
            pipeline_kafka.check_range('timeout', wanted.timeout, 0, 60000),
            pipeline_kafka.check_range('start_offset', coalesce(wanted.start_offset, 0), -2, 9223372036854775807),
            pipeline_kafka.check_range('start_last_messages', coalesce(wanted.start_last, 1), 1, 9223372036854775807);
    IF NOT isfinite(wanted.start_timestamp) THEN
        RAISE EXCEPTION 'start_timestamp is %', wanted.start_timestamp USING ERRCODE = 'invalid_parameter_value',
            HINT = 'start_offset => -2 is the beginning, -1 the end.';
    END IF;
    PERFORM pipeline_kafka.check_choice('format', wanted.format, '{text,csv,json,raw}'),
            pipeline_kafka.check_choice('on_error', wanted.on_error, '{dead_letter,stop,skip}'),
            pipeline_kafka.check_choice('on_null', wanted.on_null, '{skip,dead_letter,delete}'),
            pipeline_kafka.check_choice('on_conflict', wanted.on_conflict, '{error,ignore,update}'),
            pipeline_kafka.check_range('max_dead_letters', coalesce(wanted.max_dead_letters, 0), 0, 9223372036854775807),
            pipeline_kafka.check_choice('on_offset_lost', wanted.on_offset_lost, '{stop,earliest,latest}');
    IF target.relpersistence = 't' THEN
        RAISE EXCEPTION 'relation % is temporary: no worker sees it', wanted.relation
            USING ERRCODE = 'wrong_object_type', HINT = 'Name one that stays.';
    END IF;
    IF target.relnamespace IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace, 'pipeline_kafka'::regnamespace) THEN
        RAISE EXCEPTION 'relation % is the system''s or this extension''s own', wanted.relation
            USING ERRCODE = 'wrong_object_type', HINT = 'Name one of your own.';
    END IF;
    IF kind IS NULL OR kind NOT IN ('r', 'p', 'v', 'f') THEN
        RAISE EXCEPTION 'relation % cannot be written to', wanted.relation USING ERRCODE = 'wrong_object_type',
            HINT = 'Name a table, a partitioned table, a view, a foreign table or a stream.';
    END IF;
    IF NOT has_any_column_privilege(wanted.owner, wanted.relation, 'INSERT') THEN
        RAISE EXCEPTION 'role % may not insert into %', wanted.owner, wanted.relation
            USING ERRCODE = 'insufficient_privilege', HINT = format('GRANT INSERT ON %s TO %s;', wanted.relation, wanted.owner);
    END IF;
    -- INSERT, as CheckValidResultRel() in PostgreSQL decides. Tables always take it, and to ask would wait for their locks.
    IF kind IN ('v', 'f') AND pg_relation_is_updatable(wanted.relation, true) & 8 = 0 THEN
        RAISE EXCEPTION 'relation % takes no rows', wanted.relation USING ERRCODE = 'wrong_object_type',
            HINT = 'A view must be updatable by itself or have an INSTEAD OF INSERT trigger; a foreign table, a server that takes them.';
    END IF;
    IF kind = 'v' AND wanted.format IN ('text', 'csv', 'raw') AND NOT EXISTS (
            SELECT FROM pg_trigger t WHERE t.tgrelid = wanted.relation AND t.tgtype & 64 <> 0 AND t.tgtype & 4 <> 0) THEN
        RAISE EXCEPTION 'view % has no INSTEAD OF INSERT trigger, which COPY needs', wanted.relation
            USING ERRCODE = 'wrong_object_type', HINT = 'Make one, or use format => ''json'' where the view is updatable by itself.';
    END IF;
    IF wanted.format <> 'json' AND pipeline_kafka.row_security_holds(wanted.owner, wanted.relation) THEN
        RAISE EXCEPTION 'row security on % holds for %, which COPY cannot do', wanted.relation, wanted.owner
            USING ERRCODE = 'feature_not_supported', HINT = 'Use format => ''json''.';
    END IF;
    PERFORM pipeline_kafka.check_character('delimiter', wanted.delimiter, wanted.format),
            pipeline_kafka.check_character('quote', wanted.quote, wanted.format),
            pipeline_kafka.check_character('escape', wanted.escape, wanted.format);
    IF wanted.format = 'csv' AND wanted.delimiter = coalesce(wanted.quote, '"') THEN
        RAISE EXCEPTION 'delimiter and quote are both %', wanted.delimiter USING ERRCODE = 'invalid_parameter_value',
            HINT = 'COPY needs two different ones.';
    END IF;
    IF wanted.format <> 'csv' AND (wanted.quote IS NOT NULL OR wanted.escape IS NOT NULL) THEN
        RAISE EXCEPTION 'quote and escape go with format => ''csv'', not ''%''', wanted.format
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave them out.';
    END IF;
    IF wanted.topic ^@ '^' THEN
        PERFORM pipeline_kafka.check_pattern(wanted.topic), pipeline_kafka.check_pattern(wanted.exclude);
    ELSIF wanted.exclude IS NOT NULL THEN
        RAISE EXCEPTION 'exclude goes with a pattern of topics, and "%" is a topic''s name', wanted.topic
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out, or give a pattern that begins with ^.';
    END IF;
    PERFORM pipeline_kafka.check_copy(wanted), pipeline_kafka.check_json(wanted), pipeline_kafka.check_conflict(wanted);
    IF target.relpersistence = 'u' THEN
        RAISE WARNING '% is unlogged: a crash of the server empties it, and not the offsets of what was in it', wanted.relation
            USING HINT = format('ALTER TABLE %s SET LOGGED; or seek() back after a crash.', wanted.relation);
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_consumer(pipeline_kafka.consumers) IS
    'What consume_begin() checks before it stores anything; each error names the object and the remedy.';

CREATE FUNCTION pipeline_kafka.misfit(consumer int) RETURNS text
LANGUAGE plpython3u STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
if "api" not in GD:
    plpy.execute("SELECT pipeline_kafka.load_api()")
return GD["api"].misfit(plpy, consumer)
$$;
COMMENT ON FUNCTION pipeline_kafka.misfit(int) IS
    'Why the relation of the consumer with this id cannot take what that is to do, whatever is sent; NULL: it can. What the '
    'worker checks before each batch, by the same code.';

CREATE FUNCTION pipeline_kafka.check_fits(wanted pipeline_kafka.consumers) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    plain boolean := wanted.format <> 'raw' AND wanted.unknown_fields IN ('ignore', 'error') AND wanted.on_conflict = 'error'
                     AND current_setting('server_encoding') <> 'SQL_ASCII';
    why text;
BEGIN
    SELECT plain AND bool_and(NOT starts_with(a.attname, 'kafka_')) AND bool_or(a.attgenerated = '' AND a.attidentity <> 'a')
    INTO plain
    FROM pg_attribute a WHERE a.attrelid = wanted.relation AND a.attnum > 0 AND NOT a.attisdropped;
    IF plain THEN
        RETURN;  -- whatever is sent may fit, and a session need not load Python to hear that
    END IF;
    why := pipeline_kafka.misfit(wanted.id);
    IF why IS NOT NULL THEN
        RAISE EXCEPTION '%', why USING ERRCODE = 'datatype_mismatch', HINT = 'ALTER TABLE, or another format.';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_fits(pipeline_kafka.consumers) IS
    'Errors: 42804 where the relation of a consumer that was just stored has not the columns that its format or options need.';

CREATE FUNCTION pipeline_kafka.check_may_call(caller regrole, function regprocedure) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT has_function_privilege(caller, function, 'EXECUTE') THEN
        RAISE EXCEPTION 'role % may not execute %', caller, function USING ERRCODE = 'insufficient_privilege',
            HINT = format('A superuser may: GRANT EXECUTE ON FUNCTION %s TO %s;', function, caller);
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_may_call(regrole, regprocedure) IS
    'Errors: 42501 where a role has not been granted a function that it asks for by a request.';
