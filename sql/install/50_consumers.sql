-- Beginning and ending consume actions.
-- The functions a user calls run as the caller and insert a request; a trigger of the extension's owner serves it and
-- keeps no row. So the catalog is out of the caller's reach, and who the caller is cannot be forged: the column's
-- default is evaluated as the inserting role, and nobody may give it another value.

CREATE TABLE pipeline_kafka.requests (
    caller    regrole NOT NULL DEFAULT quote_ident(current_user)::regrole,
    function  regprocedure NOT NULL,
    arguments jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE pipeline_kafka.requests IS 'Always empty: what is inserted is carried out for the inserting role.';
GRANT INSERT (function, arguments) ON pipeline_kafka.requests TO PUBLIC;

CREATE FUNCTION pipeline_kafka.workers_wanted() RETURNS int
LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN count(*) = 0 OR pipeline_kafka.setting('workers') = '0' THEN 0
                ELSE greatest(max(c.parallelism), pipeline_kafka.setting('workers')::int) END
    FROM pipeline_kafka.consumers c WHERE c.enabled AND NOT c.replay
$$;
COMMENT ON FUNCTION pipeline_kafka.workers_wanted() IS
    'How many workers this server should run for this database: the larger of pipeline_kafka.workers and the largest parallelism; '
    '0 where no consumer is enabled or pipeline_kafka.workers is 0.';

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
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out for its default.';
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
            pipeline_kafka.check_range('max_dead_letters', coalesce(wanted.max_dead_letters, 1), 1, 9223372036854775807),
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

CREATE FUNCTION pipeline_kafka.complete_consumer(wanted pipeline_kafka.consumers, known pipeline_kafka.consumers)
RETURNS pipeline_kafka.consumers
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF wanted.format IS NULL THEN  -- a format that is given takes what goes with it along
        wanted.delimiter := coalesce(wanted.delimiter, known.delimiter);
        wanted.quote := coalesce(wanted.quote, known.quote);
        wanted.escape := coalesce(wanted.escape, known.escape);
        wanted.null_string := coalesce(wanted.null_string, known.null_string);
        wanted.header := coalesce(wanted.header, known.header);
        wanted.unknown_fields := coalesce(wanted.unknown_fields, known.unknown_fields);
    END IF;
    IF wanted.on_conflict IS NULL THEN  -- and so does what is to be done where a key is there already
        wanted.conflict_key := coalesce(wanted.conflict_key, known.conflict_key);
    END IF;
    wanted.format := coalesce(wanted.format, known.format, 'text');
    wanted.delimiter := coalesce(wanted.delimiter, E'\t');
    wanted.group_id := nullif(coalesce(wanted.group_id, known.group_id), '');
    wanted.batchsize := coalesce(wanted.batchsize, known.batchsize, 10000);
    wanted.maxbytes := coalesce(wanted.maxbytes, known.maxbytes, 32000000);
    wanted.parallelism := coalesce(wanted.parallelism, known.parallelism, 1);
    wanted.timeout := coalesce(wanted.timeout, known.timeout, 250);
    wanted.on_error := coalesce(wanted.on_error, known.on_error, 'dead_letter');
    wanted.header := coalesce(wanted.header, false);
    wanted.unknown_fields := coalesce(wanted.unknown_fields, 'ignore');
    wanted.on_null := coalesce(wanted.on_null, known.on_null, 'skip');
    wanted.on_conflict := coalesce(wanted.on_conflict, known.on_conflict, 'error');
    wanted.exclude := nullif(coalesce(wanted.exclude, known.exclude), '');
    wanted.max_dead_letters := nullif(coalesce(wanted.max_dead_letters, known.max_dead_letters), 0);
    wanted.on_offset_lost := coalesce(wanted.on_offset_lost, known.on_offset_lost, 'stop');
    RETURN wanted;
END $$;
COMMENT ON FUNCTION pipeline_kafka.complete_consumer(pipeline_kafka.consumers, pipeline_kafka.consumers) IS
    'A consumer with what was left out filled in: as it is known, or the default.';

CREATE FUNCTION pipeline_kafka.store_consumer(wanted pipeline_kafka.consumers) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known pipeline_kafka.consumers;
    starts_anew boolean := num_nonnulls(wanted.start_offset, wanted.start_timestamp, wanted.start_last) > 0;
BEGIN
    SELECT * INTO known FROM pipeline_kafka.consumers c
    WHERE c.topic = wanted.topic AND c.relation = wanted.relation AND NOT c.replay FOR UPDATE;
    IF NOT pg_has_role(wanted.owner, known.owner, 'USAGE') THEN
        RAISE EXCEPTION 'consumer % -> % belongs to %', wanted.topic, wanted.relation, known.owner
            USING ERRCODE = 'insufficient_privilege', HINT = 'Its owner, or a member of that role, may change it.';
    END IF;
    wanted.owner := coalesce(known.owner, wanted.owner);  -- a helping superuser must not lend its powers
    wanted := pipeline_kafka.complete_consumer(wanted, known);
    PERFORM pipeline_kafka.check_consumer(wanted);
    IF starts_anew THEN
        DELETE FROM pipeline_kafka.offsets WHERE consumer_id = known.id;
    END IF;
    DELETE FROM pipeline_kafka.consumer_state WHERE consumer_id = known.id;
    INSERT INTO pipeline_kafka.consumers AS c (topic, relation, owner, group_id, format, delimiter, quote, escape, null_string,
        header, unknown_fields, batchsize, maxbytes, parallelism, timeout, start_offset, on_error, on_null, on_conflict,
        conflict_key, max_dead_letters, on_offset_lost, start_timestamp, start_last, exclude)
    VALUES (wanted.topic, wanted.relation, wanted.owner, wanted.group_id, wanted.format, wanted.delimiter, wanted.quote,
        wanted.escape, wanted.null_string, wanted.header, wanted.unknown_fields, wanted.batchsize, wanted.maxbytes,
        wanted.parallelism, wanted.timeout, wanted.start_offset, wanted.on_error, wanted.on_null, wanted.on_conflict,
        wanted.conflict_key, wanted.max_dead_letters, wanted.on_offset_lost, wanted.start_timestamp, wanted.start_last,
        wanted.exclude)
    ON CONFLICT (topic, relation) WHERE NOT replay DO UPDATE SET
        group_id = EXCLUDED.group_id, format = EXCLUDED.format, delimiter = EXCLUDED.delimiter, quote = EXCLUDED.quote,
        escape = EXCLUDED.escape, null_string = EXCLUDED.null_string, header = EXCLUDED.header,
        unknown_fields = EXCLUDED.unknown_fields, batchsize = EXCLUDED.batchsize, maxbytes = EXCLUDED.maxbytes,
        parallelism = EXCLUDED.parallelism, timeout = EXCLUDED.timeout, on_error = EXCLUDED.on_error,
        on_null = EXCLUDED.on_null, on_conflict = EXCLUDED.on_conflict, conflict_key = EXCLUDED.conflict_key,
        max_dead_letters = EXCLUDED.max_dead_letters, on_offset_lost = EXCLUDED.on_offset_lost, enabled = true,
        exclude = EXCLUDED.exclude,
        start_offset = CASE WHEN starts_anew THEN EXCLUDED.start_offset ELSE c.start_offset END,
        start_timestamp = CASE WHEN starts_anew THEN EXCLUDED.start_timestamp ELSE c.start_timestamp END,
        start_last = CASE WHEN starts_anew THEN EXCLUDED.start_last ELSE c.start_last END,
        started = c.started AND NOT starts_anew;
    PERFORM pipeline_kafka.start_workers(pipeline_kafka.workers_wanted());
END $$;
COMMENT ON FUNCTION pipeline_kafka.store_consumer(pipeline_kafka.consumers) IS
    'The writing half of consume_begin(topic, relation): stores the consumer for its owner, the caller.';

CREATE FUNCTION pipeline_kafka.enable_consumers(enabled boolean, caller oid, wanted pipeline_kafka.consumers) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE pipeline_kafka.consumers c SET enabled = enable_consumers.enabled
    WHERE (wanted.topic IS NULL OR (c.topic = wanted.topic AND c.relation = wanted.relation))
      AND NOT c.replay AND pg_has_role(caller, c.owner, 'USAGE')
      -- a relation that was dropped cannot be begun again
      AND (NOT enable_consumers.enabled OR EXISTS (SELECT FROM pg_class r WHERE r.oid = c.relation));
    IF NOT FOUND AND wanted.topic IS NOT NULL THEN
        RAISE EXCEPTION 'there is no consumer % -> % of yours', wanted.topic, wanted.relation USING ERRCODE = 'undefined_object',
            HINT = 'SELECT topic, relation, owner FROM pipeline_kafka.consumers_status shows those there are.';
    END IF;
    IF enable_consumers.enabled THEN
        DELETE FROM pipeline_kafka.consumer_state s USING pipeline_kafka.consumers c
        WHERE c.id = s.consumer_id AND c.enabled AND NOT c.replay AND pg_has_role(caller, c.owner, 'USAGE');
        PERFORM pipeline_kafka.start_workers(pipeline_kafka.workers_wanted());
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.enable_consumers(boolean, oid, pipeline_kafka.consumers) IS
    'The writing half of consume_begin(), consume_end() and consume_end(topic, relation).';

CREATE FUNCTION pipeline_kafka.warn_of_missing_parts() RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT pipeline_kafka.preloaded() THEN
        RAISE WARNING 'workers will not come back when the server restarts'
            USING HINT = 'Add pipeline_kafka to shared_preload_libraries and restart the server once.';
    END IF;
    IF NOT EXISTS (SELECT FROM pipeline_kafka.brokers)
       AND NOT EXISTS (SELECT FROM pipeline_kafka.properties WHERE name = 'bootstrap.servers') THEN
        RAISE WARNING 'no broker is configured, so nothing can be read yet' USING HINT = 'SELECT pipeline_kafka.add_broker(''host:9092'').';
    END IF;
    IF pipeline_kafka.setting('workers') = '0' THEN
        RAISE NOTICE 'pipeline_kafka.workers is 0: only workers started elsewhere read for this database';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.warn_of_missing_parts() IS 'Says what a consumer that was just begun still lacks.';

CREATE FUNCTION pipeline_kafka.consume_begin(topic text, relation regclass, group_id text DEFAULT NULL,
    format text DEFAULT NULL, delimiter text DEFAULT NULL, quote text DEFAULT NULL, escape text DEFAULT NULL,
    batchsize int DEFAULT NULL, maxbytes int DEFAULT NULL, parallelism int DEFAULT NULL, timeout int DEFAULT NULL,
    start_offset bigint DEFAULT NULL, on_error text DEFAULT NULL, on_offset_lost text DEFAULT NULL,
    null_string text DEFAULT NULL, header boolean DEFAULT NULL, unknown_fields text DEFAULT NULL, on_null text DEFAULT NULL,
    on_conflict text DEFAULT NULL, conflict_key text DEFAULT NULL, max_dead_letters bigint DEFAULT NULL,
    start_timestamp timestamptz DEFAULT NULL, start_last_messages bigint DEFAULT NULL, start_last_interval interval DEFAULT NULL,
    exclude text DEFAULT NULL, start_from_group text DEFAULT NULL, start_from text DEFAULT NULL, zookeeper text DEFAULT NULL,
    start_from_live boolean DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF num_nonnulls(start_offset, start_timestamp, start_last_messages, start_last_interval) > 1 THEN
        RAISE EXCEPTION 'a consumer starts in one place' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give one of start_offset, start_timestamp, start_last_messages and start_last_interval.';
    END IF;
    INSERT INTO pipeline_kafka.requests (function, arguments)
    VALUES ('pipeline_kafka.consume_begin(text, regclass, text, text, text, text, text, int, int, int, int, bigint, text, text, text, boolean, text, text, text, text, bigint, timestamptz, bigint, interval, text, text, text, text, boolean)',
            jsonb_build_object('topic', topic, 'relation', relation::oid, 'group_id', group_id, 'format', format,
                'delimiter', delimiter, 'quote', quote, 'escape', escape, 'batchsize', batchsize, 'maxbytes', maxbytes,
                'parallelism', parallelism, 'timeout', timeout, 'start_offset', start_offset, 'on_error', on_error,
                'on_offset_lost', on_offset_lost, 'null_string', null_string, 'header', header, 'unknown_fields', unknown_fields,
                'on_null', on_null, 'on_conflict', on_conflict, 'conflict_key', conflict_key,
                'max_dead_letters', max_dead_letters, 'start_last', start_last_messages, 'exclude', exclude,
                'start_timestamp', coalesce(start_timestamp, now() - start_last_interval), 'start_from_group', start_from_group,
                'start_from', start_from, 'zookeeper', zookeeper, 'start_from_live', start_from_live));
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.consume_begin(text, regclass, text, text, text, text, text, int, int, int, int, bigint, text, text, text, boolean, text, text, text, text, bigint, timestamptz, bigint, interval, text, text, text, text, boolean) IS
    'Begins to read a topic into a relation when the transaction commits, or changes how it is read. Answers ''success''. '
    'What is left out stays as it is where the consumer is known, and takes its default where it is new. '
    'topic: a name, or a pattern that begins with ^. relation: table, partitioned table, view, foreign table, stream. '
    'group_id: consumer group (the database''s own). format: text (the default), csv, json, raw. '
    'delimiter (a tab), quote, escape: as in COPY. batchsize (10000): messages, maxbytes (32000000): bytes, about, that end a batch. '
    'parallelism (1): workers at the least. timeout (250): milliseconds. start_offset: -2 beginning, -1 end, an offset; left out: '
    'go on, or the end where it is new. on_error: dead_letter (the default), stop, skip. '
    'on_offset_lost: stop (the default), earliest, latest. null_string, header: as in COPY. unknown_fields: ignore (the default), '
    'error, or the jsonb column that takes them. on_null: skip (the default), dead_letter, delete. on_conflict: error (the default), '
    'ignore, update, by the primary key or the constraint conflict_key. max_dead_letters: stop when so many were set aside. '
    'In place of start_offset: start_timestamp, the first message of that time or later; start_last_interval, the same so long '
    'ago; start_last_messages, so many offsets before the end of each partition. exclude: topics that a pattern does not take, as a '
    'regular expression. start_from_group: start each partition where that consumer group stands, by start_from: kafka (the default) '
    'or zookeeper, at the address zookeeper; where it stands nowhere, the other arguments hold. start_from_live: though the group has '
    'members. The caller must be allowed to INSERT and owns the consumer. '
    'Errors: 42501 privilege, 42809 relation kind, 0A000 row security with COPY, 22023 arguments; for start_from_group 55006 where it has members, 42704 '
    'where it is not there or has no offset in the topic, and those of committed_offsets() and zookeeper_offsets().';

CREATE FUNCTION pipeline_kafka.consume_begin() RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO pipeline_kafka.requests (function) VALUES ('pipeline_kafka.consume_begin()');
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.consume_begin() IS
    'Begins every consumer of the caller again, each from where it stood. Answers ''success''.';

CREATE FUNCTION pipeline_kafka.consume_end(topic text, relation regclass) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO pipeline_kafka.requests (function, arguments)
    VALUES ('pipeline_kafka.consume_end(text, regclass)', jsonb_build_object('topic', topic, 'relation', relation::oid));
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.consume_end(text, regclass) IS
    'Ends reading a topic into a relation; its offsets stay, and consume_begin() goes on from them. Answers ''success''. '
    'Errors: 42704 where the caller has no such consumer.';

CREATE FUNCTION pipeline_kafka.consume_end() RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO pipeline_kafka.requests (function) VALUES ('pipeline_kafka.consume_end()');
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.consume_end() IS 'Ends every consumer of the caller; their offsets stay. Answers ''success''.';

CREATE FUNCTION pipeline_kafka.serve_request() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted pipeline_kafka.consumers := jsonb_populate_record(NULL::pipeline_kafka.consumers, NEW.arguments);
    standing jsonb;
BEGIN
    IF NOT has_function_privilege(NEW.caller, NEW.function, 'EXECUTE') THEN
        RAISE EXCEPTION 'role % may not execute %', NEW.caller, NEW.function USING ERRCODE = 'insufficient_privilege',
            HINT = format('A superuser may: GRANT EXECUTE ON FUNCTION %s TO %s;', NEW.function, NEW.caller);
    END IF;
    CASE NEW.function
    WHEN 'pipeline_kafka.consume_begin(text, regclass, text, text, text, text, text, int, int, int, int, bigint, text, text, text, boolean, text, text, text, text, bigint, timestamptz, bigint, interval, text, text, text, text, boolean)'::regprocedure
    THEN
        wanted.owner := NEW.caller;
        standing := pipeline_kafka.group_standing(NEW.arguments, NEW.caller);  -- before anything is locked
        IF standing IS NOT NULL AND num_nonnulls(wanted.start_offset, wanted.start_timestamp, wanted.start_last) = 0 THEN
            wanted.start_offset := -1;
        END IF;
        PERFORM pipeline_kafka.store_consumer(wanted), pipeline_kafka.warn_of_missing_parts();
        PERFORM pipeline_kafka.take_over(wanted, NEW.arguments ->> 'start_from_group', standing);
    WHEN 'pipeline_kafka.consume_begin()'::regprocedure THEN
        PERFORM pipeline_kafka.enable_consumers(true, NEW.caller, NULL), pipeline_kafka.warn_of_missing_parts();
    WHEN 'pipeline_kafka.consume_end(text, regclass)'::regprocedure THEN
        PERFORM pipeline_kafka.enable_consumers(false, NEW.caller, wanted);
    WHEN 'pipeline_kafka.consume_end()'::regprocedure THEN
        PERFORM pipeline_kafka.enable_consumers(false, NEW.caller, NULL);
    ELSE
        PERFORM pipeline_kafka.serve_replay(NEW);
    END CASE;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION pipeline_kafka.serve_request() IS
    'Carries out a request for the role that inserted it, if that role may execute the function it names.';

CREATE TRIGGER serve_request BEFORE INSERT ON pipeline_kafka.requests
    FOR EACH ROW EXECUTE FUNCTION pipeline_kafka.serve_request();
