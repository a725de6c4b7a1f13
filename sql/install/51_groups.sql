-- Consumer groups, whoever reads in them: where Kafka and ZooKeeper say that they stand. Those that look run as the
-- extension's owner, as in 47_topics.sql. To look at a group does not make it.

CREATE FUNCTION pipeline_kafka.group_coordinator(group_id text, timeout int DEFAULT 10000,
    OUT id int, OUT host text, OUT port int, OUT state text) RETURNS record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.* FROM pipeline_kafka.ask('group_coordinator', jsonb_build_object('group', coalesce($1, '')), $2) AS a,
                    jsonb_to_record(a) AS r(id int, host text, port int, state text)
$$;
COMMENT ON FUNCTION pipeline_kafka.group_coordinator(text, int) IS
    'The broker that coordinates a consumer group, and the group''s state in Kafka''s words: Stable, PreparingRebalance, '
    'CompletingRebalance, Empty (no member), Dead (no such group), Unknown (members of the newer protocol move partitions). '
    'A coordinator that moves, loads or is not there is asked again within timeout (ms). Errors: 57P03 where it is not there by '
    'then, 42501 where ACLs forbid it, 22023 where the group is NULL or empty, and those of ask().';

CREATE FUNCTION pipeline_kafka.groups(timeout int DEFAULT 10000,
    OUT group_id text, OUT state text, OUT type text) RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.* FROM pipeline_kafka.ask('groups', '{}', timeout) AS a, jsonb_to_record(a) AS r(group_id text, state text, type text)
$$;
COMMENT ON FUNCTION pipeline_kafka.groups(int) IS
    'The consumer groups that Kafka knows, by name, with their states (see group_coordinator()) and protocols: classic or '
    'consumer. It asks every broker, and is an error where one of them does not answer. timeout: ms. Errors: as group_coordinator().';

CREATE FUNCTION pipeline_kafka.group_members(group_id text, timeout int DEFAULT 10000,
    OUT member_id text, OUT instance_id text, OUT client_id text, OUT host text, OUT assigned jsonb) RETURNS SETOF record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.* FROM pipeline_kafka.ask('group_members', jsonb_build_object('group', coalesce($1, '')), $2) AS a,
                    jsonb_to_record(a) AS r(member_id text, instance_id text, client_id text, host text, assigned jsonb)
$$;
COMMENT ON FUNCTION pipeline_kafka.group_members(text, int) IS
    'The members of a consumer group. instance_id: group.instance.id, NULL for members without one. assigned: an array of partitions '
    'for each topic, {"sales": [0, 1]}. No row for a group without members. timeout: ms. Errors: 42704 where Kafka has no such '
    'group, and as group_coordinator().';

CREATE FUNCTION pipeline_kafka.committed_offsets(group_id text, topic text DEFAULT NULL, timeout int DEFAULT 10000,
    OUT topic text, OUT partition int, OUT committed_offset bigint, OUT leader_epoch int, OUT metadata text) RETURNS SETOF record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.* FROM pipeline_kafka.ask('committed_offsets', jsonb_build_object('group', coalesce($1, ''), 'topic', $2), $3) AS a,
                    jsonb_to_record(a) AS r(topic text, partition int, committed_offset bigint, leader_epoch int, metadata text)
$$;
COMMENT ON FUNCTION pipeline_kafka.committed_offsets(text, text, int) IS
    'The offsets that a consumer group has committed to Kafka, in all topics or in one: the next offset that it reads. Partitions '
    'without one have no row. timeout: ms. Errors: 42704 where Kafka has no such group, and as group_coordinator().';

CREATE FUNCTION pipeline_kafka.zookeeper_named(address text) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known text[] := (SELECT array_agg(z.address) FROM pipeline_kafka.zookeepers z);
BEGIN
    IF address IS NULL AND cardinality(known) IS DISTINCT FROM 1 THEN
        RAISE EXCEPTION 'no ZooKeeper is named' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give its address, as zookeeper.connect has it: h1:2181,h2:2181/chroot.';
    END IF;
    RETURN coalesce(address, known[1]);
END $$;
COMMENT ON FUNCTION pipeline_kafka.zookeeper_named(text) IS
    'The ZooKeeper that an argument names, or where it is NULL the one that discover_brokers() was given. Errors: 22023 where it '
    'names none, and none or several were given.';

CREATE FUNCTION pipeline_kafka.lag_of(high bigint, next_offset bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT greatest(high - next_offset, 0)
$$;
COMMENT ON FUNCTION pipeline_kafka.lag_of(bigint, bigint) IS
    'Messages between an offset and the high watermark, not below 0; NULL where either is not known.';

CREATE FUNCTION pipeline_kafka.zookeeper_offsets(group_id text, topic text DEFAULT NULL, zookeeper text DEFAULT NULL,
    timeout int DEFAULT 10000,
    OUT topic text, OUT partition int, OUT committed_offset bigint, OUT written_at timestamptz) RETURNS SETOF record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.*
    FROM pipeline_kafka.ask('zookeeper_offsets', jsonb_build_object(
             'group', coalesce($1, ''), 'topic', $2, 'zookeeper', pipeline_kafka.zookeeper_named($3)), $4) AS a,
         jsonb_to_record(a) AS r(topic text, partition int, committed_offset bigint, written_at timestamptz)
$$;
COMMENT ON FUNCTION pipeline_kafka.zookeeper_offsets(text, text, text, int) IS
    'The offsets that a consumer group of old keeps in ZooKeeper, at /consumers/<group>/offsets/<topic>/<partition>, in all topics or '
    'in one; committed_offset is NULL for an empty node. written_at is ZooKeeper''s time. zookeeper: h1:2181,h2:2181/chroot. '
    'timeout: ms. Errors: 42704 where there is no such group, 22023 for another address, 22P02 where a node is no offset, 42501 '
    'where ZooKeeper''s ACLs forbid it, 08006 where none of the hosts answers in time.';

CREATE FUNCTION pipeline_kafka.compare_offsets(group_id text, topic text DEFAULT NULL, zookeeper text DEFAULT NULL,
    timeout int DEFAULT 10000,
    OUT topic text, OUT partition int, OUT low bigint, OUT high bigint, OUT kafka_offset bigint, OUT kafka_lag bigint,
    OUT zookeeper_offset bigint, OUT zookeeper_lag bigint, OUT relation regclass, OUT next_offset bigint, OUT lag bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH progress AS MATERIALIZED (
        SELECT r.*
        FROM pipeline_kafka.ask('group_progress', jsonb_build_object('group', coalesce($1, ''), 'topic', $2, 'zookeeper', $3), $4) AS a,
             jsonb_to_record(a) AS r(topic text, partition int, low bigint, high bigint, kafka_offset bigint, zookeeper_offset bigint))
    SELECT p.topic, p.partition, p.low, p.high, p.kafka_offset, pipeline_kafka.lag_of(p.high, p.kafka_offset),
           p.zookeeper_offset, pipeline_kafka.lag_of(p.high, p.zookeeper_offset),
           o.relation, o.next_offset, pipeline_kafka.lag_of(p.high, o.next_offset)
    FROM progress p
    LEFT JOIN (SELECT oo.topic, oo.partition, oo.next_offset, c.relation
               FROM pipeline_kafka.offsets oo JOIN pipeline_kafka.consumers c ON c.id = oo.consumer_id
               WHERE NOT c.replay) o ON o.topic = p.topic AND o.partition = p.partition
    ORDER BY p.topic, p.partition, o.relation
$$;
COMMENT ON FUNCTION pipeline_kafka.compare_offsets(text, text, text, int) IS
    'For watching a migration: where a consumer group stands by Kafka and, if one is named, by ZooKeeper, beside the watermarks and '
    'the offsets of our own consumers. A row a partition and consumer of ours, of the topics that the group has offsets in, or of '
    'topic; relation is NULL where none of ours reads it. Offsets are the next one to read, lags are in messages. timeout: ms. '
    'Errors: 42704 where neither knows the group, and those of committed_offsets() and zookeeper_offsets().';

CREATE FUNCTION pipeline_kafka.group_standing(arguments jsonb, caller oid) RETURNS jsonb
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    source text := coalesce(arguments ->> 'start_from', 'kafka');
    zookeeper text := arguments ->> 'zookeeper';
    standing jsonb;
BEGIN
    PERFORM pipeline_kafka.check_choice('start_from', source, '{kafka,zookeeper}');
    IF arguments ->> 'start_from_group' IS NULL THEN
        IF coalesce(arguments ->> 'start_from', zookeeper, arguments ->> 'start_from_live') IS NOT NULL THEN
            RAISE EXCEPTION 'start_from, zookeeper and start_from_live go with start_from_group'
                USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the consumer group, or leave them out.';
        END IF;
        RETURN NULL;
    END IF;
    IF zookeeper IS NOT NULL AND NOT has_function_privilege(caller, 'pipeline_kafka.zookeeper_offsets(text, text, text, int)', 'EXECUTE') THEN
        RAISE EXCEPTION 'role % may not have the server connect to a ZooKeeper', caller::regrole USING ERRCODE = 'insufficient_privilege',
            HINT = format('A superuser may: GRANT EXECUTE ON FUNCTION pipeline_kafka.zookeeper_offsets TO %s;', caller::regrole);
    END IF;
    IF source = 'zookeeper' THEN
        zookeeper := pipeline_kafka.zookeeper_named(zookeeper);
    END IF;
    SELECT jsonb_agg(a) INTO standing
    FROM pipeline_kafka.ask('group_start', jsonb_build_object('group', arguments -> 'start_from_group', 'topic', arguments -> 'topic',
        'exclude', arguments -> 'exclude', 'source', source, 'zookeeper', zookeeper, 'live', coalesce((arguments ->> 'start_from_live')::boolean, false)), 30000) AS a;
    RETURN standing;
END $$;
COMMENT ON FUNCTION pipeline_kafka.group_standing(jsonb, oid) IS
    'What consume_begin()''s start_from_group stands for: an array of {topic, partition, committed_offset}, NULL in it where the group '
    'has none; NULL where no group is named. A ZooKeeper is named by those only who may execute zookeeper_offsets(). '
    'Within 30 s. Errors: those of consume_begin().';

CREATE FUNCTION pipeline_kafka.take_over(wanted pipeline_kafka.consumers, group_id text, standing jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    without text;
BEGIN
    INSERT INTO pipeline_kafka.offsets AS o (consumer_id, topic, partition, next_offset)
    SELECT c.id, s.topic, s.partition, s.committed_offset
    FROM pipeline_kafka.consumers c, jsonb_to_recordset(standing) AS s(topic text, partition int, committed_offset bigint)
    WHERE c.topic = wanted.topic AND c.relation = wanted.relation AND NOT c.replay AND s.committed_offset IS NOT NULL
    ON CONFLICT ON CONSTRAINT offsets_pkey DO UPDATE SET next_offset = EXCLUDED.next_offset, topic_id = NULL;
    SELECT string_agg(format('%s[%s]', s.topic, s.partition), ', ' ORDER BY s.topic, s.partition) INTO without
    FROM jsonb_to_recordset(standing) AS s(topic text, partition int, committed_offset bigint) WHERE s.committed_offset IS NULL;
    IF without IS NOT NULL THEN
        RAISE NOTICE 'consumer group "%" has no offset in %: they start by start_offset, which is %', group_id, without, wanted.start_offset
            USING HINT = '-2 is the beginning, -1 the end.';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.take_over(pipeline_kafka.consumers, text, jsonb) IS
    'Stores where a consumer starts that was begun with start_from_group, and says which partitions start by start_offset: those '
    'that the group has no offset in. The worker resolves these when it first looks, as it always does.';
