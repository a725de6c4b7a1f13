-- What is in Kafka: topics, partitions, watermarks. They run as the extension's owner: who may execute them sees topics,
-- but no property, which may be a secret.

CREATE FUNCTION pipeline_kafka.topics(timeout int DEFAULT 10000,
    OUT topic text, OUT partitions int, OUT replicas int) RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.* FROM pipeline_kafka.ask('topics', '{}', timeout) AS a,
                    jsonb_to_record(a) AS r(topic text, partitions int, replicas int)
$$;
COMMENT ON FUNCTION pipeline_kafka.topics(int) IS
    'The topics of the cluster, by name: how many partitions, and replicas of each. timeout: ms. Errors: those of ask().';

CREATE FUNCTION pipeline_kafka.topic_partitions(topic text, timeout int DEFAULT 10000,
    OUT partition int, OUT leader int, OUT replicas int[], OUT in_sync int[]) RETURNS SETOF record
LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.* FROM pipeline_kafka.ask('topic_partitions', jsonb_build_object('topic', topic), timeout) AS a,
                    jsonb_to_record(a) AS r(partition int, leader int, replicas int[], in_sync int[])
$$;
COMMENT ON FUNCTION pipeline_kafka.topic_partitions(text, int) IS
    'The partitions of a topic: which broker (by id) leads, NULL for none; which hold replicas, and which of them are in sync. '
    'timeout: ms. Errors: 42704 where there is no such topic, and those of ask().';

CREATE FUNCTION pipeline_kafka.topic_watermarks(topic text, partition int DEFAULT NULL, timeout int DEFAULT 10000,
    OUT partition int, OUT low bigint, OUT high bigint) RETURNS SETOF record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.* FROM pipeline_kafka.ask('topic_watermarks', jsonb_build_object('topic', $1, 'partition', $2), $3) AS a,
                    jsonb_to_record(a) AS r(partition int, low bigint, high bigint)
$$;
COMMENT ON FUNCTION pipeline_kafka.topic_watermarks(text, int, int) IS
    'The watermarks of a topic''s partitions, or of one: low is the first offset there is, high the one behind the last message. '
    'timeout: ms. Errors: 42704 where there is no such topic or partition, and those of ask().';
