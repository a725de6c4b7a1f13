-- How running workers learn of changes: a NOTIFY at commit, an event trigger for dropped relations, and a version
-- of each relation's definition that is compared at every batch.

-- In PL/pgSQL, which keeps the plan: each batch asks twice, and planning it took longer than all else.
CREATE FUNCTION pipeline_kafka.relation_version(relation oid) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN md5(concat_ws('/', n.nspname, c.relname, c.relkind, c.relrowsecurity, c.relhasrules,
            (SELECT string_agg(a.attnum || ':' || a.xmin || ':' || t.xmin, ',' ORDER BY a.attnum)
             FROM pg_attribute a LEFT JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = c.oid AND a.attnum > 0),
            (SELECT string_agg(d.adnum || ':' || d.xmin, ',' ORDER BY d.adnum) FROM pg_attrdef d WHERE d.adrelid = c.oid),
            (SELECT string_agg(x.relname || ':' || i.xmin, ',' ORDER BY i.indexrelid)
             FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid AND i.indisunique)))
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation;
END $$;
COMMENT ON FUNCTION pipeline_kafka.relation_version(oid) IS
    'A text that changes whenever the relation''s name, a column, a type, a default, a unique index, its row security or its having '
    'rules does; NULL where it is gone.';

CREATE FUNCTION pipeline_kafka.notify_workers() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_notify('pipeline_kafka', '');
    RETURN NULL;
END $$;
COMMENT ON FUNCTION pipeline_kafka.notify_workers() IS 'Wakes the workers of this database when the transaction commits.';

CREATE TRIGGER notify_workers AFTER INSERT OR UPDATE OR DELETE ON pipeline_kafka.consumers
    FOR EACH STATEMENT EXECUTE FUNCTION pipeline_kafka.notify_workers();
CREATE TRIGGER notify_workers AFTER INSERT OR UPDATE OR DELETE ON pipeline_kafka.brokers
    FOR EACH STATEMENT EXECUTE FUNCTION pipeline_kafka.notify_workers();
CREATE TRIGGER notify_workers AFTER INSERT OR UPDATE OF address, protocol OR DELETE ON pipeline_kafka.zookeepers
    FOR EACH STATEMENT EXECUTE FUNCTION pipeline_kafka.notify_workers();
CREATE TRIGGER notify_workers AFTER INSERT OR UPDATE OR DELETE ON pipeline_kafka.properties
    FOR EACH STATEMENT EXECUTE FUNCTION pipeline_kafka.notify_workers();
CREATE TRIGGER notify_workers AFTER INSERT OR UPDATE OR DELETE ON pipeline_kafka.secrets
    FOR EACH STATEMENT EXECUTE FUNCTION pipeline_kafka.notify_workers();
CREATE TRIGGER notify_workers AFTER INSERT OR UPDATE OR DELETE ON pipeline_kafka.error_rules
    FOR EACH STATEMENT EXECUTE FUNCTION pipeline_kafka.notify_workers();

CREATE FUNCTION pipeline_kafka.end_dropped() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WITH ended AS (
        UPDATE pipeline_kafka.consumers c SET enabled = false
        FROM pg_event_trigger_dropped_objects() d
        WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 AND d.objid = c.relation
        RETURNING c.id, d.object_identity)
    INSERT INTO pipeline_kafka.consumer_state (consumer_id, sqlstate, error, failures)
    SELECT id, '42P01', format('relation %s was dropped', object_identity), 1 FROM ended
    ON CONFLICT (consumer_id) DO UPDATE SET sqlstate = EXCLUDED.sqlstate, error = EXCLUDED.error,
        failed_at = EXCLUDED.failed_at, failures = 1, retry_at = NULL;
END $$;
COMMENT ON FUNCTION pipeline_kafka.end_dropped() IS 'Ends the consumers of relations that are being dropped, and notes why.';

CREATE EVENT TRIGGER pipeline_kafka_end_dropped ON sql_drop EXECUTE FUNCTION pipeline_kafka.end_dropped();
COMMENT ON EVENT TRIGGER pipeline_kafka_end_dropped IS 'A consumer ends with its relation.';
