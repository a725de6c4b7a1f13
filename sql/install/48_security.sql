-- Passwords and keys for Kafka: in a table of their own, which no view reads and which dumps may leave out.

CREATE FUNCTION pipeline_kafka.is_secret(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$ SELECT name ~ '(password|passphrase|secret|key\.pem|(jaas|oauthbearer)\.config)$' $$;
COMMENT ON FUNCTION pipeline_kafka.is_secret(text) IS
    'Is this librdkafka property a secret by its name: a password, a private key, or something that holds one?';

ALTER TABLE pipeline_kafka.properties ADD CONSTRAINT no_secret CHECK (NOT pipeline_kafka.is_secret(name));

CREATE TABLE pipeline_kafka.secrets (
    name     text PRIMARY KEY,
    value    text NOT NULL CONSTRAINT value_not_empty CHECK (value <> ''),
    in_dumps boolean NOT NULL DEFAULT true
);
COMMENT ON TABLE pipeline_kafka.secrets IS
    'librdkafka properties that are secrets, verbatim. For the extension''s owner, and whom SELECT is granted by name.';
COMMENT ON COLUMN pipeline_kafka.secrets.in_dumps IS 'Whether pg_dump takes it along.';
SELECT pg_catalog.pg_extension_config_dump('pipeline_kafka.secrets', 'WHERE in_dumps');

-- Members of pg_read_all_data may read every table, but for its rows. Whom SELECT is granted by name, sees them.
ALTER TABLE pipeline_kafka.secrets ENABLE ROW LEVEL SECURITY;
CREATE POLICY granted_by_name ON pipeline_kafka.secrets FOR SELECT USING (EXISTS (
    SELECT FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
    WHERE c.oid = 'pipeline_kafka.secrets'::regclass AND a.privilege_type = 'SELECT' AND a.grantee <> 0
      AND pg_catalog.pg_has_role(a.grantee, 'USAGE')));

-- log_min_error_statement: where the call is an error, the server's log would have it with the secret.
CREATE FUNCTION pipeline_kafka.set_secret(name text, value text DEFAULT NULL, file text DEFAULT NULL, in_dumps boolean DEFAULT true)
RETURNS text
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET log_min_error_statement = 'panic'
AS $$
BEGIN
    IF name IS NULL OR in_dumps IS NULL OR (value IS NULL) = (file IS NULL) THEN
        RAISE EXCEPTION 'a secret takes a name, and either a value or a file' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'SELECT pipeline_kafka.set_secret(''sasl.password'', file => ''/a/file/on/the/server'').';
    END IF;
    BEGIN
        value := coalesce(value, regexp_replace(pg_read_file(file), '\r?\n\Z', ''));
    EXCEPTION WHEN OTHERS THEN
        RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM,
            HINT = 'The file is read on the server''s machine, by the OS user that runs the server.';
    END;
    IF value = '' THEN
        RAISE EXCEPTION 'secret "%" is empty', name USING ERRCODE = 'invalid_parameter_value',
            HINT = 'unset_property() takes one away.';
    END IF;
    PERFORM pipeline_kafka.check_property(name, value, hidden => true);
    DELETE FROM pipeline_kafka.properties p WHERE p.name = set_secret.name;
    INSERT INTO pipeline_kafka.secrets AS s VALUES (name, value, in_dumps)
        ON CONFLICT ON CONSTRAINT secrets_pkey DO UPDATE SET value = EXCLUDED.value, in_dumps = EXCLUDED.in_dumps;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.set_secret(text, text, text, boolean) IS
    'Sets a librdkafka property that no view shows: sasl.password, ssl.key.pem, or any other that is to be hidden. '
    'value: verbatim; send it as a bound parameter. file: read by the server, once; one line''s end at its end is left out. '
    'in_dumps: whether pg_dump takes it along. Answers ''success''. Errors: 22023 with librdkafka''s reason, or unless there is '
    'either a value or a file; 58P01 where there is no such file. They do not repeat it.';

CREATE FUNCTION pipeline_kafka.unset_property(name text) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_one boolean;
BEGIN
    WITH property AS (DELETE FROM pipeline_kafka.properties p WHERE p.name = unset_property.name RETURNING 1),
         secret AS (DELETE FROM pipeline_kafka.secrets s WHERE s.name = unset_property.name RETURNING 1)
    SELECT EXISTS (SELECT FROM property UNION ALL SELECT FROM secret) INTO found_one;
    IF NOT found_one THEN
        RAISE EXCEPTION 'property "%" is not set', name
            USING ERRCODE = 'undefined_object', HINT = 'SELECT * FROM pipeline_kafka.properties_shown shows those that are.';
    END IF;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.unset_property(text) IS
    'Takes a librdkafka property, also a secret, back to its default. Answers ''success''. Errors: 42704 where it is not set.';

CREATE VIEW pipeline_kafka.properties_shown AS
SELECT name, value FROM pipeline_kafka.properties
UNION ALL
SELECT name, '********' FROM pipeline_kafka.secrets
ORDER BY name;
COMMENT ON VIEW pipeline_kafka.properties_shown IS 'The librdkafka properties that are set; of secrets, only that they are.';

CREATE TABLE pipeline_kafka.kafka_state (
    slot        int,
    consumer_id int REFERENCES pipeline_kafka.consumers ON DELETE CASCADE,
    step        text NOT NULL,
    sqlstate    text NOT NULL,
    error       text NOT NULL,
    failed_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (slot, consumer_id)
);
COMMENT ON TABLE pipeline_kafka.kafka_state IS 'What keeps a worker from Kafka now, for each consumer that it would read for.';
COMMENT ON COLUMN pipeline_kafka.kafka_state.step IS
    'What failed: properties, name resolution, connection, TLS, authentication or authorization.';

CREATE FUNCTION pipeline_kafka.default_group() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$ SELECT format('pipeline_kafka-%s-%s', system_identifier, current_database()) FROM pg_control_system() $$;
COMMENT ON FUNCTION pipeline_kafka.default_group() IS 'The consumer group of consumers that name none.';

CREATE FUNCTION pipeline_kafka.check_brokers(timeout int DEFAULT 10000,
    OUT host text, OUT ok boolean, OUT step text, OUT error text, OUT hint text,
    OUT id int, OUT cluster text, OUT source text) RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.*
    FROM pipeline_kafka.ask('check_brokers', jsonb_build_object(
             'sources', (SELECT coalesce(jsonb_object_agg(b.host, CASE WHEN b.zookeeper IS NULL THEN 'added' ELSE 'zookeeper' END), '{}') FROM pipeline_kafka.brokers b),
             'readers', (SELECT coalesce(jsonb_agg(DISTINCT jsonb_build_array(c.topic, coalesce(c.group_id, pipeline_kafka.default_group()))), '[]')
                         FROM pipeline_kafka.consumers c WHERE c.enabled)), timeout) AS a,
         jsonb_to_record(a) AS r(host text, ok boolean, step text, error text, hint text, id int, cluster text, source text)
$$;
COMMENT ON FUNCTION pipeline_kafka.check_brokers(int) IS
    'Asks each broker that is configured by itself, and each that these name, as workers would. ok, and else the step that failed: '
    'properties, name resolution, connection, TLS, authentication, or authorization (a topic or group of an enabled consumer may not '
    'be read), with Kafka''s words and what to look at. id: the broker''s, where it is known under this address; cluster: the '
    'cluster''s. source: added, zookeeper, or kafka for one that only other brokers name. A broker that fails is no error of the '
    'function. timeout: ms for all of it; one that fails is left after 2 s. Errors: 55000 where no broker is configured.';
