-- Replays: a part of a topic, read once into a relation, outside of any group and beside the consumers. Each has a row in
-- consumers too, with replay set: its options, owner, offsets, dead letters and last trouble are kept as a consumer's are.

CREATE TABLE pipeline_kafka.replays (
    id              int PRIMARY KEY REFERENCES pipeline_kafka.consumers ON DELETE CASCADE,
    slot            int UNIQUE CONSTRAINT slot_behind_the_workers CHECK (slot BETWEEN 1024 AND 2047),
    max_messages    bigint CONSTRAINT max_messages_positive CHECK (max_messages > 0),
    begun_at        timestamptz NOT NULL DEFAULT now(),
    running_since   timestamptz,
    messages_before bigint NOT NULL DEFAULT 0,
    outcome         text CONSTRAINT known_outcome CHECK (outcome IN ('finished', 'cancelled')),
    ended_at        timestamptz,
    CONSTRAINT slot_until_the_end CHECK ((slot IS NULL) = (outcome IS NOT NULL) AND (ended_at IS NULL) = (outcome IS NULL))
);
COMMENT ON TABLE pipeline_kafka.replays IS 'One row a replay: what it is beyond a consumer. replays_status shows them.';
COMMENT ON COLUMN pipeline_kafka.replays.id IS 'Its id in consumers.';
COMMENT ON COLUMN pipeline_kafka.replays.slot IS 'The slot of the worker that reads it; NULL once it has ended.';
COMMENT ON COLUMN pipeline_kafka.replays.max_messages IS 'It ends after so many messages; NULL: no limit.';
COMMENT ON COLUMN pipeline_kafka.replays.running_since IS 'When it began to read, last: the rate counts from there.';
COMMENT ON COLUMN pipeline_kafka.replays.messages_before IS 'How many messages it had passed then.';
COMMENT ON COLUMN pipeline_kafka.replays.outcome IS 'finished: all of it was passed. cancelled: by cancel_replay(). NULL: it has not ended.';
SELECT pg_catalog.pg_extension_config_dump('pipeline_kafka.replays', '');

CREATE TABLE pipeline_kafka.replay_partitions (
    replay_id    int REFERENCES pipeline_kafka.replays ON DELETE CASCADE,
    partition    int CHECK (partition >= 0),
    start_offset bigint NOT NULL CHECK (start_offset >= 0),
    end_offset   bigint NOT NULL,
    PRIMARY KEY (replay_id, partition),
    CONSTRAINT end_not_before_start CHECK (end_offset >= start_offset)
);
COMMENT ON TABLE pipeline_kafka.replay_partitions IS
    'What a replay reads of each partition: the offsets from start_offset on, up to but not including end_offset. '
    'How far it is there, offsets tells.';
SELECT pg_catalog.pg_extension_config_dump('pipeline_kafka.replay_partitions', '');

CREATE FUNCTION pipeline_kafka.start_wanted() RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pipeline_kafka.start_workers(pipeline_kafka.workers_wanted());
    SELECT pipeline_kafka.start_workers(1, r.slot)
    FROM pipeline_kafka.replays r JOIN pipeline_kafka.consumers c ON c.id = r.id
    WHERE c.enabled AND r.slot IS NOT NULL AND pipeline_kafka.setting('workers') <> '0';
$$;
COMMENT ON FUNCTION pipeline_kafka.start_wanted() IS
    'Starts what should run in this database when this transaction commits: workers_wanted() workers, and one for each replay '
    'that has not ended and is not paused; none where pipeline_kafka.workers is 0. Called when the server has started.';

-- Beginning ----------------------------------------------------------------------------------------------------

CREATE FUNCTION pipeline_kafka.milliseconds(at timestamptz) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT isfinite(at) OR at < 'epoch' THEN
        RAISE EXCEPTION 'no message has the timestamp %', at USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Leave it out for the beginning or the end.';
    END IF;
    RETURN ceil(extract(epoch FROM at) * 1000);
END $$;
COMMENT ON FUNCTION pipeline_kafka.milliseconds(timestamptz) IS
    'A time as Kafka has it: milliseconds from 1970, rounded up. Errors: 22023 for infinity, and before 1970.';

CREATE FUNCTION pipeline_kafka.replay_question(topic text, range jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF range ->> 'start' IS NOT NULL AND range ->> 'start_at' IS NOT NULL
       OR range ->> 'end' IS NOT NULL AND range ->> 'end_at' IS NOT NULL THEN
        RAISE EXCEPTION 'both an offset and a timestamp are given for the same end' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Leave one of them out.';
    END IF;
    PERFORM pipeline_kafka.check_range('start_offset', coalesce(range ->> 'start', '0')::bigint, -2, 9223372036854775807),
            pipeline_kafka.check_range('end_offset', coalesce(range ->> 'end', '0')::bigint, -1, 9223372036854775807),
            pipeline_kafka.check_range('max_messages', coalesce(range ->> 'most', '1')::bigint, 1, 9223372036854775807);
    IF (range ->> 'end')::bigint BETWEEN 0 AND (range ->> 'start')::bigint - 1
       OR (range ->> 'start_at')::timestamptz > (range ->> 'end_at')::timestamptz THEN
        RAISE EXCEPTION 'the range ends before it starts' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'end_offset and end_timestamp are where it ends: the first that is not read.';
    END IF;
    RETURN jsonb_build_object('topic', topic, 'partitions', range -> 'partitions', 'start', range -> 'start', 'end', range -> 'end',
        'start_ms', pipeline_kafka.milliseconds((range ->> 'start_at')::timestamptz),
        'end_ms', pipeline_kafka.milliseconds((range ->> 'end_at')::timestamptz));
END $$;
COMMENT ON FUNCTION pipeline_kafka.replay_question(text, jsonb) IS
    'What Kafka is asked of the range that replay() or replay_here() was given. Errors: 22023.';

CREATE FUNCTION pipeline_kafka.replay_slot(id int) RETURNS int
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    free int := (SELECT 1024 + (id + n) % 1024 FROM generate_series(0, 1023) AS n
                 WHERE NOT EXISTS (SELECT FROM pipeline_kafka.replays r WHERE r.slot = 1024 + (replay_slot.id + n) % 1024)
                 ORDER BY n LIMIT 1);
BEGIN
    IF free IS NULL THEN
        RAISE EXCEPTION 'there are 1024 replays that have not ended' USING ERRCODE = 'program_limit_exceeded',
            HINT = 'cancel_replay() ends one.';
    END IF;
    RETURN free;
END $$;
COMMENT ON FUNCTION pipeline_kafka.replay_slot(int) IS
    'A slot for a new replay, another for each id so that two that begin at once do not wait for each other. Errors: 54000.';

CREATE FUNCTION pipeline_kafka.store_replay(wanted pipeline_kafka.consumers, range jsonb, here boolean) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known pipeline_kafka.consumers;
    most bigint := range ->> 'most';
    question jsonb := pipeline_kafka.replay_question(wanted.topic, range);
BEGIN
    IF wanted.topic ^@ '^' THEN
        RAISE EXCEPTION 'a replay reads one topic, and "%" is a pattern', wanted.topic
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Replay the topics one by one: several replays go on at once.';
    END IF;
    SELECT * INTO known FROM pipeline_kafka.consumers c
    WHERE c.topic = wanted.topic AND c.relation = wanted.relation AND NOT c.replay;
    wanted := pipeline_kafka.complete_consumer(wanted, known);
    wanted.id := nextval('pipeline_kafka.consumers_id_seq');
    wanted.replay := true;
    wanted.started := true;
    wanted.enabled := NOT here;
    PERFORM pipeline_kafka.check_consumer(wanted);
    INSERT INTO pipeline_kafka.consumers OVERRIDING SYSTEM VALUE SELECT wanted.*;
    PERFORM pipeline_kafka.check_fits(wanted);
    INSERT INTO pipeline_kafka.replays (id, slot, max_messages, outcome, ended_at, running_since)
    SELECT wanted.id, CASE WHEN NOT here THEN pipeline_kafka.replay_slot(wanted.id) END, most,
           CASE WHEN here THEN 'finished' END, CASE WHEN here THEN now() END, CASE WHEN here THEN now() END;
    WITH parts AS (
        INSERT INTO pipeline_kafka.replay_partitions (replay_id, partition, start_offset, end_offset)
        SELECT wanted.id, r.* FROM pipeline_kafka.ask('replay_range', question, (range ->> 'timeout')::int) AS a,
                                   jsonb_to_record(a) AS r("partition" int, "start" bigint, "end" bigint)
        RETURNING *)
    INSERT INTO pipeline_kafka.offsets (consumer_id, topic, partition, next_offset)
    SELECT p.replay_id, wanted.topic, p.partition, p.start_offset FROM parts p;
    IF NOT here AND pipeline_kafka.setting('workers') <> '0' THEN
        PERFORM pipeline_kafka.start_workers(1, r.slot) FROM pipeline_kafka.replays r WHERE r.id = wanted.id;
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.store_replay(pipeline_kafka.consumers, jsonb, boolean) IS
    'The writing half of replay() and, with here, of replay_here(): asks Kafka which offsets the range is, and stores the replay. '
    'Its id is the currval() of consumers_id_seq. What is left out of the options is as the consumer of the same topic and relation has it.';

CREATE FUNCTION pipeline_kafka.replay(topic text, relation regclass, start_offset bigint DEFAULT NULL,
    end_offset bigint DEFAULT NULL, start_timestamp timestamptz DEFAULT NULL, end_timestamp timestamptz DEFAULT NULL,
    partitions int[] DEFAULT NULL, max_messages bigint DEFAULT NULL, format text DEFAULT NULL, delimiter text DEFAULT NULL,
    quote text DEFAULT NULL, escape text DEFAULT NULL, batchsize int DEFAULT NULL, maxbytes int DEFAULT NULL,
    on_error text DEFAULT NULL, on_offset_lost text DEFAULT NULL, null_string text DEFAULT NULL, header boolean DEFAULT NULL,
    unknown_fields text DEFAULT NULL, on_null text DEFAULT NULL, on_conflict text DEFAULT NULL, conflict_key text DEFAULT NULL,
    max_dead_letters bigint DEFAULT NULL, timeout int DEFAULT 10000) RETURNS int
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO pipeline_kafka.requests (function, arguments)
    SELECT 'pipeline_kafka.replay'::regproc::oid,
           jsonb_build_object('topic', topic, 'relation', relation::oid, 'range', jsonb_build_object('start', start_offset,
                'end', end_offset, 'start_at', start_timestamp, 'end_at', end_timestamp, 'partitions', partitions,
                'most', max_messages, 'timeout', timeout))
           || jsonb_build_object('format', format, 'delimiter', delimiter, 'quote', quote, 'escape', escape,
                'batchsize', batchsize, 'maxbytes', maxbytes, 'on_error', on_error, 'on_offset_lost', on_offset_lost,
                'null_string', null_string, 'header', header, 'unknown_fields', unknown_fields, 'on_null', on_null,
                'on_conflict', on_conflict, 'conflict_key', conflict_key, 'max_dead_letters', max_dead_letters);
    RETURN currval('pipeline_kafka.consumers_id_seq');
END $$;
COMMENT ON FUNCTION pipeline_kafka.replay(text, regclass, bigint, bigint, timestamptz, timestamptz, int[], bigint, text, text, text, text, int, int, text, text, text, boolean, text, text, text, text, bigint, int) IS
    'Begins to read a part of a topic into a relation once this transaction commits, in a worker of its own that ends with it. '
    'Consumers and their offsets are left alone. Answers the replay''s id: see replays_status, pause_replay(), cancel_replay(). '
    'start_offset: an offset in each partition, or -2 for the beginning (the default). end_offset: the first offset that is not '
    'read, or -1 for what is there now (the default). start_timestamp, end_timestamp: in place of them, the first message of that '
    'time or later. partitions: these only. max_messages: so many of all partitions together. The rest are consume_begin()''s '
    'options; what is left out is as the consumer of the same topic and relation has it. timeout: ms for Kafka to answer. '
    'Errors: those of consume_begin() and ask(), 22003 where Kafka does not have the first of the offsets any more.';

CREATE FUNCTION pipeline_kafka.pause_replay(replay int) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO pipeline_kafka.requests (function, arguments)
    SELECT 'pipeline_kafka.pause_replay'::regproc::oid, jsonb_build_object('id', replay);
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.pause_replay(int) IS
    'Has a replay wait, and its worker end, until resume_replay(); a batch under way may still be committed. Answers ''success''. '
    'Errors: 42704 where the caller has no such replay, 55000 where it has ended.';

CREATE FUNCTION pipeline_kafka.resume_replay(replay int) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO pipeline_kafka.requests (function, arguments)
    SELECT 'pipeline_kafka.resume_replay'::regproc::oid, jsonb_build_object('id', replay);
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.resume_replay(int) IS
    'Lets a replay that was paused, or stopped by itself, go on behind what it has committed. Answers ''success''. '
    'Errors: 42704 where the caller has no such replay, 55000 where it has ended, 42P01 where its relation is gone.';

CREATE FUNCTION pipeline_kafka.cancel_replay(replay int) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO pipeline_kafka.requests (function, arguments)
    SELECT 'pipeline_kafka.cancel_replay'::regproc::oid, jsonb_build_object('id', replay);
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.cancel_replay(int) IS
    'Ends a replay for good. What it has loaded stays; a batch under way may still be committed. Answers ''success''. '
    'Errors: 42704 where the caller has no such replay, 55000 where it has ended.';

-- Serving ------------------------------------------------------------------------------------------------------

CREATE FUNCTION pipeline_kafka.take_replay(id int, caller oid) RETURNS pipeline_kafka.replays
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    taken pipeline_kafka.replays;
BEGIN
    SELECT r.* INTO taken FROM pipeline_kafka.replays r JOIN pipeline_kafka.consumers c ON c.id = r.id
    WHERE r.id = take_replay.id AND pg_has_role(caller, c.owner, 'USAGE') FOR UPDATE OF r;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no replay % of yours', id USING ERRCODE = 'undefined_object',
            HINT = 'SELECT id, topic, relation, owner FROM pipeline_kafka.replays_status shows those there are.';
    END IF;
    RETURN taken;
END $$;
COMMENT ON FUNCTION pipeline_kafka.take_replay(int, oid) IS 'Locks a replay of the caller''s until the transaction ends. Errors: 42704.';

CREATE FUNCTION pipeline_kafka.change_replay(known pipeline_kafka.replays, function regproc) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    goes_on boolean := function = 'pipeline_kafka.resume_replay'::regproc;
BEGIN
    IF known.outcome IS NOT NULL THEN
        RAISE EXCEPTION 'replay % has ended: it is %', known.id, known.outcome
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'replay() begins another.';
    END IF;
    IF goes_on AND NOT EXISTS (SELECT FROM pipeline_kafka.consumers c JOIN pg_class r ON r.oid = c.relation WHERE c.id = known.id) THEN
        RAISE EXCEPTION 'the relation of replay % was dropped', known.id
            USING ERRCODE = 'undefined_table', HINT = 'cancel_replay() ends it.';
    END IF;
    UPDATE pipeline_kafka.consumers c SET enabled = goes_on WHERE c.id = known.id;
    IF goes_on THEN
        DELETE FROM pipeline_kafka.consumer_state s WHERE s.consumer_id = known.id;
        IF pipeline_kafka.setting('workers') <> '0' THEN
            PERFORM pipeline_kafka.start_workers(1, known.slot);
        END IF;
    ELSIF function = 'pipeline_kafka.cancel_replay'::regproc THEN
        UPDATE pipeline_kafka.replays r SET outcome = 'cancelled', slot = NULL, ended_at = now() WHERE r.id = known.id;
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.change_replay(pipeline_kafka.replays, regproc) IS
    'Does what pause_replay(), resume_replay() or cancel_replay() asks for.';

CREATE FUNCTION pipeline_kafka.serve_replay(asked pipeline_kafka.requests) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted pipeline_kafka.consumers := jsonb_populate_record(NULL::pipeline_kafka.consumers, asked.arguments);
    id int := asked.arguments -> 'id';
BEGIN
    wanted.owner := asked.caller;
    CASE asked.function::oid
    WHEN 'pipeline_kafka.replay'::regproc THEN
        PERFORM pipeline_kafka.store_replay(wanted, asked.arguments -> 'range', false), pipeline_kafka.warn_of_missing_parts();
    WHEN 'pipeline_kafka.replay_here'::regproc THEN
        IF id IS NULL THEN
            PERFORM pipeline_kafka.store_replay(wanted, asked.arguments -> 'range', true);
        ELSE
            PERFORM pipeline_kafka.take_replay(id, asked.caller), pipeline_kafka.note_replayed(id, asked.arguments);
        END IF;
    WHEN 'pipeline_kafka.pause_replay'::regproc, 'pipeline_kafka.resume_replay'::regproc, 'pipeline_kafka.cancel_replay'::regproc
    THEN
        PERFORM pipeline_kafka.change_replay(pipeline_kafka.take_replay(id, asked.caller), asked.function::oid);
    END CASE;
END $$;
COMMENT ON FUNCTION pipeline_kafka.serve_replay(pipeline_kafka.requests) IS
    'Carries out a request about a replay for the role that made it: see serve_request().';
