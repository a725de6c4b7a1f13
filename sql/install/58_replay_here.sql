-- Replaying in the caller's own transaction.

CREATE FUNCTION pipeline_kafka.note_replayed(id int, passed jsonb) RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE pipeline_kafka.offsets o
    SET next_offset = p.next, messages = o.messages + p.messages, set_aside = o.set_aside + p.set_aside,
        skipped = o.skipped + p.skipped, nulls = o.nulls + p.nulls, committed_at = clock_timestamp()
    FROM jsonb_to_recordset(passed -> 'partitions')
             AS p("partition" int, "next" bigint, "messages" bigint, "set_aside" bigint, "skipped" bigint, "nulls" bigint)
    WHERE o.consumer_id = note_replayed.id AND o.partition = p.partition;
    INSERT INTO pipeline_kafka.dead_letters (consumer_id, topic, partition, kafka_offset, key, value, headers, kafka_timestamp,
        sqlstate, error, detail, hint, column_name)
    SELECT c.id, c.topic, l.partition, l.kafka_offset, decode(l.key, 'base64'), decode(l.value, 'base64'), l.headers::jsonb,
           l.kafka_timestamp, l.sqlstate, l.error, l.detail, l.hint, l.column_name
    FROM pipeline_kafka.consumers c,
         jsonb_to_recordset(passed -> 'letters') AS l("partition" int, kafka_offset bigint, key text, value text, headers text,
             kafka_timestamp timestamptz, sqlstate text, error text, detail text, hint text, column_name text)
    WHERE c.id = note_replayed.id;
    UPDATE pipeline_kafka.replays r SET ended_at = clock_timestamp() WHERE r.id = note_replayed.id AND r.outcome IS NOT NULL;
$$;
COMMENT ON FUNCTION pipeline_kafka.note_replayed(int, jsonb) IS
    'Notes what replay_here() has passed: counts by partition, and letters, whose keys and values are in base64.';

CREATE FUNCTION pipeline_kafka.read_replay(replay int, timeout int) RETURNS SETOF bytea
LANGUAGE plpython3u VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
if "api" not in GD:
    plpy.execute("SELECT pipeline_kafka.load_api()")
return GD["api"].read_replay(plpy, replay, timeout)
$$;
COMMENT ON FUNCTION pipeline_kafka.read_replay(int, int) IS
    'The reading part of replay_here(), in Python: the messages of a replay from where it stands, in pieces (MessagePack). '
    'Who may execute it reads what others may replay. timeout: ms that Kafka may be silent. Errors: those of ask().';

-- The settings are those that a worker's session has (pipeline_kafka/database.py): they decide what a value means.
CREATE FUNCTION pipeline_kafka.load_replay(replay int, timeout int,
    OUT messages bigint, OUT loaded bigint, OUT set_aside bigint, OUT skipped bigint, OUT nulls bigint) RETURNS record
LANGUAGE plpython3u VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
SET DateStyle = 'ISO, MDY' SET IntervalStyle = 'postgres' SET standard_conforming_strings = on SET row_security = on
AS $$
if "api" not in GD:
    plpy.execute("SELECT pipeline_kafka.load_api()")
return GD["api"].load_replay(plpy, replay, timeout)
$$;
COMMENT ON FUNCTION pipeline_kafka.load_replay(int, int) IS
    'The loading part of replay_here(), in Python: decodes messages and writes their rows as the caller.';

CREATE FUNCTION pipeline_kafka.replay_here(topic text, relation regclass, start_offset bigint DEFAULT NULL,
    end_offset bigint DEFAULT NULL, start_timestamp timestamptz DEFAULT NULL, end_timestamp timestamptz DEFAULT NULL,
    partitions int[] DEFAULT NULL, max_messages bigint DEFAULT NULL, format text DEFAULT NULL, delimiter text DEFAULT NULL,
    quote text DEFAULT NULL, escape text DEFAULT NULL, batchsize int DEFAULT NULL, maxbytes int DEFAULT NULL,
    on_error text DEFAULT NULL, null_string text DEFAULT NULL, header boolean DEFAULT NULL, unknown_fields text DEFAULT NULL,
    on_null text DEFAULT NULL, on_conflict text DEFAULT NULL, conflict_key text DEFAULT NULL,
    max_dead_letters bigint DEFAULT NULL, timeout int DEFAULT 10000,
    OUT replay int, OUT messages bigint, OUT loaded bigint, OUT set_aside bigint, OUT skipped bigint, OUT nulls bigint) RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    said text;
    code text;
    more text;
    remedy text;
BEGIN
    INSERT INTO pipeline_kafka.requests (function, arguments)
    SELECT 'pipeline_kafka.replay_here'::regproc::oid,
           jsonb_build_object('topic', topic, 'relation', relation::oid, 'range', jsonb_build_object('start', start_offset,
                'end', end_offset, 'start_at', start_timestamp, 'end_at', end_timestamp, 'partitions', partitions,
                'most', max_messages, 'timeout', timeout))
           || jsonb_build_object('format', format, 'delimiter', delimiter, 'quote', quote, 'escape', escape,
                'batchsize', batchsize, 'maxbytes', maxbytes, 'on_error', on_error, 'null_string', null_string,
                'header', header, 'unknown_fields', unknown_fields, 'on_null', on_null, 'on_conflict', on_conflict,
                'conflict_key', conflict_key, 'max_dead_letters', max_dead_letters);
    replay := currval('pipeline_kafka.consumers_id_seq');
    BEGIN
        SELECT * INTO messages, loaded, set_aside, skipped, nulls FROM pipeline_kafka.load_replay(replay, timeout);
    EXCEPTION WHEN OTHERS THEN  -- the same error, without Python's names for it and the lines of Python it went through
        GET STACKED DIAGNOSTICS said = MESSAGE_TEXT, code = RETURNED_SQLSTATE, more = PG_EXCEPTION_DETAIL, remedy = PG_EXCEPTION_HINT;
        said := regexp_replace(said, '^((spiexceptions|plpy)\.\w+: )+', '');
        IF more = '' AND remedy = '' THEN
            RAISE EXCEPTION USING ERRCODE = code, MESSAGE = said;
        END IF;
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = said, DETAIL = concat_ws(E'\n', nullif(more, ''), nullif(remedy, ''));
    END;
END $$;
COMMENT ON FUNCTION pipeline_kafka.replay_here(text, regclass, bigint, bigint, timestamptz, timestamptz, int[], bigint, text, text, text, text, int, int, text, text, boolean, text, text, text, text, bigint, int) IS
    'Reads a part of a topic into a relation now, in this transaction, as the caller: see replay() for the arguments. With ROLLBACK '
    'it is a dry run. Answers its id in replays_status and dead_letters, and how many messages it passed: loaded, set aside, '
    'skipped (bad ones, with on_error => ''skip'') and without a value. A NOTICE every 5 s tells how far it is, a cancel is '
    'answered at once. Constraints are checked at once until the transaction ends. on_error => ''stop'', and more than '
    'max_dead_letters, are errors here. timeout: ms that Kafka may be silent. '
    'Errors: those of replay(), and whatever keeps the relation from being written to. '
    'Needs EXECUTE on this, load_replay, read_replay, load_api, setting, relation_version, unique_keys and execute_as; SELECT '
    'on consumers and error_rules.';
