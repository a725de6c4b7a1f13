-- Reading a topic without a table, a group or a trace. Who may execute these sees messages of every topic that the
-- extension's user of Kafka may read.

CREATE FUNCTION pipeline_kafka.peek_bytes(topic text, partition int DEFAULT NULL, kafka_offset bigint DEFAULT NULL,
    n int DEFAULT 10, timeout int DEFAULT 10000,
    OUT partition int, OUT kafka_offset bigint, OUT kafka_timestamp timestamptz, OUT timestamp_type text, OUT key bytea,
    OUT value bytea, OUT headers jsonb) RETURNS SETOF record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.partition, r.kafka_offset, r.kafka_timestamp, r.timestamp_type, decode(r.key, 'base64'), decode(r.value, 'base64'),
           r.headers::jsonb
    FROM pipeline_kafka.ask('peek', jsonb_build_object('topic', $1, 'partition', $2, 'kafka_offset', $3, 'n', $4), $5) AS a,
         jsonb_to_record(a) AS r(partition int, kafka_offset bigint, kafka_timestamp timestamptz, timestamp_type text, key text,
                                 value text, headers text)
$$;
COMMENT ON FUNCTION pipeline_kafka.peek_bytes(text, int, bigint, int, int) IS
    'As peek(), with key and value in bytes, just as they are in Kafka.';

CREATE FUNCTION pipeline_kafka.peek(topic text, partition int DEFAULT NULL, kafka_offset bigint DEFAULT NULL,
    n int DEFAULT 10, timeout int DEFAULT 10000,
    OUT partition int, OUT kafka_offset bigint, OUT kafka_timestamp timestamptz, OUT timestamp_type text, OUT key text,
    OUT value text, OUT bytes int, OUT headers jsonb) RETURNS SETOF record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.partition, p.kafka_offset, p.kafka_timestamp, p.timestamp_type, pipeline_kafka.shown_text(p.key),
           pipeline_kafka.shown_text(p.value), octet_length(p.value), p.headers
    FROM pipeline_kafka.peek_bytes($1, $2, $3, $4, $5) AS p
$$;
COMMENT ON FUNCTION pipeline_kafka.peek(text, int, bigint, int, int) IS
    'Up to n (10; 10000 at the most) messages of each partition of a topic, or of one, with key and value as text: NULL where it is '
    'none in UTF-8; bytes tells how long a value is, NULL that there is none. kafka_offset: from that offset on, -2 from the '
    'beginning; left out, or -1: the last n. Nothing is committed, and no group is joined. timeout: ms. Errors: 42704 where there is no '
    'such topic or partition, 22023 for an offset outside the watermarks, and those of ask().';

CREATE FUNCTION pipeline_kafka.peek_json(topic text, partition int DEFAULT NULL, kafka_offset bigint DEFAULT NULL,
    n int DEFAULT 10, timeout int DEFAULT 10000,
    OUT partition int, OUT kafka_offset bigint, OUT kafka_timestamp timestamptz, OUT timestamp_type text, OUT key text,
    OUT value jsonb, OUT headers jsonb) RETURNS SETOF record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.partition, p.kafka_offset, p.kafka_timestamp, p.timestamp_type, p.key, pipeline_kafka.shown_json(p.value), p.headers
    FROM pipeline_kafka.peek($1, $2, $3, $4, $5) AS p
$$;
COMMENT ON FUNCTION pipeline_kafka.peek_json(text, int, bigint, int, int) IS
    'As peek(), with the value as jsonb; NULL where it is no JSON.';
