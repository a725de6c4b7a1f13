-- Dead letters: to look at, fix, try again, discard and forget. All of it runs with the caller's own privileges, in the
-- caller's transaction, so that fix, retry and a look before ROLLBACK are a dry run.

CREATE TABLE pipeline_kafka.dead_letter_outcomes (
    consumer_id int NOT NULL REFERENCES pipeline_kafka.consumers ON DELETE CASCADE,
    outcome     text NOT NULL CONSTRAINT known_outcome CHECK (outcome IN ('loaded', 'discarded', 'expired')),
    count       bigint NOT NULL CONSTRAINT count_positive CHECK (count > 0),
    at          timestamptz NOT NULL DEFAULT now(),
    by          regrole NOT NULL DEFAULT quote_ident(current_user)::regrole
);
CREATE INDEX dead_letter_outcomes_consumer ON pipeline_kafka.dead_letter_outcomes (consumer_id, outcome);
COMMENT ON TABLE pipeline_kafka.dead_letter_outcomes IS
    'What became of letters that are gone, a row a call and consumer (of expired ones a row a day): with dead_letters they are '
    'all that was set aside.';
COMMENT ON COLUMN pipeline_kafka.dead_letter_outcomes.outcome IS
    'loaded: by a retry. discarded: by discard_dead_letter(s). expired: by set_dead_letter_retention().';
SELECT pg_catalog.pg_extension_config_dump('pipeline_kafka.dead_letter_outcomes', '');

CREATE TABLE pipeline_kafka.dead_letter_retention (
    single boolean PRIMARY KEY DEFAULT true CONSTRAINT one_row CHECK (single),
    keep   interval NOT NULL CONSTRAINT keep_positive CHECK (keep > interval '0')
);
COMMENT ON TABLE pipeline_kafka.dead_letter_retention IS
    'How long after their last try dead letters are kept; without a row for ever. Written by set_dead_letter_retention().';
SELECT pg_catalog.pg_extension_config_dump('pipeline_kafka.dead_letter_retention', '');

-- Looking ------------------------------------------------------------------------------------------------------

CREATE FUNCTION pipeline_kafka.shown_text(value bytea) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN convert_from(value, 'UTF8');
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;
COMMENT ON FUNCTION pipeline_kafka.shown_text(bytea) IS
    'The text that these bytes are in UTF-8; NULL where they are none, or none in this database''s encoding. Never raises.';

CREATE FUNCTION pipeline_kafka.shown_json(value text) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN value::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;
COMMENT ON FUNCTION pipeline_kafka.shown_json(text) IS
    'The text as jsonb; NULL where it is no JSON, or holds what jsonb cannot. Never raises.';

CREATE VIEW pipeline_kafka.dead_letters_shown AS
SELECT d.id, d.topic, d.partition, d.kafka_offset, c.relation, d.sqlstate, d.error, d.detail, d.hint, d.column_name, d.context,
       v.value, pipeline_kafka.shown_json(v.value) AS json, pipeline_kafka.shown_text(d.key) AS key, d.headers,
       d.kafka_timestamp, d.tries, d.failed_at, d.tried_at
FROM pipeline_kafka.dead_letters d
JOIN pipeline_kafka.consumers c ON c.id = d.consumer_id
CROSS JOIN LATERAL pipeline_kafka.shown_text(d.value) AS v(value);
COMMENT ON VIEW pipeline_kafka.dead_letters_shown IS
    'Dead letters for people: key and value as text where they are UTF-8, json where the value is JSON; NULL else.';

CREATE VIEW pipeline_kafka.dead_letters_summary AS
SELECT c.topic, c.relation, d.sqlstate, count(*) AS letters, min(d.failed_at) AS first_failed_at,
       max(d.failed_at) AS last_failed_at, max(d.tries) AS most_tries, min(d.id) AS sample_id, min(d.error) AS sample_error
FROM pipeline_kafka.dead_letters d
JOIN pipeline_kafka.consumers c ON c.id = d.consumer_id
GROUP BY c.id, d.sqlstate
ORDER BY c.topic, c.relation, letters DESC;
COMMENT ON VIEW pipeline_kafka.dead_letters_summary IS
    'How many letters each consumer has by SQLSTATE, since when, and one of their errors (not of the letter sample_id, which is the '
    'oldest). topic is the consumer''s, which may be a pattern.';

-- Mending ------------------------------------------------------------------------------------------------------

CREATE FUNCTION pipeline_kafka.take_dead_letter(id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM pipeline_kafka.dead_letters d WHERE d.id = take_dead_letter.id FOR UPDATE NOWAIT;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no dead letter %', coalesce(id::text, 'NULL')
            USING ERRCODE = 'undefined_object', HINT = 'It may have been retried or discarded: see dead_letters_shown.';
    END IF;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'another session is at work on dead letter %', id
        USING ERRCODE = 'lock_not_available', HINT = 'Try again when its transaction has ended.';
END $$;
COMMENT ON FUNCTION pipeline_kafka.take_dead_letter(bigint) IS
    'Locks a letter until the transaction ends. Errors: 42704 where there is none, 55P03 where another session has it.';

CREATE FUNCTION pipeline_kafka.fix_dead_letter(id bigint, value bytea) RETURNS text
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF value IS NULL THEN
        RAISE EXCEPTION 'the new value of dead letter % is NULL', id
            USING ERRCODE = 'null_value_not_allowed', HINT = 'discard_dead_letter() is for a letter that is not wanted.';
    END IF;
    PERFORM pipeline_kafka.take_dead_letter(id);
    UPDATE pipeline_kafka.dead_letters d SET value = fix_dead_letter.value WHERE d.id = fix_dead_letter.id;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.fix_dead_letter(bigint, bytea) IS
    'Gives a letter another value, in bytes; nothing is tried yet. Answers ''success''. '
    'Errors: 22004 for NULL, 42704 where there is no such letter, 55P03 where another session has it.';

CREATE FUNCTION pipeline_kafka.fix_dead_letter(id bigint, value text) RETURNS text
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pipeline_kafka.fix_dead_letter(id, convert_to(value, 'UTF8'))
$$;
COMMENT ON FUNCTION pipeline_kafka.fix_dead_letter(bigint, text) IS
    'Gives a letter another value, as text that is kept in UTF-8; nothing is tried yet. Answers ''success''. '
    'Errors: 22004 for NULL, 42704 where there is no such letter, 55P03 where another session has it.';

-- Trying again -------------------------------------------------------------------------------------------------

CREATE FUNCTION pipeline_kafka.execute_as(role oid, path text, statement text, parameters text[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    token text := gen_random_uuid();
    written bigint;
BEGIN
    IF role IS NOT NULL THEN
        PERFORM pipeline_kafka.begin_as(role, token);
    END IF;
    PERFORM set_config('search_path', path, true);
    EXECUTE statement USING parameters;
    GET DIAGNOSTICS written = ROW_COUNT;
    SET CONSTRAINTS ALL IMMEDIATE;  -- what was deferred inside is checked inside
    IF role IS NOT NULL THEN
        PERFORM pipeline_kafka.end_as(token);
    END IF;
    RETURN written;
END $$;
COMMENT ON FUNCTION pipeline_kafka.execute_as(oid, text, text, text[]) IS
    'Executes a statement as role, by begin_as() and end_as(), with a search_path; NULL: as the caller. The statement has '
    '($1)[1], ($1)[2], … for its parameters. Answers how many rows it wrote. Errors: those of begin_as() and of the statement.';

-- The settings are those that a worker's session has (pipeline_kafka/database.py): they decide what a value means.
CREATE FUNCTION pipeline_kafka.load_dead_letters(id bigint, topic text, relation regclass, sqlstate text, most int,
    OUT retried bigint, OUT loaded bigint, OUT failed bigint) RETURNS record
LANGUAGE plpython3u VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
SET DateStyle = 'ISO, MDY' SET IntervalStyle = 'postgres' SET standard_conforming_strings = on SET row_security = on
AS $$
if "api" not in GD:
    plpy.execute("SELECT pipeline_kafka.load_api()")
return GD["api"].load_dead_letters(plpy, id, topic, relation, sqlstate, most)
$$;
COMMENT ON FUNCTION pipeline_kafka.load_dead_letters(bigint, text, regclass, text, int) IS
    'The working part of try_dead_letters(), in Python: decodes letters and loads them by execute_as().';

CREATE FUNCTION pipeline_kafka.try_dead_letters(id bigint, topic text, relation regclass, sqlstate text, most int,
    OUT retried bigint, OUT loaded bigint, OUT failed bigint) RETURNS record
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    said text;
    code text;
    detail text;
    hint text;
BEGIN
    SELECT * INTO retried, loaded, failed FROM pipeline_kafka.load_dead_letters(id, topic, relation, sqlstate, most);
EXCEPTION WHEN OTHERS THEN  -- the same error, without Python's name for it and the lines of Python it went through
    GET STACKED DIAGNOSTICS said = MESSAGE_TEXT, code = RETURNED_SQLSTATE, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    said := regexp_replace(said, '^(spiexceptions|plpy)\.\w+: ', '');
    IF detail = '' AND hint = '' THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = said;
    END IF;
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = said, DETAIL = concat_ws(E'\n', nullif(detail, ''), nullif(hint, ''));
END $$;
COMMENT ON FUNCTION pipeline_kafka.try_dead_letters(bigint, text, regclass, text, int) IS
    'The common part of retry_dead_letter() and retry_dead_letters(): tries the letters that fit all arguments which are not NULL.';

CREATE FUNCTION pipeline_kafka.retry_dead_letters(topic text DEFAULT NULL, relation regclass DEFAULT NULL,
    sqlstate text DEFAULT NULL, max int DEFAULT NULL, OUT retried bigint, OUT loaded bigint, OUT failed bigint) RETURNS record
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pipeline_kafka.check_range('max', coalesce(max, 0), 0, 2147483647);
    SELECT * FROM pipeline_kafka.try_dead_letters(NULL, topic, relation, sqlstate, max)
$$;
COMMENT ON FUNCTION pipeline_kafka.retry_dead_letters(text, regclass, text, int) IS
    'Tries to load letters again, in Kafka''s order, as the owner of their consumer, in this transaction: what is loaded is deleted, '
    'what fails keeps its place with the new error. topic, relation: of these only. sqlstate: of this code, or of a class by its '
    'first 2 characters. max: so many at the most. Letters that another session has, and those of dropped relations, are passed '
    'over. Constraints are checked at once until the transaction ends. '
    'Errors: 22023 for a negative max; whatever stops a consumer from working at all, such as 42501 where the owner may not insert; nothing is '
    'changed then. Needs EXECUTE on this, check_range, try_dead_letters, load_dead_letters, load_api, setting, relation_version, unique_keys, execute_as and begin_as; SELECT '
    'on consumers and error_rules; SELECT, UPDATE and DELETE on dead_letters; INSERT on dead_letter_outcomes; membership in the owner''s role.';

CREATE FUNCTION pipeline_kafka.retry_dead_letter(id bigint, OUT loaded boolean, OUT sqlstate text, OUT error text) RETURNS record
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    counts record;
BEGIN
    PERFORM pipeline_kafka.take_dead_letter(id);
    SELECT * INTO counts FROM pipeline_kafka.try_dead_letters(id, NULL, NULL, NULL, NULL);
    IF counts.retried = 0 THEN
        RAISE EXCEPTION 'the relation of dead letter % was dropped', id
            USING ERRCODE = 'undefined_table', HINT = 'discard_dead_letter() removes it.';
    END IF;
    loaded := counts.loaded > 0;
    SELECT d.sqlstate, d.error INTO sqlstate, error FROM pipeline_kafka.dead_letters d WHERE d.id = retry_dead_letter.id;
END $$;
COMMENT ON FUNCTION pipeline_kafka.retry_dead_letter(bigint) IS
    'Tries to load one letter again, as retry_dead_letters() does. loaded: true where it was, and is a letter no more; else sqlstate '
    'and error say why not. Errors: 42704 where there is no such letter, 55P03 where another session has it, 42P01 where its '
    'relation was dropped, and those of retry_dead_letters(); it needs the same privileges, and EXECUTE on take_dead_letter.';

-- Discarding ---------------------------------------------------------------------------------------------------

CREATE FUNCTION pipeline_kafka.discard_dead_letter(id bigint) RETURNS text
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pipeline_kafka.take_dead_letter(id);
    WITH gone AS (DELETE FROM pipeline_kafka.dead_letters d WHERE d.id = discard_dead_letter.id RETURNING d.consumer_id)
    INSERT INTO pipeline_kafka.dead_letter_outcomes (consumer_id, outcome, count) SELECT consumer_id, 'discarded', 1 FROM gone;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.discard_dead_letter(bigint) IS
    'Deletes one letter, and counts it. Answers ''success''. '
    'Errors: 42704 where there is no such letter, 55P03 where another session has it.';

CREATE FUNCTION pipeline_kafka.discard_dead_letters(topic text DEFAULT NULL, relation regclass DEFAULT NULL,
    sqlstate text DEFAULT NULL, max int DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pipeline_kafka.check_range('max', coalesce(max, 0), 0, 2147483647);
    WITH chosen AS (
        SELECT d.id
        FROM pipeline_kafka.dead_letters d JOIN pipeline_kafka.consumers c ON c.id = d.consumer_id
        WHERE (discard_dead_letters.topic IS NULL OR d.topic = discard_dead_letters.topic)
          AND (discard_dead_letters.relation IS NULL OR c.relation = discard_dead_letters.relation)
          AND (discard_dead_letters.sqlstate IS NULL OR d.sqlstate ^@ discard_dead_letters.sqlstate)
        ORDER BY d.id LIMIT discard_dead_letters.max
        FOR UPDATE OF d SKIP LOCKED),
    gone AS (
        DELETE FROM pipeline_kafka.dead_letters d USING chosen WHERE d.id = chosen.id RETURNING d.consumer_id),
    counted AS (
        INSERT INTO pipeline_kafka.dead_letter_outcomes AS o (consumer_id, outcome, count)
        SELECT g.consumer_id, 'discarded', count(*) FROM gone g GROUP BY g.consumer_id
        RETURNING o.count)
    SELECT coalesce(sum(count), 0)::bigint FROM counted
$$;
COMMENT ON FUNCTION pipeline_kafka.discard_dead_letters(text, regclass, text, int) IS
    'Deletes letters, the oldest first, and answers how many: of a topic, a relation, a SQLSTATE (or a class, by its first 2 '
    'characters), max at the most; without arguments all. Those that another session has are passed over. Errors: 22023 for a negative max.';

-- Forgetting ---------------------------------------------------------------------------------------------------

CREATE FUNCTION pipeline_kafka.set_dead_letter_retention(keep interval) RETURNS text
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF keep <= interval '0' THEN
        RAISE EXCEPTION 'dead letters cannot be kept for %', keep
            USING ERRCODE = 'invalid_parameter_value', HINT = 'discard_dead_letters() removes them now; NULL keeps them for ever.';
    END IF;
    DELETE FROM pipeline_kafka.dead_letter_retention;
    INSERT INTO pipeline_kafka.dead_letter_retention (keep) SELECT set_dead_letter_retention.keep WHERE set_dead_letter_retention.keep IS NOT NULL;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.set_dead_letter_retention(interval) IS
    'How long this database keeps dead letters after their last try; NULL, as at first: for ever. Workers look once a minute; what '
    'they delete is counted in dead_letter_outcomes. Answers ''success''. Errors: 22023 unless more than 0.';

CREATE FUNCTION pipeline_kafka.expire_dead_letters(most int) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    keep interval := (SELECT r.keep FROM pipeline_kafka.dead_letter_retention r);
    expired bigint;
BEGIN
    IF keep IS NULL THEN
        RETURN 0;
    END IF;
    WITH chosen AS (
        SELECT d.id FROM pipeline_kafka.dead_letters d WHERE d.tried_at < now() - keep
        ORDER BY d.tried_at LIMIT most FOR UPDATE SKIP LOCKED),
    gone AS (
        DELETE FROM pipeline_kafka.dead_letters d USING chosen WHERE d.id = chosen.id RETURNING d.consumer_id),
    counts AS (
        SELECT g.consumer_id, count(*) AS count FROM gone g GROUP BY g.consumer_id),
    added AS (
        UPDATE pipeline_kafka.dead_letter_outcomes o SET count = o.count + c.count
        FROM counts c WHERE o.consumer_id = c.consumer_id AND o.outcome = 'expired' AND o.at >= date_trunc('day', now())
        RETURNING o.consumer_id),
    counted AS (
        INSERT INTO pipeline_kafka.dead_letter_outcomes (consumer_id, outcome, count)
        SELECT c.consumer_id, 'expired', c.count FROM counts c WHERE c.consumer_id NOT IN (SELECT a.consumer_id FROM added a))
    SELECT coalesce(sum(c.count), 0) INTO expired FROM counts c;
    RETURN expired;
END $$;
COMMENT ON FUNCTION pipeline_kafka.expire_dead_letters(int) IS
    'Deletes up to so many letters that set_dead_letter_retention() no longer keeps, counts them by consumer and day, and answers how many. '
    'Letters that another session has wait for the next time.';
