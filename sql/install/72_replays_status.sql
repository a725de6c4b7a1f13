-- How far replays are.

CREATE VIEW pipeline_kafka.replays_status AS
SELECT r.id, c.topic, c.relation, c.owner,
       CASE WHEN r.outcome IS NOT NULL THEN r.outcome
            WHEN NOT c.enabled THEN CASE WHEN s.failures > 0 THEN 'stopped' ELSE 'paused' END
            WHEN w.slot IS NULL THEN 'no worker'
            WHEN s.failures > 0 THEN 'failing'
            ELSE 'running' END AS state,
       o.partitions, o.messages, o.set_aside, o.skipped, o.nulls, o.lost,
       CASE WHEN r.outcome = 'finished' THEN 0 ELSE least(o.remaining, r.max_messages - o.messages) END AS remaining,
       t.rate,
       CASE WHEN r.outcome IS NULL AND t.rate > 0
            THEN make_interval(secs => round(least(o.remaining, r.max_messages - o.messages) / t.rate)::float8) END AS time_left,
       r.begun_at, r.ended_at, o.last_progress, s.sqlstate AS last_sqlstate, s.error AS last_error, s.retry_at
FROM pipeline_kafka.replays r
JOIN pipeline_kafka.consumers c ON c.id = r.id
LEFT JOIN pipeline_kafka.consumer_state s ON s.consumer_id = r.id
LEFT JOIN pipeline_kafka.workers_status w ON w.slot = r.slot AND w.state = 'running'
CROSS JOIN LATERAL (
    SELECT count(*) AS partitions, coalesce(sum(n.messages), 0)::bigint AS messages, coalesce(sum(n.set_aside), 0)::bigint AS set_aside,
           coalesce(sum(n.skipped), 0)::bigint AS skipped, coalesce(sum(n.nulls), 0)::bigint AS nulls,
           coalesce(sum(n.lost), 0)::bigint AS lost,
           coalesce(sum(greatest(p.end_offset - n.next_offset, 0)), 0)::bigint AS remaining, max(n.committed_at) AS last_progress
    FROM pipeline_kafka.replay_partitions p
    JOIN pipeline_kafka.offsets n ON n.consumer_id = p.replay_id AND n.topic = c.topic AND n.partition = p.partition
    WHERE p.replay_id = r.id) AS o
CROSS JOIN LATERAL (
    SELECT CASE WHEN o.last_progress > r.running_since
                THEN round((o.messages - r.messages_before) / extract(epoch FROM o.last_progress - r.running_since), 1) END AS rate) AS t
ORDER BY r.id;
COMMENT ON VIEW pipeline_kafka.replays_status IS
    'A row a replay: its state (running, failing, no worker, paused, stopped, finished, cancelled), what it has passed, and its last '
    'trouble. remaining: offsets that are left, so messages at the most. rate: messages a second since it last began to read. '
    'time_left: at that rate. failing: tried again at retry_at. stopped: last_error says why; resume_replay() goes on.';
