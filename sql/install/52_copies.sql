-- Offsets copied to ZooKeeper, for monitors that look there: a worker does it (pipeline_kafka/copying.py). It is the
-- business of those who say where Kafka is: these functions run with the caller's privileges on owner-only tables.

CREATE TABLE pipeline_kafka.zookeeper_copies (
    consumer_id int PRIMARY KEY REFERENCES pipeline_kafka.consumers ON DELETE CASCADE,
    zookeeper   text NOT NULL,
    group_id    text NOT NULL CONSTRAINT group_is_a_node CHECK (group_id <> '' AND group_id !~ '/'),
    copied_at   timestamptz,
    error       text
);
COMMENT ON TABLE pipeline_kafka.zookeeper_copies IS
    'Whose offsets are copied to ZooKeeper: written by copy_offsets_to_zookeeper() and by the worker that copies.';
COMMENT ON COLUMN pipeline_kafka.zookeeper_copies.zookeeper IS 'Its address, h1:2181,h2:2181/chroot.';
COMMENT ON COLUMN pipeline_kafka.zookeeper_copies.group_id IS 'The consumer group they are copied as: /consumers/<group_id>/offsets.';
COMMENT ON COLUMN pipeline_kafka.zookeeper_copies.copied_at IS 'When all of them were last there.';
COMMENT ON COLUMN pipeline_kafka.zookeeper_copies.error IS 'Why they are not; NULL where they are.';
-- It is in no dump: a copy of the database must not speak for this one.

CREATE FUNCTION pipeline_kafka.copy_offsets_to_zookeeper(topic text, relation regclass, group_id text,
    zookeeper text DEFAULT NULL, timeout int DEFAULT 10000) RETURNS text
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    address text := pipeline_kafka.zookeeper_named(zookeeper);
    consumer pipeline_kafka.consumers;
    other regclass;
    members text;
BEGIN
    SELECT c.* INTO consumer FROM pipeline_kafka.consumers c
    WHERE c.topic = copy_offsets_to_zookeeper.topic AND c.relation = copy_offsets_to_zookeeper.relation AND NOT c.replay;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no consumer % -> %', topic, relation USING ERRCODE = 'undefined_object',
            HINT = 'SELECT topic, relation FROM pipeline_kafka.consumers_status shows those there are.';
    END IF;
    SELECT c.relation INTO other FROM pipeline_kafka.zookeeper_copies z JOIN pipeline_kafka.consumers c ON c.id = z.consumer_id
    WHERE z.consumer_id <> consumer.id AND c.topic = consumer.topic AND z.zookeeper = address
      AND z.group_id = copy_offsets_to_zookeeper.group_id;
    IF FOUND THEN
        RAISE EXCEPTION 'group "%" of ZooKeeper has the offsets of consumer % -> % already', group_id, topic, other
            USING ERRCODE = 'duplicate_object', HINT = 'Give each consumer of a topic a group of its own there.';
    END IF;
    SELECT string_agg(a ->> 'member_id', ', ') INTO members
    FROM pipeline_kafka.ask('zookeeper_members', jsonb_build_object('group', coalesce(group_id, ''), 'zookeeper', address), timeout) AS a;
    IF members IS NOT NULL THEN
        RAISE EXCEPTION 'consumer group "%" still has members, which go by its offsets in ZooKeeper', group_id
            USING ERRCODE = 'object_in_use', DETAIL = format('They are %s.', members), HINT = 'Stop them first, or name another group.';
    END IF;
    INSERT INTO pipeline_kafka.zookeeper_copies AS z VALUES (consumer.id, address, group_id)
    ON CONFLICT ON CONSTRAINT zookeeper_copies_pkey DO UPDATE SET zookeeper = EXCLUDED.zookeeper, group_id = EXCLUDED.group_id,
        copied_at = NULL, error = NULL;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.copy_offsets_to_zookeeper(text, regclass, text, text, int) IS
    'From now on copies the offsets of a consumer to ZooKeeper as those of group_id, once a second while a worker runs. Nobody here '
    'reads them: they are for monitors. zookeeper: h1:2181,h2:2181/chroot, which must answer within timeout (ms). Answers ''success''. '
    'Errors: 42704 where there is no such consumer, 55006 where the group has members there, 42710 where another consumer of the '
    'topic is copied to it, 22023 for an address or a group that is none, 08006 where ZooKeeper does not answer.';

CREATE FUNCTION pipeline_kafka.stop_copying_offsets(topic text, relation regclass) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM pipeline_kafka.zookeeper_copies z USING pipeline_kafka.consumers c
    WHERE c.id = z.consumer_id AND c.topic = stop_copying_offsets.topic AND c.relation = stop_copying_offsets.relation;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the offsets of % -> % are not copied', topic, relation USING ERRCODE = 'undefined_object',
            HINT = 'SELECT * FROM pipeline_kafka.offset_copies shows those that are.';
    END IF;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.stop_copying_offsets(text, regclass) IS
    'Ends copy_offsets_to_zookeeper() for a consumer; what is in ZooKeeper stays. Answers ''success''. Errors: 42704 where they are '
    'not copied.';

CREATE VIEW pipeline_kafka.offset_copies AS
SELECT c.topic, c.relation, z.zookeeper, z.group_id, z.copied_at, z.error
FROM pipeline_kafka.zookeeper_copies z JOIN pipeline_kafka.consumers c ON c.id = z.consumer_id
ORDER BY c.topic, c.relation;
COMMENT ON VIEW pipeline_kafka.offset_copies IS
    'Consumers whose offsets are copied to ZooKeeper: when they were last there, or why they are not.';
GRANT SELECT ON pipeline_kafka.offset_copies TO pg_monitor;
