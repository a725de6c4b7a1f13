-- Undoing what a consumer has loaded: its rows from some offsets on are removed and it is sent back there, in one transaction.
-- The rows themselves tell where they are from, by their kafka_* columns; where they cannot, rewind() says so and does nothing.

CREATE FUNCTION pipeline_kafka.kafka_column(relation oid, name text) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE t.typcategory WHEN 'N' THEN quote_ident(a.attname) ELSE format('(%I)::pg_catalog.text::pg_catalog.numeric', a.attname) END
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = relation AND a.attname = name AND a.attnum > 0 AND NOT a.attisdropped
$$;
COMMENT ON FUNCTION pipeline_kafka.kafka_column(oid, text) IS
    'The value of a column such as kafka_offset as a number, in SQL; NULL where the relation has no such column.';

CREATE FUNCTION pipeline_kafka.check_rewind(known pipeline_kafka.consumers, caller oid, force boolean) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    target pg_class := (SELECT c FROM pg_class c WHERE c.oid = known.relation);
    trigger text := (SELECT string_agg(t.tgname, ', ' ORDER BY t.tgname) FROM pg_trigger t
                     WHERE t.tgrelid IN (SELECT known.relation::oid UNION SELECT relid::oid FROM pg_partition_tree(known.relation))
                       AND NOT t.tgisinternal AND t.tgtype & 4 <> 0 AND t.tgenabled <> 'D');
BEGIN
    IF target.relkind NOT IN ('r', 'p') THEN
        RAISE EXCEPTION 'rewind() needs a table, which % is not', known.relation USING ERRCODE = 'wrong_object_type',
            HINT = 'seek() sends the consumer back and leaves the rows to you.';
    END IF;
    IF pipeline_kafka.kafka_column(known.relation, 'kafka_partition') IS NULL
       OR pipeline_kafka.kafka_column(known.relation, 'kafka_offset') IS NULL THEN
        RAISE EXCEPTION 'the rows of % do not tell which offset they are from', known.relation USING ERRCODE = 'undefined_column',
            HINT = format('ALTER TABLE %s ADD kafka_partition int, ADD kafka_offset bigint; then those tell that are loaded from now on.',
                          known.relation);
    END IF;
    IF known.topic ^@ '^' AND pipeline_kafka.kafka_column(known.relation, 'kafka_topic') IS NULL THEN
        RAISE EXCEPTION 'the rows of % do not tell which topic they are from, and % is a pattern', known.relation, known.topic
            USING ERRCODE = 'undefined_column', HINT = format('ALTER TABLE %s ADD kafka_topic text;', known.relation);
    END IF;
    IF known.on_conflict = 'update' THEN
        RAISE EXCEPTION 'consumer % -> % changes rows (on_conflict => ''update''), and what they were before is not known',
                known.topic, known.relation USING ERRCODE = 'feature_not_supported',
            HINT = 'Read the topic again from its beginning into an emptied table: TRUNCATE, and seek() with to_offset => -2.';
    END IF;
    IF pipeline_kafka.row_security_holds(caller, known.relation) THEN
        RAISE EXCEPTION 'row security on % holds for %, who may not see all that was loaded', known.relation, caller::regrole
            USING ERRCODE = 'feature_not_supported', HINT = 'Let a role do it that BYPASSRLS.';
    END IF;
    IF NOT force AND (trigger IS NOT NULL OR target.relhasrules) THEN
        RAISE EXCEPTION 'rows loaded into % pass %, which may have written more than rewind() removes', known.relation,
                coalesce('trigger ' || trigger, 'rules')
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Where that is not so: force => true.';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_rewind(pipeline_kafka.consumers, oid, boolean) IS
    'Raises the reason why what a consumer has loaded cannot be undone exactly: 42809, 42703, 0A000, 55000.';

CREATE FUNCTION pipeline_kafka.check_others(known pipeline_kafka.consumers, targets jsonb) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tells_topic boolean := pipeline_kafka.kafka_column(known.relation, 'kafka_topic') IS NOT NULL;
    other text := (
        SELECT format('%s %s -> %s', CASE WHEN c.replay THEN 'replay ' || c.id || ' of' ELSE 'consumer' END, c.topic, c.relation)
        FROM pipeline_kafka.consumers c
        JOIN pipeline_kafka.offsets o ON o.consumer_id = c.id AND o.messages > 0
        LEFT JOIN jsonb_to_recordset(targets) AS t(topic text, partition int, to_offset bigint)
             ON t.topic = o.topic AND t.partition = o.partition
        WHERE c.relation = known.relation AND c.id <> known.id
          AND (o.next_offset > t.to_offset OR (NOT tells_topic AND o.topic <> known.topic))
        ORDER BY c.id LIMIT 1);
BEGIN
    IF other IS NOT NULL THEN
        RAISE EXCEPTION '% has loaded rows that cannot be told from those of consumer % -> %', other, known.topic, known.relation
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Remove rows by hand, then seek().';
    END IF;
END $$;
COMMENT ON FUNCTION pipeline_kafka.check_others(pipeline_kafka.consumers, jsonb) IS
    'Errors: 55000 where another consumer, or a replay, has read the same offsets into the relation, or topics cannot be told apart.';

CREATE FUNCTION pipeline_kafka.rewind_targets(consumer int, targets jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    made_again text;
BEGIN
    PERFORM FROM pipeline_kafka.offsets o WHERE o.consumer_id = consumer ORDER BY o.topic, o.partition FOR UPDATE;
    SELECT jsonb_agg(to_jsonb(t) || jsonb_build_object('to_offset', least(t.to_offset, o.next_offset)) ORDER BY t.topic, t.partition),
           string_agg(DISTINCT t.topic, ', ') FILTER (WHERE o.topic_id <> t.topic_id)
    INTO targets, made_again
    FROM jsonb_to_recordset(targets) AS t(topic text, partition int, topic_id text, to_offset bigint)
    JOIN pipeline_kafka.offsets o ON o.consumer_id = consumer AND o.topic = t.topic AND o.partition = t.partition;
    IF made_again IS NOT NULL THEN
        RAISE EXCEPTION 'topic % was deleted and made again: what was loaded before cannot be read again', made_again
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Remove rows by hand, then seek().';
    END IF;
    RETURN coalesce(targets, '[]');
END $$;
COMMENT ON FUNCTION pipeline_kafka.rewind_targets(int, jsonb) IS
    'Keeps the consumer (by id) where it stands until the transaction ends, and answers what seek_targets() did, for the partitions '
    'it has begun, and never ahead of where it stands. It waits for batches that are being loaded. Errors: 55000 for a topic that '
    'was made again.';

CREATE FUNCTION pipeline_kafka.rewind_consumer(wanted pipeline_kafka.consumers, caller oid, partition int, to_offset bigint,
    to_timestamp timestamptz, force boolean, timeout int) RETURNS jsonb
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known pipeline_kafka.consumers := pipeline_kafka.own_consumer(wanted, caller);
    asked jsonb;
    targets jsonb;
BEGIN
    PERFORM pipeline_kafka.check_rewind(known, caller, force);
    asked := pipeline_kafka.seek_targets(known.topic, known.exclude, partition, to_offset, to_timestamp, false, timeout);
    UPDATE pipeline_kafka.consumers c SET enabled = c.enabled WHERE c.id = known.id;  -- see seek_consumer()
    FOR tries IN 1..5 LOOP
        BEGIN
            targets := pipeline_kafka.rewind_targets(known.id, asked);
            EXIT;
        EXCEPTION WHEN deadlock_detected THEN
            IF tries = 5 THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    PERFORM pipeline_kafka.check_others(known, targets);
    WITH gone AS (
        DELETE FROM pipeline_kafka.dead_letters d
        USING jsonb_to_recordset(targets) AS t(topic text, partition int, to_offset bigint)
        WHERE d.consumer_id = known.id AND d.topic = t.topic AND d.partition = t.partition AND d.kafka_offset >= t.to_offset
        RETURNING d.consumer_id)
    INSERT INTO pipeline_kafka.dead_letter_outcomes (consumer_id, outcome, count, by)
    SELECT g.consumer_id, 'discarded', count(*), caller FROM gone g GROUP BY g.consumer_id;
    RETURN pipeline_kafka.move_offsets(known.id, caller, targets);
END $$;
COMMENT ON FUNCTION pipeline_kafka.rewind_consumer(pipeline_kafka.consumers, oid, int, bigint, timestamptz, boolean, int) IS
    'The part of rewind() that is done for its caller: checks that it will be exact, moves the consumer back, and removes its dead '
    'letters from there on. Answers as move_offsets().';

CREATE FUNCTION pipeline_kafka.rewind_rows(of_topic text, relation regclass, place bigint, at timestamptz, of_partition int,
    force boolean, timeout int,
    OUT topic text, OUT partition int, OUT from_offset bigint, OUT to_offset bigint, OUT removed bigint) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept boolean;
    path text := (SELECT s.reset_val FROM pg_settings s WHERE s.name = 'search_path');  -- the session's, for triggers on the relation
    own text := current_setting('search_path');
    moves jsonb;
    unplaced boolean;
    rows text;
BEGIN
    INSERT INTO pipeline_kafka.answered_requests AS r (function, arguments)
    VALUES ('pipeline_kafka.rewind(text, regclass, bigint, timestamptz, int, boolean, int)'::regprocedure,
            jsonb_build_object('topic', of_topic, 'relation', relation::oid, 'to_offset', place, 'to_timestamp', at,
                               'partition', of_partition, 'force', force, 'timeout', timeout))
    RETURNING r.answer INTO moves;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE kafka_partition IS NULL OR kafka_offset IS NULL)', relation) INTO unplaced;
    IF unplaced AND NOT force THEN
        RAISE EXCEPTION '% has rows without kafka_partition or kafka_offset, which may be from anywhere', relation
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Where they are none of this consumer''s: force => true.';
    END IF;
    FOR topic, partition, from_offset, to_offset IN
        SELECT m.* FROM jsonb_to_recordset(moves) AS m(topic text, partition int, from_offset bigint, to_offset bigint)
    LOOP
        rows := format('DELETE FROM %s WHERE %s OPERATOR(pg_catalog.=) %s AND %s OPERATOR(pg_catalog.>=) %s', relation,
                       pipeline_kafka.kafka_column(relation, 'kafka_partition'), partition,
                       pipeline_kafka.kafka_column(relation, 'kafka_offset'), to_offset)
                || CASE WHEN pipeline_kafka.kafka_column(relation, 'kafka_topic') IS NULL THEN ''
                        ELSE format(' AND kafka_topic::pg_catalog.text OPERATOR(pg_catalog.=) %L', topic) END;
        PERFORM set_config('search_path', path, true);
        EXECUTE rows;
        GET DIAGNOSTICS removed = ROW_COUNT;
        EXECUTE format('SELECT EXISTS (%s)', regexp_replace(rows, '^DELETE', 'SELECT')) INTO kept;
        IF kept THEN
            RAISE EXCEPTION 'rows of % were kept by a trigger or a rule for DELETE, and would come a second time', relation
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'seek() sends the consumer back and leaves the rows to you.';
        END IF;
        PERFORM set_config('search_path', own, true);
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION pipeline_kafka.rewind_rows(text, regclass, bigint, timestamptz, int, boolean, int) IS
    'The working part of rewind(), with the caller''s own rights on the table: has the consumer moved, and removes its rows.';

CREATE FUNCTION pipeline_kafka.rewind(topic text, relation regclass, to_offset bigint DEFAULT NULL,
    to_timestamp timestamptz DEFAULT NULL, partition int DEFAULT NULL, force boolean DEFAULT false, timeout int DEFAULT 10000,
    OUT topic text, OUT partition int, OUT from_offset bigint, OUT to_offset bigint, OUT removed bigint) RETURNS SETOF record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT * FROM pipeline_kafka.rewind_rows($1, $2, $3, $4, $5, coalesce($6, false), $7)
$$;
COMMENT ON FUNCTION pipeline_kafka.rewind(text, regclass, bigint, timestamptz, int, boolean, int) IS
    'Undoes what a consumer of the caller has loaded from some offset on: removes these rows and dead letters and sends it back there, '
    'running or not, when the transaction commits. Answers each partition: where it stood, where it stands, and how many rows were '
    'removed. to_offset: -2 the beginning, else an offset. to_timestamp: the first message of that time or later. partition: this '
    'one only. A partition that stands before that place stays where it is. timeout: ms for Kafka''s answer. '
    'Refused where it cannot be exact: 42703 the table lacks kafka_partition or kafka_offset (or kafka_topic, with several topics), '
    '0A000 on_conflict => ''update'' or row security, 42809 no table, 55000 another consumer or a replay has loaded the same '
    'offsets, and, unless force, where there are INSERT triggers or rules, or rows without an offset; 22023 for offsets that Kafka '
    'does not have any more. Other errors: those of seek(). Needs EXECUTE on this, rewind_rows and kafka_column, SELECT and DELETE on the table.';
