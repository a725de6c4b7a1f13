-- Brokers that a ZooKeeper lists, as Kafka's did before version 4: read once by discover_brokers(), then by a worker.

CREATE FUNCTION pipeline_kafka.refresh_brokers(address text, hosts text[], trouble text) RETURNS void
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE pipeline_kafka.zookeepers z
    SET error = trouble, seen_at = CASE WHEN trouble IS NULL THEN clock_timestamp() ELSE z.seen_at END
    WHERE z.address = refresh_brokers.address;
    -- Only what changes: workers are told of any statement.
    IF FOUND AND trouble IS NULL AND (
        EXISTS (SELECT FROM pipeline_kafka.brokers b WHERE b.zookeeper = refresh_brokers.address AND b.host <> ALL (hosts))
        OR EXISTS (SELECT FROM unnest(hosts) h WHERE h NOT IN (SELECT b.host FROM pipeline_kafka.brokers b)))
    THEN
        DELETE FROM pipeline_kafka.brokers b WHERE b.zookeeper = refresh_brokers.address AND b.host <> ALL (hosts);
        INSERT INTO pipeline_kafka.brokers SELECT h, refresh_brokers.address FROM unnest(hosts) h ON CONFLICT DO NOTHING;
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.refresh_brokers(text, text[], text) IS
    'Takes note of the brokers that a ZooKeeper lists now, or of why it cannot be asked: then they stay as they are.';

CREATE FUNCTION pipeline_kafka.discover_brokers(zookeeper text, protocol text DEFAULT NULL, timeout int DEFAULT 10000,
    OUT id int, OUT host text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found jsonb;
BEGIN
    SELECT jsonb_agg(a) INTO found
    FROM pipeline_kafka.ask('registered_brokers', jsonb_build_object('zookeeper', zookeeper, 'protocol', protocol), timeout) AS a;
    INSERT INTO pipeline_kafka.zookeepers AS z VALUES (zookeeper, protocol)
        ON CONFLICT ON CONSTRAINT zookeepers_pkey DO UPDATE SET protocol = EXCLUDED.protocol;
    PERFORM pipeline_kafka.refresh_brokers(zookeeper, ARRAY(SELECT f ->> 'host' FROM jsonb_array_elements(found) f), NULL);
    RETURN QUERY SELECT r.* FROM jsonb_to_recordset(found) AS r(id int, host text) ORDER BY r.id;
END $$;
COMMENT ON FUNCTION pipeline_kafka.discover_brokers(text, text, int) IS
    'Makes the brokers that are registered in a ZooKeeper bootstrap servers, and shows them. From then on a worker keeps the list as '
    'ZooKeeper has it; while that is away, or lists none, the brokers stay. zookeeper: h1:2181,h2:2181/chroot. protocol: which '
    'listener of each broker is taken, by its security protocol or its name; NULL: the property security.protocol. '
    'timeout: ms. Errors: 22023 where that is no address, 08006 where no ZooKeeper answers, 42704 where it has no /brokers/ids or no '
    'broker with such a listener, 55000 where no broker is registered; nothing is changed then.';

CREATE FUNCTION pipeline_kafka.remove_zookeeper(zookeeper text) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM pipeline_kafka.zookeepers z WHERE z.address = zookeeper;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'ZooKeeper "%" is not configured', zookeeper
            USING ERRCODE = 'undefined_object', HINT = 'SELECT * FROM pipeline_kafka.zookeepers shows those that are.';
    END IF;
    PERFORM pipeline_kafka.warn_of_no_broker();
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.remove_zookeeper(text) IS
    'Forgets a ZooKeeper, written as it was given, and the brokers that it lists. Answers ''success''. '
    'Errors: 42704 where it is not configured.';
