-- pipeline_kafka 2.0.0. Run by CREATE EXTENSION; the schema is the extension's own and goes with it.
\echo Use "CREATE EXTENSION pipeline_kafka CASCADE" to load this file. \quit

CREATE SCHEMA pipeline_kafka;
COMMENT ON SCHEMA pipeline_kafka IS
    'Kafka topics flowing into relations: begin with consume_begin(), look into consumers_status.';

-- Names only: each function and table has its own privileges. The owner of a consumer must be able
-- to resolve pipeline_kafka.end_as() while the worker is switched to it.
GRANT USAGE ON SCHEMA pipeline_kafka TO PUBLIC;
