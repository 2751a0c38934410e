-- What each process of an application needs in PostgreSQL, and nothing more. Run it twice in the database that
-- was made for levelog (`CREATE DATABASE levelog`), as a superuser:
--
--   psql --file roles.sql "postgresql://…/levelog"      makes the roles
--   levelog migrate FILE                                as levelog_owner: makes the tables, and the SQL views of the operators
--   psql --file roles.sql "postgresql://…/levelog"      grants what the tables need; again after each migration
--
-- The roles have no passwords: `ALTER ROLE … PASSWORD`, or certificates and pg_hba.conf, let processes in as them.

DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['levelog_owner', 'levelog_processor', 'levelog_actuator', 'levelog_retrier', 'levelog_reader'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
      EXECUTE format('CREATE ROLE %I LOGIN', name);
    END IF;
  END LOOP;
  EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
  EXECUTE format('GRANT CONNECT ON DATABASE %I TO levelog_owner, levelog_processor, levelog_actuator, '
                 'levelog_retrier, levelog_reader', current_database());
  -- a schema for the SQL views of each application
  EXECUTE format('GRANT CREATE ON DATABASE %I TO levelog_owner', current_database());
END
$$;

REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO levelog_owner;
GRANT USAGE ON SCHEMA public TO levelog_processor, levelog_actuator, levelog_retrier, levelog_reader;

-- Readers see whatever the owner makes later, too.
ALTER DEFAULT PRIVILEGES FOR ROLE levelog_owner GRANT USAGE ON SCHEMAS TO levelog_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE levelog_owner GRANT SELECT ON TABLES TO levelog_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO levelog_reader;

-- Processors fold and decide: rows of all tables, but no table and no revision.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO levelog_processor;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO levelog_processor;

DO $$
BEGIN
  IF to_regclass('public.intents') IS NOT NULL THEN
    REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM levelog_processor;
    -- What was decided stays as it was: it is pruned as the log is, and never changed.
    REVOKE UPDATE ON decisions FROM levelog_processor;
    -- The actuator claims intents and stores receipts; what is to be written, and where, it cannot change.
    GRANT SELECT ON alembic_version, scopes, intents TO levelog_actuator;
    GRANT SELECT (scope, view, parent, parent_uid, status, reason, drift, since) ON levels TO levelog_actuator;
    GRANT SELECT, INSERT, UPDATE, DELETE ON actuators TO levelog_actuator;
    -- What effects did it records again, and when it did so; daemons look up indices, and wait for levels.
    GRANT SELECT ON index_entries, key_versions, syncs TO levelog_actuator;
    GRANT UPDATE (calls_recorded_at) ON scopes TO levelog_actuator;
    GRANT UPDATE (state, owner, claim, expires_at, due_at, attempts, error, outcome, result_uid, result_version, receipt, is_relayed,
                  progress)
      ON intents TO levelog_actuator;
    -- A call that it gives back may be withdrawn: levels that wait for that are looked at sooner.
    GRANT SELECT (scope, view, parent, due_at), UPDATE (due_at) ON wakeups TO levelog_actuator;
    -- `levelog retry` asks for a look at levels that are there, and sets the time of the next attempt of a write or a call.
    GRANT SELECT ON alembic_version, scopes, handlers, backfills, objects, levels, wakeups, intents, syncs, call_holds TO levelog_retrier;
    GRANT INSERT (scope, view, parent, partition, cause, generation, due_at), UPDATE (generation, due_at)
      ON wakeups TO levelog_retrier;
    GRANT UPDATE (due_at) ON intents TO levelog_retrier;
    GRANT UPDATE (due_at) ON call_holds TO levelog_retrier;
  END IF;
END
$$;
