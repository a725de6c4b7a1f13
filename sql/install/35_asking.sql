-- Asking Kafka from a session. A process of its own does it (pipeline_kafka/answers), so that nothing librdkafka does can
-- take the server with it; the session waits for it, answers a cancel, and ends it.

-- What functions in PL/Python begin with, once a session: the package out of the environment that workers run in.
CREATE FUNCTION pipeline_kafka.load_api() RETURNS void
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
import os, site, sys
python = plpy.execute("SELECT pipeline_kafka.setting('python') AS path")[0]["path"]
library = "lib/python%d.%d/site-packages" % sys.version_info[:2]
site.addsitedir(os.path.join(os.path.dirname(os.path.dirname(python)), library))
from pipeline_kafka import plpy_api
GD["api"] = plpy_api
$$;
COMMENT ON FUNCTION pipeline_kafka.load_api() IS
    'Makes the Python package known to this session''s functions in PL/Python, as GD["api"]. '
    'Errors: 38000 where the environment that pipeline_kafka.python names lacks it.';

CREATE FUNCTION pipeline_kafka.ask_process(question text, arguments jsonb, timeout int) RETURNS SETOF jsonb
LANGUAGE plpython3u VOLATILE STRICT PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp
AS $$
if "api" not in GD:
    plpy.execute("SELECT pipeline_kafka.load_api()")
return GD["api"].ask(plpy, question, arguments, timeout)
$$;
COMMENT ON FUNCTION pipeline_kafka.ask_process(text, jsonb, int) IS
    'The working part of ask(), in Python: starts the process and reads its answer.';

CREATE FUNCTION pipeline_kafka.ask(question text, arguments jsonb, timeout int) RETURNS SETOF jsonb
LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    said text;
    code text;
    detail text;
    hint text;
BEGIN
    IF timeout IS NULL OR timeout NOT BETWEEN 1 AND 3600000 THEN
        RAISE EXCEPTION 'timeout is %, not 1 to 3600000 ms', coalesce(timeout::text, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY SELECT * FROM pipeline_kafka.ask_process(question, arguments, timeout);
EXCEPTION WHEN OTHERS THEN  -- the same error, without Python's name for it and the lines of Python it went through
    GET STACKED DIAGNOSTICS said = MESSAGE_TEXT, code = RETURNED_SQLSTATE, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    said := regexp_replace(said, '^(spiexceptions|plpy)\.\w+: ', '');
    IF detail = '' AND hint = '' THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = said;
    ELSIF hint = '' THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = said, DETAIL = detail;
    ELSIF detail = '' THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = said, HINT = hint;
    END IF;
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = said, DETAIL = detail, HINT = hint;
END $$;
COMMENT ON FUNCTION pipeline_kafka.ask(text, jsonb, int) IS
    'Asks Kafka a question of pipeline_kafka/answers/questions.py, and answers its rows as JSON objects. timeout: ms, 1 to 3600000. '
    'A cancel is answered at once. Errors: 08006 where Kafka cannot be reached or does not answer in time, 08001 where a name '
    'is not known or TLS fails, 28000 where Kafka refuses the user, 42501 where its ACLs do, 42704 for what is not there, 42602 for what '
    'is no name of a topic, 58000 else.';
