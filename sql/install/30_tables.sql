-- What survives a restart. Constraints make a wrong state impossible; Python holds only what can be thrown away.

CREATE TABLE pipeline_kafka.zookeepers (
    address  text PRIMARY KEY CONSTRAINT address_not_empty CHECK (address <> ''),
    protocol text CONSTRAINT protocol_not_empty CHECK (protocol <> ''),
    seen_at  timestamptz,
    error    text
);
COMMENT ON TABLE pipeline_kafka.zookeepers IS 'ZooKeepers whose brokers are bootstrap servers: h1:2181,h2:2181/chroot.';
COMMENT ON COLUMN pipeline_kafka.zookeepers.protocol IS
    'The security protocol, or the name, of the listener that is taken of each broker; NULL: the property security.protocol.';
COMMENT ON COLUMN pipeline_kafka.zookeepers.seen_at IS 'When its list was last read.';
COMMENT ON COLUMN pipeline_kafka.zookeepers.error IS 'Why it could not be read since; NULL where it could.';

CREATE TABLE pipeline_kafka.brokers (
    host text PRIMARY KEY
        CONSTRAINT host_and_port CHECK (host ~ '^(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$'),
    zookeeper text REFERENCES pipeline_kafka.zookeepers ON DELETE CASCADE
);
COMMENT ON TABLE pipeline_kafka.brokers IS 'Bootstrap servers of the Kafka cluster, host:port or [v6]:port.';
COMMENT ON COLUMN pipeline_kafka.brokers.zookeeper IS 'The ZooKeeper that lists it, and takes it away; NULL: add_broker() has added it.';

CREATE TABLE pipeline_kafka.properties (
    name  text PRIMARY KEY,
    value text NOT NULL
);
COMMENT ON TABLE pipeline_kafka.properties IS
    'librdkafka properties that are no secrets, verbatim. See properties_shown.';

CREATE TABLE pipeline_kafka.consumers (
    id             int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic          text NOT NULL
        CONSTRAINT topic_name_or_pattern CHECK (topic ~ '^([A-Za-z0-9._-]{1,249}|\^.+)$' AND topic NOT IN ('.', '..')),
    exclude        text CONSTRAINT exclude_from_a_pattern CHECK (exclude IS NULL OR topic ^@ '^'),
    relation       regclass NOT NULL,
    owner          regrole NOT NULL,
    group_id       text CONSTRAINT group_id_not_empty CHECK (group_id <> ''),
    format         text NOT NULL CONSTRAINT known_format CHECK (format IN ('text', 'csv', 'json', 'raw')),
    delimiter      text NOT NULL,
    quote          text,
    escape         text,
    null_string    text,
    header         boolean NOT NULL DEFAULT false,
    unknown_fields text NOT NULL DEFAULT 'ignore',
    batchsize      int NOT NULL CONSTRAINT batchsize_in_range CHECK (batchsize BETWEEN 1 AND 1000000),
    maxbytes       int NOT NULL CONSTRAINT maxbytes_positive CHECK (maxbytes > 0),
    parallelism    int NOT NULL CONSTRAINT parallelism_in_range CHECK (parallelism BETWEEN 1 AND 1024),
    timeout        int NOT NULL CONSTRAINT timeout_in_range CHECK (timeout BETWEEN 0 AND 60000),
    start_offset   bigint CONSTRAINT start_offset_in_range CHECK (start_offset >= -2),
    start_timestamp timestamptz CONSTRAINT start_timestamp_finite CHECK (isfinite(start_timestamp)),
    start_last     bigint CONSTRAINT start_last_positive CHECK (start_last > 0),
    started        boolean NOT NULL DEFAULT false,
    on_error       text NOT NULL CONSTRAINT known_on_error CHECK (on_error IN ('dead_letter', 'stop', 'skip')),
    on_null        text NOT NULL DEFAULT 'skip' CONSTRAINT known_on_null CHECK (on_null IN ('skip', 'dead_letter', 'delete')),
    on_conflict    text NOT NULL DEFAULT 'error' CONSTRAINT known_on_conflict CHECK (on_conflict IN ('error', 'ignore', 'update')),
    conflict_key   text,
    max_dead_letters bigint CONSTRAINT max_dead_letters_positive CHECK (max_dead_letters > 0),
    on_offset_lost text NOT NULL CONSTRAINT known_on_offset_lost CHECK (on_offset_lost IN ('stop', 'earliest', 'latest')),
    enabled        boolean NOT NULL DEFAULT true,
    replay         boolean NOT NULL DEFAULT false,
    CONSTRAINT one_start CHECK (num_nonnulls(start_offset, start_timestamp, start_last) <= 1)
);
CREATE UNIQUE INDEX consumers_topic_relation ON pipeline_kafka.consumers (topic, relation) WHERE NOT replay;
-- replay() answers an id that was given on its behalf: currval() takes no more than this, and nextval() does
GRANT SELECT ON SEQUENCE pipeline_kafka.consumers_id_seq TO PUBLIC;
COMMENT ON TABLE pipeline_kafka.consumers IS
    'One row a consume action, written by consume_begin() and consume_end(), or a replay: see replays.';
COMMENT ON COLUMN pipeline_kafka.consumers.topic IS 'A topic''s name, or a regular expression over names that begins with ^.';
COMMENT ON COLUMN pipeline_kafka.consumers.exclude IS 'Topics that a pattern does not take, as a regular expression.';
COMMENT ON COLUMN pipeline_kafka.consumers.owner IS 'Rows are written with this role''s privileges and row security.';
COMMENT ON COLUMN pipeline_kafka.consumers.group_id IS 'NULL: pipeline_kafka-<system identifier>-<database>.';
COMMENT ON COLUMN pipeline_kafka.consumers.null_string IS 'COPY''s NULL option for text and csv; NULL: COPY''s default.';
COMMENT ON COLUMN pipeline_kafka.consumers.header IS 'For csv: the first line of each message names columns and is passed over.';
COMMENT ON COLUMN pipeline_kafka.consumers.unknown_fields IS
    'For json: ''ignore'' fields that are no column, ''error'' sets the message aside, else the jsonb column that takes them.';
COMMENT ON COLUMN pipeline_kafka.consumers.on_null IS 'What a message without a value does: skip (counted), dead_letter, delete.';
COMMENT ON COLUMN pipeline_kafka.consumers.on_conflict IS 'What a row whose key is there already does: error, ignore, update.';
COMMENT ON COLUMN pipeline_kafka.consumers.conflict_key IS 'The constraint whose key counts; NULL: the primary key.';
COMMENT ON COLUMN pipeline_kafka.consumers.max_dead_letters IS 'The consumer stops when so many of its messages are in dead_letters; NULL: no limit.';
COMMENT ON COLUMN pipeline_kafka.consumers.timeout IS 'Milliseconds a message may wait for others while a batch is being loaded.';
COMMENT ON COLUMN pipeline_kafka.consumers.start_offset IS '-2 beginning, -1 end, else that offset in each partition; NULL the end.';
COMMENT ON COLUMN pipeline_kafka.consumers.start_timestamp IS 'In place of start_offset: the first message of this time or later.';
COMMENT ON COLUMN pipeline_kafka.consumers.start_last IS 'In place of start_offset: so many offsets before the end of each partition.';
COMMENT ON COLUMN pipeline_kafka.consumers.started IS
    'True once start_offset was resolved into offsets; a partition without a row there is new and starts at its beginning.';
COMMENT ON COLUMN pipeline_kafka.consumers.replay IS
    'True: a part of the topic, read once by a worker of its own; what is said of consumers elsewhere is not said of it.';
COMMENT ON COLUMN pipeline_kafka.consumers.enabled IS 'False after consume_end(), or where consumer_state says why it stopped.';

CREATE TABLE pipeline_kafka.offsets (
    consumer_id    int NOT NULL REFERENCES pipeline_kafka.consumers ON DELETE CASCADE,
    topic          text NOT NULL,
    partition      int NOT NULL CHECK (partition >= 0),
    next_offset    bigint NOT NULL CHECK (next_offset >= 0),
    topic_id       text,
    messages       bigint NOT NULL DEFAULT 0,
    set_aside      bigint NOT NULL DEFAULT 0,
    skipped        bigint NOT NULL DEFAULT 0,
    nulls          bigint NOT NULL DEFAULT 0,
    lost           bigint NOT NULL DEFAULT 0,
    last_timestamp timestamptz,
    committed_at   timestamptz,
    PRIMARY KEY (consumer_id, topic, partition)
) WITH (fillfactor = 50);  -- room for HOT updates: every batch updates its partitions' rows
COMMENT ON TABLE pipeline_kafka.offsets IS
    'Where each consumer stands in each partition, committed in the transaction that holds the rows.';
COMMENT ON COLUMN pipeline_kafka.offsets.next_offset IS 'The next offset to read: what Kafka calls a committed offset.';
COMMENT ON COLUMN pipeline_kafka.offsets.topic_id IS
    'Kafka''s id of the topic that next_offset counts in: one deleted and made again has another.';
COMMENT ON COLUMN pipeline_kafka.offsets.messages IS 'Messages passed so far: loaded, set aside, skipped or null.';
COMMENT ON COLUMN pipeline_kafka.offsets.set_aside IS 'Of them, now or once in dead_letters.';
COMMENT ON COLUMN pipeline_kafka.offsets.skipped IS 'Of them, bad ones passed over by on_error => ''skip''.';
COMMENT ON COLUMN pipeline_kafka.offsets.nulls IS 'Of them, without a value (tombstones).';
COMMENT ON COLUMN pipeline_kafka.offsets.lost IS 'Offsets passed over because the broker no longer had them (on_offset_lost).';
COMMENT ON COLUMN pipeline_kafka.offsets.last_timestamp IS 'Kafka''s timestamp of the last message passed.';

CREATE TABLE pipeline_kafka.dead_letters (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer_id     int NOT NULL REFERENCES pipeline_kafka.consumers ON DELETE CASCADE,
    topic           text NOT NULL,
    partition       int NOT NULL,
    kafka_offset    bigint NOT NULL,
    key             bytea,
    value           bytea,
    headers         jsonb,
    kafka_timestamp timestamptz,
    timestamp_type  text CONSTRAINT known_timestamp_type CHECK (timestamp_type IN ('create', 'append')),
    sqlstate        text NOT NULL,
    error           text NOT NULL,
    detail          text,
    hint            text,
    context         text,
    column_name     text,
    tries           int NOT NULL DEFAULT 1 CONSTRAINT tries_positive CHECK (tries > 0),
    failed_at       timestamptz NOT NULL DEFAULT now(),
    tried_at        timestamptz NOT NULL DEFAULT now(),
    UNIQUE (consumer_id, topic, partition, kafka_offset)
);
CREATE INDEX dead_letters_tried_at ON pipeline_kafka.dead_letters (tried_at);  -- for expire_dead_letters()
COMMENT ON TABLE pipeline_kafka.dead_letters IS
    'Messages set aside, whole, each with the SQLSTATE and error that its relation answered.';
COMMENT ON COLUMN pipeline_kafka.dead_letters.headers IS
    'An array of {"name", "value"} in Kafka''s order; "base64" in place of "value" where it is not UTF-8.';
COMMENT ON COLUMN pipeline_kafka.dead_letters.timestamp_type IS 'Who set kafka_timestamp: create, its producer; append, the broker.';
COMMENT ON COLUMN pipeline_kafka.dead_letters.error IS 'What the relation, or the decoder, answered at the last try.';
COMMENT ON COLUMN pipeline_kafka.dead_letters.context IS 'Where in the user''s code it happened, such as the line of a trigger.';
COMMENT ON COLUMN pipeline_kafka.dead_letters.column_name IS 'The column that the error is about, or those of the constraint; NULL: unknown.';
COMMENT ON COLUMN pipeline_kafka.dead_letters.tries IS 'How often it was tried: 1 when it is set aside, one more for each retry.';
COMMENT ON COLUMN pipeline_kafka.dead_letters.failed_at IS 'When it was set aside.';
COMMENT ON COLUMN pipeline_kafka.dead_letters.tried_at IS 'When it was last tried.';

CREATE TABLE pipeline_kafka.consumer_state (
    consumer_id int PRIMARY KEY REFERENCES pipeline_kafka.consumers ON DELETE CASCADE,
    sqlstate    text NOT NULL,
    error       text NOT NULL,
    failed_at   timestamptz NOT NULL DEFAULT now(),
    failures    int NOT NULL,
    retry_at    timestamptz
);
COMMENT ON TABLE pipeline_kafka.consumer_state IS 'The last trouble of each consumer that had one.';
COMMENT ON COLUMN pipeline_kafka.consumer_state.failures IS 'Failures in a row; 0 once it has gone on.';
COMMENT ON COLUMN pipeline_kafka.consumer_state.retry_at IS 'When it is tried again; NULL where it stopped or goes on.';

CREATE TABLE pipeline_kafka.watermarks (
    topic     text,
    partition int,
    low       bigint NOT NULL,
    high      bigint NOT NULL,
    seen_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition)
) WITH (fillfactor = 50);
COMMENT ON TABLE pipeline_kafka.watermarks IS 'The first and the next-to-be-written offset of each partition, as a worker last saw them.';

CREATE TABLE pipeline_kafka.workers (
    slot          int PRIMARY KEY,
    host          text NOT NULL,
    pid           int NOT NULL,
    backend_pid   int NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT now(),
    seen_at       timestamptz NOT NULL DEFAULT now(),
    partitions    int NOT NULL DEFAULT 0,
    last_poll     timestamptz,
    last_progress timestamptz,
    last_error    text,
    last_error_at timestamptz
) WITH (fillfactor = 50);
COMMENT ON TABLE pipeline_kafka.workers IS 'What each worker last said of itself; workers_status tells which of them are alive.';

-- One call a statement: each updates the extension's own row of pg_extension.
DO $$
DECLARE
    kept regclass;
BEGIN
    FOR kept IN
        SELECT c.oid FROM pg_catalog.pg_class c
        WHERE c.relnamespace = 'pipeline_kafka'::regnamespace AND c.relkind IN ('r', 'S')
          AND c.relname NOT IN ('workers', 'watermarks')
    LOOP
        PERFORM pg_catalog.pg_extension_config_dump(kept, '');
    END LOOP;
END $$;
