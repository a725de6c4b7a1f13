-- The Kafka cluster: where it is, and how to speak to it. Superuser's business: a librdkafka property can name
-- files and commands on the server, so these functions run with the caller's own privileges on owner-only tables.

CREATE FUNCTION pipeline_kafka.add_broker(host text) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    address text;
BEGIN
    FOREACH address IN ARRAY regexp_split_to_array(host, ',') LOOP
        address := btrim(address);
        IF address !~ ':[0-9]{1,5}$' OR address ~ '^[^\[].*:.*:' OR split_part(address, ':', -1)::bigint NOT BETWEEN 1 AND 65535 THEN
            RAISE EXCEPTION 'broker "%" is not host:port', address
                USING ERRCODE = 'invalid_parameter_value', HINT = 'Write it as kafka1.example:9092 or [2001:db8::1]:9092.';
        END IF;
        INSERT INTO pipeline_kafka.brokers AS b VALUES (address)
            ON CONFLICT ON CONSTRAINT brokers_pkey DO UPDATE SET zookeeper = NULL WHERE b.zookeeper IS NOT NULL;
    END LOOP;
    RETURN 'success';
EXCEPTION WHEN check_violation THEN
    RAISE EXCEPTION 'broker "%" is not host:port', address
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Write it as kafka1.example:9092 or [2001:db8::1]:9092.';
END $$;
COMMENT ON FUNCTION pipeline_kafka.add_broker(text) IS
    'Adds bootstrap servers: host:port or [v6]:port, several with commas between. Answers ''success''; a known one is left as it is, '
    'but one that a ZooKeeper lists stays then, whatever that does. '
    'Errors: 22023 where one is not host:port. Running workers take the new list up.';

CREATE FUNCTION pipeline_kafka.warn_of_no_broker() RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pipeline_kafka.brokers) THEN
        RAISE WARNING 'no broker is configured, so nothing can be read' USING HINT = 'SELECT pipeline_kafka.add_broker(''host:9092'').';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.warn_of_no_broker() IS 'Warns where Kafka is nowhere.';

CREATE FUNCTION pipeline_kafka.remove_broker(host text) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM pipeline_kafka.brokers b WHERE b.host = remove_broker.host AND b.zookeeper IS NULL;
    IF NOT FOUND AND EXISTS (SELECT FROM pipeline_kafka.brokers b WHERE b.host = remove_broker.host) THEN
        RAISE EXCEPTION 'broker "%" is registered in ZooKeeper', host USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'It goes when the broker does. remove_zookeeper() takes all away that one ZooKeeper lists.';
    ELSIF NOT FOUND THEN
        RAISE EXCEPTION 'broker "%" is not configured', host
            USING ERRCODE = 'undefined_object', HINT = 'SELECT * FROM pipeline_kafka.brokers shows those that are.';
    END IF;
    PERFORM pipeline_kafka.warn_of_no_broker();
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.remove_broker(text) IS
    'Removes one bootstrap server, written as it was added. Answers ''success'', and warns where it was the last. '
    'Errors: 42704 where it is not configured, 55000 where a ZooKeeper lists it.';

CREATE FUNCTION pipeline_kafka.check_property(name text, value text, hidden boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    refusal record;
BEGIN
    SELECT r.* INTO refusal
    FROM pipeline_kafka.ask('refuse_property', jsonb_build_object('name', name, 'value', value,
                                'hidden', hidden OR pipeline_kafka.is_secret(name)), 10000) AS a,
         jsonb_to_record(a) AS r(error text, hint text, warning text);
    IF refusal.error IS NOT NULL THEN
        RAISE EXCEPTION '%', refusal.error USING ERRCODE = 'invalid_parameter_value', HINT = refusal.hint;
    ELSIF refusal.warning IS NOT NULL THEN
        RAISE WARNING '%', refusal.warning;
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_property(text, text, boolean) IS
    'Asks librdkafka whether it takes this property: an error where it does not by itself, a warning where it does not go with '
    'those already set (yet), or names a file that is not there. Nothing is stored and nothing connects. hidden: the value is not '
    'repeated, as that of a secret (is_secret()) never is. '
    'Errors: 22023 with librdkafka''s reason, or where the worker itself sets the property.';

-- log_min_error_statement: as for set_secret(), which the error leads to.
CREATE FUNCTION pipeline_kafka.set_property(name text, value text) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET log_min_error_statement = 'panic'
AS $$
BEGIN
    IF pipeline_kafka.is_secret(name) THEN
        RAISE EXCEPTION 'property "%" is a secret', name USING ERRCODE = 'invalid_parameter_value',
            HINT = 'set_secret() sets it: no view shows it then, and dumps can leave it out.';
    END IF;
    PERFORM pipeline_kafka.check_property(name, value);
    INSERT INTO pipeline_kafka.properties AS p VALUES (name, value)
        ON CONFLICT ON CONSTRAINT properties_pkey DO UPDATE SET value = EXCLUDED.value;
    DELETE FROM pipeline_kafka.secrets s WHERE s.name = set_property.name;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.set_property(text, text) IS
    'Sets a librdkafka property (CONFIGURATION.md of librdkafka lists them) for every worker, verbatim. Answers ''success''. '
    'Errors: 22023 with librdkafka''s reason, or where it is a secret: set_secret() is for those. Running workers reconnect with it.';
