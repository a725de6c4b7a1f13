-- Waiting until a consumer has come to an offset. Each look is a statement of its own, which sees what was committed since.

CREATE FUNCTION pipeline_kafka.check_can_wait() RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'this transaction is %: it would never see what it waits for', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state', HINT = 'Wait in a transaction that is READ COMMITTED.';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_can_wait() IS 'Errors: 25000 where the transaction''s isolation level hides what others commit.';

CREATE FUNCTION pipeline_kafka.consumer_of(topic text, relation regclass) RETURNS pipeline_kafka.consumers
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known record;
BEGIN
    SELECT c AS consumer, c.xmin::text AS version INTO known FROM pipeline_kafka.consumers c
    WHERE c.relation = consumer_of.relation AND NOT c.replay
      AND (c.topic = consumer_of.topic OR (c.topic ^@ '^' AND consumer_of.topic ~ c.topic AND (consumer_of.topic ~ c.exclude) IS NOT TRUE))
    ORDER BY c.topic <> consumer_of.topic, NOT c.enabled, c.id LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no consumer of % into %', coalesce(topic, 'NULL'), coalesce(relation::text, 'NULL')
            USING ERRCODE = 'undefined_object', HINT = 'SELECT topic, relation FROM pipeline_kafka.consumers_status shows those there are.';
    ELSIF known.version = (pg_current_xact_id_if_assigned()::text::bigint % 4294967296)::text THEN
        RAISE EXCEPTION 'consumer % -> % is begun or moved by this very transaction', topic, relation
            USING ERRCODE = 'invalid_transaction_state', HINT = 'Workers see it once that is committed: wait after COMMIT.';
    END IF;
    RETURN known.consumer;
END $$;
COMMENT ON FUNCTION pipeline_kafka.consumer_of(text, regclass) IS
    'The consumer of a topic (by its name, its pattern, or a pattern that matches its name) into a relation. '
    'Errors: 42704 where there is none, 25000 where it is this transaction''s own doing, which no worker sees yet.';

CREATE FUNCTION pipeline_kafka.check_goes_on(consumer int) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known record;
BEGIN
    SELECT c.topic, c.relation, c.enabled, s.sqlstate, s.error, s.failures INTO known
    FROM pipeline_kafka.consumers c LEFT JOIN pipeline_kafka.consumer_state s ON s.consumer_id = c.id WHERE c.id = consumer;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the consumer is gone' USING ERRCODE = 'undefined_object';
    ELSIF NOT known.enabled AND known.failures > 0 THEN
        RAISE EXCEPTION 'consumer % -> % has stopped: % %', known.topic, known.relation, known.sqlstate, known.error
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Do what it says, or mend what it names and call consume_begin().';
    ELSIF NOT known.enabled THEN
        RAISE EXCEPTION 'consumer % -> % has ended', known.topic, known.relation
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'consume_begin() begins it again.';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_goes_on(int) IS
    'Errors: 55000 where the consumer with this id has ended or stopped, with the reason; 42704 where it is gone.';

CREATE FUNCTION pipeline_kafka.wait_for_offsets(consumer int, targets jsonb, until timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    behind record;
    status record;
BEGIN
    LOOP
        SELECT t.topic, t.partition, t.target, o.next_offset INTO behind
        FROM jsonb_to_recordset(targets) AS t(topic text, partition int, low bigint, target bigint)
        LEFT JOIN pipeline_kafka.offsets o ON o.consumer_id = consumer AND o.topic = t.topic AND o.partition = t.partition
        WHERE t.target > coalesce(o.next_offset, t.low)
        ORDER BY t.target - coalesce(o.next_offset, t.low) DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        PERFORM pipeline_kafka.check_goes_on(consumer);
        IF clock_timestamp() >= until THEN
            SELECT s.topic, s.relation, s.state, s.last_error, s.failures INTO status
            FROM pipeline_kafka.consumers_status s WHERE s.id = consumer;
            RAISE EXCEPTION 'waited in vain for consumer % -> % to come to offset % of %[%]', status.topic, status.relation,
                    behind.target, behind.topic, behind.partition
                USING ERRCODE = 'query_canceled',
                    DETAIL = format('It is %s, at offset %s.', status.state, coalesce(behind.next_offset::text, 'none yet'))
                             || CASE WHEN status.failures > 0 THEN E'\n' || status.last_error ELSE '' END,
                    HINT = 'See consumers_status, or give it a longer timeout.';
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
END $$;
COMMENT ON FUNCTION pipeline_kafka.wait_for_offsets(int, jsonb, timestamptz) IS
    'Waits until the consumer with this id has passed target in each of an array of objects with topic, partition, low and target. '
    'Errors: 57014 at that time, with how far it is; those of check_goes_on().';

CREATE FUNCTION pipeline_kafka.wait_for(topic text, relation regclass, timeout int DEFAULT 10000) RETURNS text
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    until timestamptz := clock_timestamp() + timeout * interval '1 ms';
    known pipeline_kafka.consumers;
    targets jsonb;
    refused bigint;
BEGIN
    PERFORM pipeline_kafka.check_can_wait();
    known := pipeline_kafka.consumer_of(topic, relation);
    PERFORM pipeline_kafka.check_goes_on(known.id);
    SELECT coalesce(sum(o.set_aside + o.skipped), 0) INTO refused FROM pipeline_kafka.offsets o WHERE o.consumer_id = known.id;
    SELECT jsonb_agg(a || jsonb_build_object('target', a->'high')) INTO targets
    FROM pipeline_kafka.ask('positions', jsonb_build_object('topic', topic, 'exclude', known.exclude, 'partition', NULL,
                                                            'milliseconds', NULL), timeout) AS a;
    PERFORM pipeline_kafka.wait_for_offsets(known.id, targets, until);
    SELECT coalesce(sum(o.set_aside + o.skipped), 0) - refused INTO refused FROM pipeline_kafka.offsets o WHERE o.consumer_id = known.id;
    IF refused > 0 THEN
        RAISE NOTICE '% messages were set aside or skipped meanwhile', refused USING HINT = 'See dead_letters_shown.';
    END IF;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.wait_for(text, regclass, int) IS
    'Returns ''success'' once all that was in a topic at the call is in the relation, as far as the relation takes it: a notice '
    'counts what was set aside or skipped meanwhile. topic: a name, or a consumer''s pattern for all of its topics. timeout: ms, for all '
    'of it. The next statement sees the rows. Errors: 57014 when the time is over, with how far the consumer is; 55000 where it has '
    'ended or stopped, with why; 42704 where there is no such consumer or topic; 25000 in a transaction that is REPEATABLE READ or '
    'SERIALIZABLE, or has begun the consumer itself; those of ask().';

CREATE FUNCTION pipeline_kafka.wait_for(topic text, partition int, kafka_offset bigint, relation regclass,
    timeout int DEFAULT 10000) RETURNS text
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    until timestamptz := clock_timestamp() + timeout * interval '1 ms';
    known pipeline_kafka.consumers;
    targets jsonb;
    letter record;
BEGIN
    PERFORM pipeline_kafka.check_can_wait();
    PERFORM pipeline_kafka.check_range('partition', partition, 0, 2147483647),
            pipeline_kafka.check_range('kafka_offset', kafka_offset, 0, 9223372036854775806);
    known := pipeline_kafka.consumer_of(topic, relation);
    PERFORM pipeline_kafka.check_goes_on(known.id);
    SELECT jsonb_agg(a || jsonb_build_object('target', kafka_offset + 1)) INTO targets
    FROM pipeline_kafka.ask('positions', jsonb_build_object('topic', topic, 'exclude', known.exclude, 'partition', partition,
                                                            'milliseconds', NULL), timeout) AS a;
    PERFORM pipeline_kafka.wait_for_offsets(known.id, targets, until);
    SELECT d.id, d.sqlstate INTO letter FROM pipeline_kafka.dead_letters d
    WHERE d.consumer_id = known.id AND d.topic = wait_for.topic AND d.partition = wait_for.partition
      AND d.kafka_offset = wait_for.kafka_offset;
    IF FOUND THEN
        RAISE EXCEPTION 'the message at offset % of %[%] was set aside, with SQLSTATE %', kafka_offset, topic, partition, letter.sqlstate
            USING ERRCODE = 'no_data_found', HINT = format('It is dead letter %s: see dead_letters_shown.', letter.id);
    END IF;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.wait_for(text, int, bigint, regclass, int) IS
    'Returns ''success'' once the message at an offset has been read into the relation, also one that is yet to come. '
    'timeout: ms. Errors: P0002 where it was set aside, with the SQLSTATE; 42704 where there is no such partition; else as the other form.';

CREATE FUNCTION pipeline_kafka.call_of_consume_begin(options jsonb) RETURNS text
LANGUAGE plpgsql STABLE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known text[] := (SELECT p.proargnames FROM pg_proc p
                     WHERE p.pronamespace = 'pipeline_kafka'::regnamespace AND p.proname = 'consume_begin' AND p.pronargs > 0);
    unknown text;
BEGIN
    IF jsonb_typeof(options) <> 'object' THEN
        RAISE EXCEPTION 'options is no JSON object' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'It is one such as {"format": "json", "start_offset": -2}.';
    END IF;
    SELECT string_agg(format('"%s"', key), ', ') INTO unknown FROM jsonb_object_keys(options) AS k(key) WHERE key <> ALL (known[3:]);
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION 'options has %, which consume_begin() does not have', unknown USING ERRCODE = 'invalid_parameter_value',
            HINT = format('It has %s.', array_to_string(known[3:], ', '));
    END IF;
    RETURN 'SELECT pipeline_kafka.consume_begin($1, $2'
           || coalesce((SELECT string_agg(format(', %I => %L', o.key, o.value), '') FROM jsonb_each_text(options) AS o
                        WHERE o.value IS NOT NULL), '') || ')';
END $$;
COMMENT ON FUNCTION pipeline_kafka.call_of_consume_begin(jsonb) IS
    'A statement that calls consume_begin($1, $2) with options by name. Errors: 22023 for one that consume_begin() does not have.';

CREATE FUNCTION pipeline_kafka.consumer_runs(topic text, relation regclass) RETURNS boolean
LANGUAGE sql STABLE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.enabled FROM pipeline_kafka.consumers c WHERE c.topic = $1 AND c.relation = $2 AND NOT c.replay
$$;
COMMENT ON FUNCTION pipeline_kafka.consumer_runs(text, regclass) IS
    'Whether a consumer has been begun, and not ended or stopped since; NULL where there is none.';

CREATE FUNCTION pipeline_kafka.begin_until_end(topic text, relation regclass, options jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    runs boolean := pipeline_kafka.consumer_runs(topic, relation);
    starts text[] := '{start_offset,start_timestamp,start_last_messages,start_last_interval}';
BEGIN
    PERFORM pipeline_kafka.check_can_wait();
    IF runs THEN
        RAISE EXCEPTION 'consumer % -> % runs already', topic, relation USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'wait_for() waits for it, and does not end it.';
    ELSIF runs IS NULL AND NOT options ?| starts THEN
        options := options || '{"start_offset": -2}';
    END IF;
    EXECUTE pipeline_kafka.call_of_consume_begin(options) USING topic, relation;
END $$;
COMMENT ON FUNCTION pipeline_kafka.begin_until_end(text, regclass, jsonb) IS
    'The first step of consume_until_end(): consume_begin() with options, of a consumer that does not run; a new one starts at the '
    'beginning where they name no start. Errors: 55000 for one that runs, 22023, and those of consume_begin().';

-- No SET and no SECURITY DEFINER: a procedure with either may not commit. So all names are in full.
CREATE PROCEDURE pipeline_kafka.consume_until_end(topic text, relation regclass, timeout int DEFAULT 60000, options jsonb DEFAULT '{}')
LANGUAGE plpgsql
AS $$
DECLARE
    said text;
    code text;
    detail text;
    hint text;
BEGIN
    PERFORM pipeline_kafka.begin_until_end(topic, relation, options);
    COMMIT;
    BEGIN
        PERFORM pipeline_kafka.wait_for(topic, relation, timeout);
    EXCEPTION WHEN OTHERS OR query_canceled THEN  -- whatever it is, the consumer ends
        GET STACKED DIAGNOSTICS said = MESSAGE_TEXT, code = RETURNED_SQLSTATE, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    END;
    PERFORM pipeline_kafka.consume_end(topic, relation);
    COMMIT;
    IF detail OPERATOR(pg_catalog.<>) '' THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = said, DETAIL = detail, HINT = hint;
    ELSIF code IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = said, HINT = hint;
    END IF;
END $$;
COMMENT ON PROCEDURE pipeline_kafka.consume_until_end(text, regclass, int, jsonb) IS
    'Begins a consumer, waits until all that was in its topic then is in the relation, and ends it, in transactions of its own. '
    'timeout: ms (60000). options: arguments of consume_begin() by name; a new consumer starts at the beginning unless they say '
    'otherwise, a known one goes on. It is ended whatever happens, a cancel too. Errors: 2D000 inside a transaction, 55000 where the '
    'consumer runs already, those of consume_begin() and wait_for().';
