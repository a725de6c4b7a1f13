-- What runs, how far, and why not. The number 1801545323 is the class of the workers' advisory locks
-- ("kafk" in ASCII): a worker is alive while it holds the lock of its slot.

CREATE VIEW pipeline_kafka.workers_status AS
WITH alive AS (
    SELECT l.objid::int AS slot, l.pid AS backend_pid
    FROM pg_catalog.pg_locks l
    JOIN pg_catalog.pg_database d ON d.oid = l.database AND d.datname = current_database()
    WHERE l.locktype = 'advisory' AND l.classid = 1801545323 AND l.objsubid = 2 AND l.granted
), slots AS (
    SELECT slot FROM alive
    UNION SELECT generate_series(0, pipeline_kafka.workers_wanted() - 1)
)
SELECT s.slot,
       CASE WHEN a.slot IS NOT NULL THEN 'running' ELSE 'not running' END AS state,
       w.host, w.pid, a.backend_pid, w.started_at, w.partitions, w.last_poll, w.last_progress,
       CASE WHEN a.slot IS NULL
            THEN coalesce(w.last_error || E'\n', '') || 'no worker holds this slot: the server''s log says why; '
                 'max_worker_processes (' || current_setting('max_worker_processes') || ') must leave room for it'
            ELSE w.last_error END AS last_error, w.last_error_at
FROM slots s
LEFT JOIN alive a USING (slot)
LEFT JOIN pipeline_kafka.workers w ON w.slot = s.slot AND (a.slot IS NULL OR w.backend_pid = a.backend_pid)
ORDER BY s.slot;
COMMENT ON VIEW pipeline_kafka.workers_status IS
    'A row a worker that runs, here or on another machine, or that should run here and does not.';

CREATE VIEW pipeline_kafka.consumer_lag AS
SELECT c.topic AS subscription, o.topic, o.partition, c.relation, o.next_offset, w.low, w.high,
       greatest(w.high - o.next_offset, 0) AS lag,
       CASE WHEN w.high <= o.next_offset THEN 0
            ELSE round(extract(epoch FROM now() - o.last_timestamp)::numeric, 1) END AS lag_seconds,
       w.seen_at
FROM pipeline_kafka.offsets o
JOIN pipeline_kafka.consumers c ON c.id = o.consumer_id
LEFT JOIN pipeline_kafka.watermarks w ON w.topic = o.topic AND w.partition = o.partition
WHERE NOT c.replay AND (o.topic ~ c.exclude) IS NOT TRUE
ORDER BY c.topic, c.relation, o.topic, o.partition;
COMMENT ON VIEW pipeline_kafka.consumer_lag IS
    'How far each consumer is behind in each partition: in messages, and in seconds since the last message it passed '
    '(NULL where it has passed none). Watermarks are as of seen_at.';

CREATE VIEW pipeline_kafka.consumers_status AS
SELECT c.id, c.topic, c.relation, c.owner,
       CASE WHEN NOT c.enabled THEN CASE WHEN s.failures > 0 THEN 'stopped' ELSE 'ended' END
            WHEN NOT EXISTS (SELECT FROM pipeline_kafka.workers_status w WHERE w.state = 'running' AND w.slot < 1024)
                 THEN 'no worker'
            WHEN s.failures > 0 OR k.error IS NOT NULL THEN 'failing'
            WHEN NOT c.started THEN 'starting'
            WHEN o.partitions IS NULL THEN 'waiting for topic'
            ELSE 'running' END AS state,
       o.partitions, o.messages, o.set_aside, o.skipped, o.nulls, o.lost, l.lag, o.last_progress,
       CASE WHEN k.error IS NULL THEN s.sqlstate ELSE k.sqlstate END AS last_sqlstate,
       CASE WHEN k.error IS NULL THEN s.error ELSE k.error END AS last_error,
       CASE WHEN k.error IS NULL THEN s.failed_at ELSE k.failed_at END AS last_error_at, s.failures, s.retry_at
FROM pipeline_kafka.consumers c
LEFT JOIN pipeline_kafka.consumer_state s ON s.consumer_id = c.id
LEFT JOIN (
    SELECT consumer_id, count(*) AS partitions, sum(messages)::bigint AS messages, sum(set_aside)::bigint AS set_aside,
           sum(skipped)::bigint AS skipped, sum(nulls)::bigint AS nulls, sum(lost)::bigint AS lost,
           max(committed_at) AS last_progress
    FROM pipeline_kafka.offsets GROUP BY consumer_id) o ON o.consumer_id = c.id
LEFT JOIN (
    SELECT oo.consumer_id, sum(greatest(w.high - oo.next_offset, 0))::bigint AS lag
    FROM pipeline_kafka.offsets oo
    JOIN pipeline_kafka.consumers cc ON cc.id = oo.consumer_id AND (oo.topic ~ cc.exclude) IS NOT TRUE
    JOIN pipeline_kafka.watermarks w ON w.topic = oo.topic AND w.partition = oo.partition
    GROUP BY oo.consumer_id) l ON l.consumer_id = c.id
LEFT JOIN (
    SELECT DISTINCT ON (ks.consumer_id) ks.*
    FROM pipeline_kafka.kafka_state ks
    JOIN pipeline_kafka.workers_status w ON w.slot = ks.slot AND w.state = 'running'
    ORDER BY ks.consumer_id, ks.failed_at DESC) k ON k.consumer_id = c.id AND c.enabled
WHERE NOT c.replay
ORDER BY c.topic, c.relation;
COMMENT ON VIEW pipeline_kafka.consumers_status IS
    'A row a consumer: its state (running, starting, waiting for topic, failing, no worker, ended, stopped), counts of messages, '
    'lag in messages, and its last trouble. failing: tried again at retry_at, or a worker cannot read from Kafka; last_error says '
    'at which step. stopped: last_error says why.';
