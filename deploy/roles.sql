-- What each process of an application needs in PostgreSQL, and nothing more. Each application has a database of its own:
-- its roles are named after it, and reach no other. Run it twice in that database, as a superuser:
--
--   CREATE DATABASE levelog_webs                             for an application webs
--   psql --file roles.sql "postgresql://…/levelog_webs"      makes the roles: levelog_webs_owner, levelog_webs_processor, …
--   levelog migrate FILE                                     as …_owner: makes the tables, and the SQL views of the operators
--   psql --file roles.sql "postgresql://…/levelog_webs"      grants what the tables need; again after each migration
--
-- The roles have no passwords: `ALTER ROLE … PASSWORD`, or certificates and pg_hba.conf, let processes in as them.

DO $roles$
DECLARE
  -- `:owner` and the like stand for the roles.
  at_first text := $grants$
    GRANT USAGE, CREATE ON SCHEMA public TO :owner;
    GRANT USAGE ON SCHEMA public TO :processor, :actuator, :retrier, :reader;

    -- Readers see whatever the owner makes later, too.
    ALTER DEFAULT PRIVILEGES FOR ROLE :owner GRANT USAGE ON SCHEMAS TO :reader;
    ALTER DEFAULT PRIVILEGES FOR ROLE :owner GRANT SELECT ON TABLES TO :reader;
    GRANT SELECT ON ALL TABLES IN SCHEMA public TO :reader;

    -- Processors fold and decide: rows of all tables, but no table and no revision.
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO :processor;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO :processor;
  $grants$;
  once_migrated text := $grants$
    REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM :processor;
    -- What was decided stays as it was: it is pruned as the log is, and never changed.
    REVOKE UPDATE ON decisions FROM :processor;
    -- The actuator claims intents and stores receipts; what is to be written, and where, it cannot change.
    GRANT SELECT ON alembic_version, scopes, intents TO :actuator;
    GRANT SELECT (scope, view, parent, partition, parent_uid, status, reason, drift, since) ON levels TO :actuator;
    GRANT SELECT, INSERT, UPDATE, DELETE ON actuators TO :actuator;
    -- What effects did it records again, and when it did so; daemons look up indices, and wait for levels.
    GRANT SELECT ON backfills, index_entries, key_versions, syncs TO :actuator;
    GRANT UPDATE (calls_recorded_at) ON scopes TO :actuator;
    GRANT UPDATE (state, owner, claim, expires_at, due_at, attempts, error, outcome, result_uid, result_version, receipt,
                  is_relayed, progress)
      ON intents TO :actuator;
    -- A call that it gives back may be withdrawn: levels that wait for that are looked at sooner.
    GRANT SELECT (scope, view, parent, due_at), UPDATE (due_at) ON wakeups TO :actuator;
    -- `levelog retry` asks for a look at levels that are there, and sets the time of the next attempt of a write or a call.
    GRANT SELECT ON alembic_version, scopes, handlers, backfills, objects, levels, wakeups, intents, syncs TO :retrier;
    GRANT INSERT (scope, view, parent, partition, cause, generation, due_at), UPDATE (generation, due_at)
      ON wakeups TO :retrier;
    GRANT UPDATE (due_at) ON intents TO :retrier;
  $grants$;
  role text;
  name text;
BEGIN
  EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
  REVOKE ALL ON SCHEMA public FROM PUBLIC;
  FOREACH role IN ARRAY ARRAY['owner', 'processor', 'actuator', 'retrier', 'reader'] LOOP
    name := current_database() || '_' || role;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
      EXECUTE format('CREATE ROLE %I LOGIN', name);
    END IF;
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), name);
    at_first := replace(at_first, ':' || role, quote_ident(name));
    once_migrated := replace(once_migrated, ':' || role, quote_ident(name));
  END LOOP;
  -- a schema for the SQL views of the application
  EXECUTE format('GRANT CREATE ON DATABASE %I TO %I', current_database(), current_database() || '_owner');
  EXECUTE at_first;
  IF to_regclass('public.intents') IS NOT NULL THEN
    EXECUTE once_migrated;
  END IF;
END
$roles$;
