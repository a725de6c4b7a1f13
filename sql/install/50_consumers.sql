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
    wanted.batchsize := coalesce(wanted.batchsize, known.batchsize, 25000);
    wanted.maxbytes := coalesce(wanted.maxbytes, known.maxbytes, 16000000);
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
        started = c.started AND NOT starts_anew
    RETURNING c.id INTO wanted.id;
    PERFORM pipeline_kafka.check_fits(wanted);
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
    PERFORM pipeline_kafka.warn_of_no_broker();
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
    IF start_last_interval < interval '0' THEN
        RAISE EXCEPTION 'start_last_interval is %, which is yet to come', start_last_interval
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It counts back from now: ''1 hour'' is an hour ago.';
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
    'delimiter (a tab), quote, escape: as in COPY. batchsize (25000): messages, maxbytes (16000000): bytes, about, that end a batch. '
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
    'Errors: 42501 privilege, 42809 relation kind, 42804 columns that do not fit the format, 0A000 row security with COPY, 22023 arguments; for start_from_group 55006 where it has members, 42704 '
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
    PERFORM pipeline_kafka.check_may_call(NEW.caller, NEW.function);
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
