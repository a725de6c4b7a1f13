-- What the server itself must do (workers/pipeline_kafka.c): start workers, read settings, write as another role.

CREATE FUNCTION pipeline_kafka.start_workers(count integer, first integer DEFAULT 0)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'pipeline_kafka_start_workers';

COMMENT ON FUNCTION pipeline_kafka.start_workers(integer, integer) IS
$$Starts workers in count slots of this database, from the slot first on, once this transaction commits; none if it, or
the savepoint of the call, is rolled back. A worker that runs already is told to look again.
count: 0 to 1024, first: 0 to 2048 - count, else invalid_parameter_value. Slots from 1024 on are for replays. Warns with configuration_limit_exceeded when max_worker_processes is too
low for all of them. PREPARE TRANSACTION is refused after it (feature_not_supported).$$;

CREATE FUNCTION pipeline_kafka.preloaded()
RETURNS boolean
LANGUAGE c STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'pipeline_kafka_preloaded';

COMMENT ON FUNCTION pipeline_kafka.preloaded() IS
$$Is pipeline_kafka in shared_preload_libraries? Only then do workers come back when the server is restarted.$$;

CREATE FUNCTION pipeline_kafka.setting(name text)
RETURNS text
LANGUAGE c STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'pipeline_kafka_setting';

COMMENT ON FUNCTION pipeline_kafka.setting(text) IS
$$The value of the setting pipeline_kafka.<name>: workers (a number), python (a path) or log_level (debug, info, warning
or error). Raises undefined_object for any other name; conninfo may hold a password.$$;

CREATE FUNCTION pipeline_kafka.begin_as(role oid, token text)
RETURNS void
LANGUAGE c VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'pipeline_kafka_begin_as';

COMMENT ON FUNCTION pipeline_kafka.begin_as(oid, text) IS
$$What follows is done as role, up to end_as(token) in the same transaction and savepoint, which also puts back the
settings changed in between. Code that runs meanwhile (triggers, defaults) can't get out of the role, make temporary
tables or defer a trigger. Send the token, 16 characters or more and a new one each time, as a bound parameter: a literal
shows in current_query().
Raises invalid_transaction_state inside another begin_as() or a SECURITY DEFINER function, and at a commit that comes
before end_as(); invalid_parameter_value for a short or null token; undefined_object for an unknown or null role;
insufficient_privilege where the session's user is neither a superuser nor a member of role.$$;

CREATE FUNCTION pipeline_kafka.end_as(token text)
RETURNS void
LANGUAGE c VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'pipeline_kafka_end_as';

COMMENT ON FUNCTION pipeline_kafka.end_as(text) IS
$$Ends begin_as(), given its token. Raises insufficient_privilege for another token, in another savepoint, or outside of
begin_as(). After a wrong token the right one is refused too: only a rollback is left.$$;

-- end_as() is for everyone: it is called as the role switched to, and the token guards it.
REVOKE EXECUTE ON FUNCTION pipeline_kafka.start_workers(integer, integer) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION pipeline_kafka.begin_as(oid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pipeline_kafka.end_as(text) TO PUBLIC;
