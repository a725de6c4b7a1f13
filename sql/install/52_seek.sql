-- Sending a consumer to another place, running or not: an UPDATE of its offsets in the caller's transaction. A worker that
-- is loading then commits first, or finds its claim (pipeline_kafka/offsets.py) lost and reads the offsets again.

-- As requests, for functions that answer rows: an INSERT … RETURNING answer.
CREATE VIEW pipeline_kafka.answered_requests AS
SELECT NULL::regrole AS caller, NULL::regprocedure AS function, NULL::jsonb AS arguments, NULL::jsonb AS answer WHERE false;
ALTER VIEW pipeline_kafka.answered_requests ALTER COLUMN caller SET DEFAULT quote_ident(current_user)::regrole;
COMMENT ON VIEW pipeline_kafka.answered_requests IS
    'Always empty: what is inserted is carried out for the inserting role, and RETURNING gives the answer.';
GRANT INSERT (function, arguments), SELECT (answer) ON pipeline_kafka.answered_requests TO PUBLIC;

CREATE TABLE pipeline_kafka.seeks (
    consumer_id int NOT NULL REFERENCES pipeline_kafka.consumers ON DELETE CASCADE,
    topic       text NOT NULL,
    partition   int NOT NULL,
    from_offset bigint,
    to_offset   bigint NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    by          regrole NOT NULL
);
CREATE INDEX seeks_consumer ON pipeline_kafka.seeks (consumer_id);
COMMENT ON TABLE pipeline_kafka.seeks IS
    'Each partition that seek() has moved: what it passed over, or had read again.';
COMMENT ON COLUMN pipeline_kafka.seeks.from_offset IS 'Where the consumer stood; NULL where it had not begun in the partition.';
SELECT pg_catalog.pg_extension_config_dump('pipeline_kafka.seeks', '');

CREATE FUNCTION pipeline_kafka.seek_targets(topic text, exclude text, partition int, to_offset bigint, to_timestamp timestamptz,
    clamp boolean, timeout int) RETURNS jsonb
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    targets jsonb;
    outside text;
BEGIN
    IF num_nonnulls(to_offset, to_timestamp) <> 1 THEN
        RAISE EXCEPTION 'seek() takes either to_offset or to_timestamp' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'to_offset: -2 for the beginning, -1 for the end, else an offset.';
    ELSIF NOT isfinite(to_timestamp) THEN
        RAISE EXCEPTION 'to_timestamp is %', to_timestamp USING ERRCODE = 'invalid_parameter_value',
            HINT = 'to_offset: -2 is the beginning, -1 the end.';
    ELSIF to_offset < -2 THEN
        RAISE EXCEPTION 'to_offset is %', to_offset USING ERRCODE = 'invalid_parameter_value',
            HINT = '-2 is the beginning, -1 the end, 0 the first offset of all.';
    END IF;
    SELECT jsonb_agg(a || jsonb_build_object('to_offset', CASE
               WHEN to_timestamp IS NOT NULL THEN coalesce(p.at, p.end)
               WHEN to_offset = -2 THEN p.low
               WHEN to_offset = -1 THEN p.end
               WHEN clamp THEN greatest(p.low, least(p.high, to_offset))
               ELSE to_offset END) ORDER BY p.topic, p.partition),
           string_agg(format('%s[%s] holds offsets %s to %s.', p.topic, p.partition, p.low, p.high), ' ' ORDER BY p.topic, p.partition)
               FILTER (WHERE to_offset >= 0 AND to_offset NOT BETWEEN p.low AND p.high)
    INTO targets, outside
    FROM pipeline_kafka.ask('positions', jsonb_build_object('topic', topic, 'exclude', exclude, 'partition', partition,
             'milliseconds', CASE WHEN isfinite(to_timestamp) THEN greatest(0, ceil(extract(epoch FROM to_timestamp) * 1000)) END),
             timeout) AS a,
         jsonb_to_record(a) AS p(topic text, partition int, low bigint, high bigint, "end" bigint, at bigint);
    IF outside IS NOT NULL AND NOT clamp THEN
        RAISE EXCEPTION 'offset % is not there to be sought', to_offset USING ERRCODE = 'invalid_parameter_value', DETAIL = outside,
            HINT = 'clamp => true takes the nearest there is.';
    END IF;
    RETURN targets;
END $$;
COMMENT ON FUNCTION pipeline_kafka.seek_targets(text, text, int, bigint, timestamptz, boolean, int) IS
    'Where seek() leads to in each partition, as Kafka has it now: an array of objects with topic, partition, topic_id and to_offset. '
    'Errors: 22023 for a place that is not there, 42704 for a topic or partition, and those of ask().';

CREATE FUNCTION pipeline_kafka.move_offsets(consumer int, caller oid, targets jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place record;
    old bigint;
    moves jsonb := '[]';
BEGIN
    FOR place IN
        SELECT * FROM jsonb_to_recordset(targets) AS t(topic text, partition int, topic_id text, to_offset bigint)
    LOOP
        old := NULL;
        SELECT o.next_offset INTO old FROM pipeline_kafka.offsets o
        WHERE o.consumer_id = consumer AND o.topic = place.topic AND o.partition = place.partition FOR UPDATE;
        INSERT INTO pipeline_kafka.offsets AS o (consumer_id, topic, partition, next_offset, topic_id)
        VALUES (consumer, place.topic, place.partition, place.to_offset, place.topic_id)
        ON CONFLICT (consumer_id, topic, partition) DO UPDATE
            SET next_offset = EXCLUDED.next_offset, topic_id = EXCLUDED.topic_id, last_timestamp = NULL;
        INSERT INTO pipeline_kafka.seeks (consumer_id, topic, partition, from_offset, to_offset, by)
        SELECT consumer, place.topic, place.partition, old, place.to_offset, caller WHERE old IS DISTINCT FROM place.to_offset;
        moves := moves || jsonb_build_object('topic', place.topic, 'partition', place.partition, 'from_offset', old,
                                             'to_offset', place.to_offset);
    END LOOP;
    RETURN moves;
END $$;
COMMENT ON FUNCTION pipeline_kafka.move_offsets(int, oid, jsonb) IS
    'The writing part of seek(): moves a consumer (by id) to what seek_targets() answered, notes it in seeks, and answers an array '
    'of objects with topic, partition, from_offset and to_offset. It waits for batches that are being loaded.';

CREATE FUNCTION pipeline_kafka.own_consumer(wanted pipeline_kafka.consumers, caller oid) RETURNS pipeline_kafka.consumers
LANGUAGE plpgsql STABLE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known pipeline_kafka.consumers;
BEGIN
    SELECT * INTO known FROM pipeline_kafka.consumers c
    WHERE c.topic = wanted.topic AND c.relation = wanted.relation AND NOT c.replay AND pg_has_role(caller, c.owner, 'USAGE');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no consumer % -> % of yours', wanted.topic, wanted.relation USING ERRCODE = 'undefined_object',
            HINT = 'SELECT topic, relation, owner FROM pipeline_kafka.consumers_status shows those there are.';
    END IF;
    RETURN known;
END $$;
COMMENT ON FUNCTION pipeline_kafka.own_consumer(pipeline_kafka.consumers, oid) IS
    'The consumer of wanted''s topic and relation, if it is the caller''s. Errors: 42704.';

CREATE FUNCTION pipeline_kafka.seek_consumer(wanted pipeline_kafka.consumers, caller oid, partition int, of_topic text,
    to_offset bigint, to_timestamp timestamptz, clamp boolean, timeout int) RETURNS jsonb
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known pipeline_kafka.consumers;
    targets jsonb;
BEGIN
    known := pipeline_kafka.own_consumer(wanted, caller);
    IF known.topic ^@ '^' AND partition IS NOT NULL AND of_topic IS NULL THEN
        RAISE EXCEPTION 'partition % of which topic? % is a pattern', partition, known.topic USING ERRCODE = 'invalid_parameter_value',
            HINT = 'of_topic => ''…'' names it.';
    ELSIF of_topic <> known.topic AND (known.topic !~ '^\^' OR of_topic !~ known.topic OR of_topic ~ known.exclude) THEN
        RAISE EXCEPTION 'consumer % -> % does not read topic %', known.topic, known.relation, of_topic
            USING ERRCODE = 'invalid_parameter_value', HINT = 'of_topic is for one of a pattern''s topics.';
    END IF;
    targets := pipeline_kafka.seek_targets(coalesce(of_topic, known.topic), known.exclude, partition, to_offset, to_timestamp,
                                           coalesce(clamp, false), timeout);
    -- Touched, it is a new version to the workers, which stand again. consume_begin() and other seeks wait here.
    UPDATE pipeline_kafka.consumers c SET enabled = c.enabled WHERE c.id = known.id;
    FOR tries IN 1..5 LOOP
        BEGIN
            RETURN pipeline_kafka.move_offsets(known.id, caller, targets);
        EXCEPTION WHEN deadlock_detected THEN  -- a worker has claimed these rows in another order: let it go first
            IF tries = 5 THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END $$;
COMMENT ON FUNCTION pipeline_kafka.seek_consumer(pipeline_kafka.consumers, oid, int, text, bigint, timestamptz, boolean, int) IS
    'The working part of seek(): finds the consumer by topic and relation, asks Kafka, and moves it for its caller.';

CREATE FUNCTION pipeline_kafka.seek(topic text, relation regclass, to_offset bigint DEFAULT NULL,
    to_timestamp timestamptz DEFAULT NULL, partition int DEFAULT NULL, of_topic text DEFAULT NULL, clamp boolean DEFAULT false,
    timeout int DEFAULT 10000, OUT topic text, OUT partition int, OUT from_offset bigint, OUT to_offset bigint) RETURNS SETOF record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH carried_out AS (
        INSERT INTO pipeline_kafka.answered_requests (function, arguments)
        VALUES ('pipeline_kafka.seek(text, regclass, bigint, timestamptz, int, text, boolean, int)'::regprocedure,
                jsonb_build_object('topic', $1, 'relation', $2::oid, 'to_offset', $3, 'to_timestamp', $4, 'partition', $5,
                                   'of_topic', $6, 'clamp', $7, 'timeout', $8))
        RETURNING answer)
    SELECT m.* FROM carried_out c, jsonb_to_recordset(c.answer) AS m(topic text, partition int, from_offset bigint, to_offset bigint)
$$;
COMMENT ON FUNCTION pipeline_kafka.seek(text, regclass, bigint, timestamptz, int, text, boolean, int) IS
    'Sends a consumer of the caller to another place when the transaction commits, whether it runs or not, and answers each '
    'partition that it stands in now, from where (NULL: not begun there) and to where. to_offset: -2 the beginning, -1 the end, else an '
    'offset. to_timestamp: the first message of that time or later, the end where there is none. partition: this one only. '
    'of_topic: of a pattern''s topics this one only. clamp: take the nearest offset there is in place of one that is not there. '
    'timeout: ms for Kafka''s answer. What is read again is loaded again, and counted again. Errors: 42704 where the caller has no '
    'such consumer, or Kafka no such topic or partition; 22023 for an offset outside the watermarks; those of ask().';

CREATE FUNCTION pipeline_kafka.serve_answered_request() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted pipeline_kafka.consumers := jsonb_populate_record(NULL::pipeline_kafka.consumers, NEW.arguments);
BEGIN
    PERFORM pipeline_kafka.check_may_call(NEW.caller, NEW.function);
    CASE NEW.function
    WHEN 'pipeline_kafka.seek(text, regclass, bigint, timestamptz, int, text, boolean, int)'::regprocedure THEN
        NEW.answer := (
            SELECT pipeline_kafka.seek_consumer(wanted, NEW.caller, a.partition, a.of_topic, a.to_offset, a.to_timestamp, a.clamp, a.timeout)
            FROM jsonb_to_record(NEW.arguments) AS a(partition int, of_topic text, to_offset bigint, to_timestamp timestamptz,
                                                     clamp boolean, timeout int));
    WHEN 'pipeline_kafka.rewind(text, regclass, bigint, timestamptz, int, boolean, int)'::regprocedure THEN
        NEW.answer := (
            SELECT pipeline_kafka.rewind_consumer(wanted, NEW.caller, a.partition, a.to_offset, a.to_timestamp, a.force, a.timeout)
            FROM jsonb_to_record(NEW.arguments) AS a(partition int, to_offset bigint, to_timestamp timestamptz, force boolean, timeout int));
    END CASE;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION pipeline_kafka.serve_answered_request() IS
    'Carries out a request for the role that inserted it, as serve_request() does, and gives its answer.';

CREATE TRIGGER serve_answered_request INSTEAD OF INSERT ON pipeline_kafka.answered_requests
    FOR EACH ROW EXECUTE FUNCTION pipeline_kafka.serve_answered_request();
