-- Nothing is for everyone. A superuser grants the consume functions to those who may use them.

REVOKE ALL ON ALL ROUTINES IN SCHEMA pipeline_kafka FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pipeline_kafka.end_as(text) TO PUBLIC;  -- the owner must get back out; the token guards it
GRANT EXECUTE ON FUNCTION pipeline_kafka.workers_wanted() TO pg_monitor;

GRANT SELECT ON pipeline_kafka.workers_status, pipeline_kafka.consumer_lag, pipeline_kafka.consumers_status,
    pipeline_kafka.replays_status, pipeline_kafka.brokers, pipeline_kafka.zookeepers, pipeline_kafka.properties_shown
    TO pg_monitor;
