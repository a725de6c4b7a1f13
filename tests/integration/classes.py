"""What provokes errors in a table t(id int, name text): a trigger that fails for the row whose id is 2."""

from __future__ import annotations

BY_ROLE = "DO $$ BEGIN CREATE ROLE {} LOGIN; EXCEPTION WHEN duplicate_object THEN END $$;"


def trigger(body: str) -> str:
    """SQL that makes a trigger of table t which runs ``body``, PL/pgSQL, for the row with id 2."""
    return f"""CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
                   IF NEW.id = 2 THEN {body}; END IF;
                   RETURN NEW;
               END $f$;
               CREATE TRIGGER fail BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION fail()"""


def raising(sqlstate: str) -> str:
    """SQL that makes a trigger which raises this SQLSTATE."""
    return trigger(f"RAISE SQLSTATE '{sqlstate}' USING MESSAGE = 'raised'")
