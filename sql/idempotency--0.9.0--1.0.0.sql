/* sql/idempotency--0.9.0--1.0.0.sql: limits for a tenant, fingerprints under a secret, and nothing
   of a schema "cron" is called that is not pg_cron's; nothing of the key table changes */

-- complain if the script is sourced in psql rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION idempotency UPDATE TO '1.0.0'" to load this file. \quit

-- logical replication fires triggers of rows, and of statements for TRUNCATE alone. No lock here waits for claims.
CREATE TRIGGER idempotency_operations_replicated
    AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idempotency_operations
    FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_registry_changed();
ALTER TABLE @extschema@.idempotency_operations ENABLE REPLICA TRIGGER idempotency_operations_replicated;
CREATE TRIGGER idempotency_tenants_replicated
    AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idempotency_tenants
    FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_registry_changed();
ALTER TABLE @extschema@.idempotency_tenants ENABLE REPLICA TRIGGER idempotency_tenants_replicated;

CREATE TABLE @extschema@.idempotency_limits (
    tenant_id     text COLLATE "C",
    max_keys      integer,
    max_in_flight integer,
    CONSTRAINT idempotency_limits_tenant_id_key UNIQUE NULLS NOT DISTINCT (tenant_id),
    CONSTRAINT idempotency_limits_check
        CHECK (max_keys OPERATOR(pg_catalog.>=) 1 AND max_in_flight OPERATOR(pg_catalog.>=) 1
               AND max_in_flight OPERATOR(pg_catalog.<=) 10000)
);

-- a null is no part of a primary key, and a publication needs to tell rows apart
ALTER TABLE @extschema@.idempotency_limits REPLICA IDENTITY FULL;

REVOKE ALL ON TABLE @extschema@.idempotency_limits FROM PUBLIC;

SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_limits', '');

CREATE TRIGGER idempotency_limits_changed
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON @extschema@.idempotency_limits
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_registry_changed();
ALTER TABLE @extschema@.idempotency_limits ENABLE ALWAYS TRIGGER idempotency_limits_changed;
CREATE TRIGGER idempotency_limits_replicated
    AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idempotency_limits
    FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_registry_changed();
ALTER TABLE @extschema@.idempotency_limits ENABLE REPLICA TRIGGER idempotency_limits_replicated;

CREATE FUNCTION @extschema@.idem_limit_tenant(
    tenant        text,
    max_keys      integer DEFAULT NULL,
    max_in_flight integer DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'idem_limit_tenant'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.idem_unlimit_tenant(
    tenant text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'idem_unlimit_tenant'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

REVOKE ALL ON FUNCTION @extschema@.idem_limit_tenant(text, integer, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_unlimit_tenant(text) FROM PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.idem_schedule_purge(
    schedule text DEFAULT '*/5 * * * *',
    database text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    target   constant text := coalesce(database, current_database());
    elsewhere constant boolean := target <> current_database();
    job      constant text := 'idempotency purge of ' || target;
    command  constant text := 'CALL @extschema@.idem_purge()';
    by_hand  constant text := format('SELECT cron.schedule_in_database(%L, %L, %L, %L)', job, schedule, command, target);
    cron_database constant text := (SELECT setting FROM pg_settings WHERE name = 'cron.database_name'); -- null for most roles
    function constant text := CASE WHEN elsewhere THEN 'schedule_in_database' ELSE 'schedule' END;
    callable boolean; -- null: there is nothing to call, for what others put into a schema of this name is not called
    job_id   bigint;
BEGIN
    IF schedule IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ID009', MESSAGE = 'argument "schedule" must not be null',
            HINT = 'Give a crontab entry such as ''*/5 * * * *''.';
    END IF;
    SELECT bool_or(has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE')) INTO callable
      FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
      JOIN pg_depend AS d ON d.classid = 'pg_namespace'::regclass AND d.objid = n.oid AND d.deptype = 'e'
      JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'pg_cron'
     WHERE n.nspname = 'cron' AND p.proname = function AND p.pronargs >= 3;
    IF callable IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('pg_cron is not available in database "%s"', current_database()),
            DETAIL = CASE WHEN cron_database <> current_database() THEN format('pg_cron runs in database "%s".', cron_database)
                          WHEN to_regnamespace('cron') IS NOT NULL AND NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_cron')
                          THEN 'There is a schema "cron", which is not pg_cron''s.'
                          ELSE 'The extension has not been created here, or its library is not in shared_preload_libraries.' END,
            HINT = format('Have pg_cron run the purge from its own database: %s', by_hand);
    END IF;
    IF NOT callable THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('role "%s" may not execute cron.%s()', current_user, function),
            HINT = format('Grant it USAGE on schema cron and EXECUTE on the function, or have a superuser run: %s', by_hand);
    END IF;
    IF NOT (SELECT rolcanlogin FROM pg_roles WHERE rolname = current_user) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('role "%s" is not permitted to log in', current_user),
            DETAIL = 'pg_cron logs in as the role that schedules a job.',
            HINT = 'Schedule the purge as a role with LOGIN.';
    END IF;
    IF NOT elsewhere AND NOT has_function_privilege('@extschema@.idem_purge(integer, integer)', 'EXECUTE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('role "%s" may not execute idem_purge()', current_user),
            HINT = 'Grant it EXECUTE on the procedure, or schedule the purge as an operator.';
    END IF;
    IF elsewhere THEN
        EXECUTE 'SELECT cron.schedule_in_database($1, $2, $3, $4)' INTO job_id USING job, schedule, command, target;
    ELSE
        EXECUTE 'SELECT cron.schedule($1, $2, $3)' INTO job_id USING job, schedule, command;
    END IF;
    RETURN job_id;
END
$function$;

CREATE OR REPLACE FUNCTION @extschema@.idem_unschedule_purge(
    database text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    job    constant text := 'idempotency purge of ' || coalesce(database, current_database());
    job_id bigint;
BEGIN
    -- what others put into a schema of this name is not called
    IF NOT EXISTS (SELECT FROM pg_depend AS d
                     JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'pg_cron'
                    WHERE d.classid = 'pg_namespace'::regclass AND d.objid = to_regnamespace('cron') AND d.deptype = 'e') THEN
        RAISE NOTICE USING MESSAGE = format('there is no job "%s" to unschedule here', job),
            DETAIL = 'pg_cron is not in this database.',
            HINT = format('Where it was scheduled: SELECT idem_unschedule_purge(%L)', coalesce(database, current_database()));
        RETURN false;
    END IF;
    EXECUTE 'SELECT jobid FROM cron.job WHERE jobname = $1 AND username = current_user' INTO job_id USING job;
    IF job_id IS NULL THEN
        RAISE NOTICE USING MESSAGE = format('there is no job "%s" of role "%s" to unschedule', job, current_user);
        RETURN false;
    END IF;
    EXECUTE 'SELECT cron.unschedule($1)' USING job_id;
    RETURN true;
END
$function$;

-- Whoever has made default privileges (ALTER DEFAULT PRIVILEGES) for objects of his own did not mean these: rights on keys are granted
-- by name. PUBLIC has been dealt with above.
DO $revoke$
DECLARE
    given record;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    FOR given IN
        SELECT o.kind, o.name, r.rolname
          FROM (SELECT 'TABLE' AS kind, c.oid::regclass::text AS name, c.relname AS plain_name, c.relowner AS owner, c.relacl AS acl, 'pg_class'::regclass AS catalog, c.oid
                  FROM pg_class AS c
                UNION ALL
                SELECT 'ROUTINE', p.oid::regprocedure::text, p.proname, p.proowner, p.proacl, 'pg_proc'::regclass, p.oid FROM pg_proc AS p) AS o
          JOIN pg_depend AS d ON d.classid = o.catalog AND d.objid = o.oid AND d.objsubid = 0 AND d.deptype = 'e'
          JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'idempotency'
          CROSS JOIN LATERAL aclexplode(o.acl) AS a
          JOIN pg_roles AS r ON r.oid = a.grantee
         WHERE a.grantee <> o.owner
           AND o.plain_name IN ('idempotency_limits', 'idem_limit_tenant', 'idem_unlimit_tenant') -- of what was there before, the operator has granted it
         GROUP BY o.kind, o.name, r.rolname
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %I', given.kind, given.name, given.rolname);
    END LOOP;
END
$revoke$;

COMMENT ON TABLE @extschema@.idempotency_limits IS
    'What a tenant may take up, see idem_limit_tenant().';
COMMENT ON COLUMN @extschema@.idempotency_limits.tenant_id IS
    'The tenant; null: all that have no row of their own.';
COMMENT ON COLUMN @extschema@.idempotency_limits.max_keys IS
    'How many keys it may have stored, expired ones included; null: no limit.';
COMMENT ON COLUMN @extschema@.idempotency_limits.max_in_flight IS
    'How many keys its transactions may hold at a time; null: no limit.';
COMMENT ON FUNCTION @extschema@.idem_limit_tenant(text, integer, integer) IS
    'Limits how many keys a tenant may have stored and in flight; beyond that a new key is answered with 429. A null tenant: all without limits of their own.';
COMMENT ON FUNCTION @extschema@.idem_unlimit_tenant(text) IS
    'Takes a tenant''s limits back; says whether it had any.';
COMMENT ON COLUMN @extschema@.idempotency_keys.request_hash IS
    'SHA-256 of method, path and canonical body (see idem_fingerprint), or that under a secret: 32 bytes.';
COMMENT ON COLUMN @extschema@.idempotency_keys.fingerprint_version IS
    'How request_hash was computed. 1: SHA-256. 2: HMAC-SHA-256 with a secret of idempotency.fingerprint_secret_file.';
