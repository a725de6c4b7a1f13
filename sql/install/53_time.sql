-- Where in a topic a time is.

CREATE FUNCTION pipeline_kafka.offsets_for_times(topic text, kafka_timestamp timestamptz, timeout int DEFAULT 10000,
    OUT partition int, OUT kafka_offset bigint, OUT kafka_timestamp timestamptz) RETURNS SETOF record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.* FROM pipeline_kafka.ask('offsets_for_times', jsonb_build_object('topic', $1,
                        'milliseconds',
                            CASE $2 WHEN 'infinity' THEN 9223372036854775807 WHEN '-infinity' THEN 0
                                    ELSE greatest(0, ceil(extract(epoch FROM $2) * 1000)::bigint) END), $3) AS a,
                    jsonb_to_record(a) AS r(partition int, kafka_offset bigint, kafka_timestamp timestamptz)
    WHERE $2 IS NOT NULL
$$;
COMMENT ON FUNCTION pipeline_kafka.offsets_for_times(text, timestamptz, int) IS
    'The first message of this time or later in each partition of a topic, by Kafka''s own index: its offset and its timestamp; NULL '
    'where there is none. timeout: ms. Errors: 42704 where there is no such topic, and those of ask().';
