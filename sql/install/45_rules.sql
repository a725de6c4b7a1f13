-- What is done about an error: the defaults (pipeline_kafka/errors.py), and rows that a user sets over them.

CREATE TABLE pipeline_kafka.error_rules (
    code   text PRIMARY KEY CONSTRAINT sqlstate_or_class CHECK (code ~ '^[0-9A-Z]{2}([0-9A-Z]{3})?$'),
    action text NOT NULL CONSTRAINT known_action CHECK (action IN ('retry', 'set_aside', 'pause'))
);
COMMENT ON TABLE pipeline_kafka.error_rules IS
    'What is done about an error, where it is not the default: written by set_error_rule(). error_actions shows both.';
COMMENT ON COLUMN pipeline_kafka.error_rules.code IS 'A SQLSTATE of 5 characters, or a class of 2 for all that begin with it.';
COMMENT ON COLUMN pipeline_kafka.error_rules.action IS
    'retry: the batch again, after 0.1 s up to 30 s. set_aside: the message, as on_error says. '
    'pause: the consumer, for 1 s up to 60 s.';
SELECT pg_catalog.pg_extension_config_dump('pipeline_kafka.error_rules', '');

CREATE FUNCTION pipeline_kafka.set_error_rule(code text, action text) RETURNS text
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF code IS NULL OR code !~ '^[0-9A-Z]{2}([0-9A-Z]{3})?$' THEN
        RAISE EXCEPTION '% is neither a SQLSTATE nor a class of them', coalesce('"' || code || '"', 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give 5 characters, such as 23505, or 2 for a class, such as 23.';
    END IF;
    PERFORM pipeline_kafka.check_choice('action', action, '{retry,set_aside,pause}');
    INSERT INTO pipeline_kafka.error_rules VALUES (code, action)
        ON CONFLICT ON CONSTRAINT error_rules_pkey DO UPDATE SET action = EXCLUDED.action;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.set_error_rule(text, text) IS
    'Sets what is done about an error: retry, set_aside or pause. code: a SQLSTATE, or a class (its first 2 characters); a code '
    'counts before its class. Answers ''success''. Errors: 22023 for another code or action. Running workers take it up.';

CREATE FUNCTION pipeline_kafka.unset_error_rule(code text) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM pipeline_kafka.error_rules r WHERE r.code = unset_error_rule.code;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no rule for "%"', code
            USING ERRCODE = 'undefined_object', HINT = 'SELECT * FROM pipeline_kafka.error_rules shows those there are.';
    END IF;
    RETURN 'success';
END $$;
COMMENT ON FUNCTION pipeline_kafka.unset_error_rule(text) IS
    'Takes an error back to its default. Answers ''success''. Errors: 42704 where there is no rule for it.';

CREATE FUNCTION pipeline_kafka.default_error_actions(OUT code text, OUT action text, OUT meaning text) RETURNS SETOF record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
if "api" not in GD:
    plpy.execute("SELECT pipeline_kafka.load_api()")
return GD["api"].default_error_actions()
$$;
COMMENT ON FUNCTION pipeline_kafka.default_error_actions() IS
    'What the workers do about each SQLSTATE or class without a rule, out of their own code; code NULL: about all others.';

CREATE VIEW pipeline_kafka.error_actions AS
WITH defaults AS MATERIALIZED (SELECT * FROM pipeline_kafka.default_error_actions()),
     codes AS (SELECT code FROM defaults UNION SELECT code FROM pipeline_kafka.error_rules)
SELECT c.code, coalesce(r.action, of_class.action, d.action, default_of_class.action, others.action) AS action,
       coalesce(d.action, default_of_class.action, others.action) AS default_action, r.code IS NOT NULL AS is_rule, d.meaning
FROM codes c
LEFT JOIN pipeline_kafka.error_rules r ON r.code = c.code
LEFT JOIN pipeline_kafka.error_rules of_class ON of_class.code = left(c.code, 2)
LEFT JOIN defaults d ON d.code IS NOT DISTINCT FROM c.code
LEFT JOIN defaults default_of_class ON default_of_class.code = left(c.code, 2)
JOIN defaults others ON others.code IS NULL
ORDER BY c.code NULLS LAST;
COMMENT ON VIEW pipeline_kafka.error_actions IS
    'What is done about each SQLSTATE or class: the rule where there is one (is_rule), else the default. A code counts before its '
    'class, a rule for either before a default; the row without a code is for all others.';
