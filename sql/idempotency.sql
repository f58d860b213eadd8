/* sql/idempotency.sql: the extension's objects; make copies it to idempotency--X.Y.Z.sql */

-- complain if the script is sourced in psql rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION idempotency" to load this file. \quit

-- ---------------------------------------------------------------------------
-- The table: one row a key, written once, at completion.
-- src/pg/key_store.cpp names the columns by number: add new ones at the end.
-- The functions check lengths, ranges and statuses before they write, so that
-- no DETAIL of the server ever prints a row.
-- ---------------------------------------------------------------------------
CREATE TABLE @extschema@.idempotency_keys (
    tenant_id           text COLLATE "C" NOT NULL,
    key                 text COLLATE "C" NOT NULL,
    request_hash        bytea NOT NULL,
    status              text COLLATE "C" NOT NULL,
    response_status     integer,
    response_headers    jsonb,
    response_body       jsonb,
    response_raw_body   bytea,
    attempt             integer NOT NULL,
    claim_token         uuid,
    lease_expires_at    timestamp with time zone,
    created_at          timestamp with time zone NOT NULL,
    completed_at        timestamp with time zone,
    expires_at          timestamp with time zone NOT NULL,
    fingerprint_version smallint NOT NULL,
    ignored_fields      text[],
    lease               interval,
    checkpoint          text COLLATE "C",
    checkpoint_state    jsonb,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant_id, key),
    -- An orphan is not representable: in progress if and only if there is a lease. One constraint and no more: the
    -- server reads a CHECK's tree anew for each INSERT, and eight of them took 18 of a completion's 46 microseconds.
    CONSTRAINT idempotency_keys_status_check
        CHECK (CASE
                 WHEN status OPERATOR(pg_catalog.=) 'in_progress'
                 THEN claim_token IS NOT NULL AND lease_expires_at IS NOT NULL AND response_status IS NULL
                 ELSE claim_token IS NULL AND lease_expires_at IS NULL AND response_status IS NOT NULL
               END)
);

-- For the purge: oldest first, and each batch begins where the last one ended (docs/design.md has the price). No two
-- times are equal, so there is nothing to deduplicate.
CREATE INDEX idempotency_keys_expires_at_idx ON @extschema@.idempotency_keys (expires_at)
    WITH (deduplicate_items = off);

REVOKE ALL ON TABLE @extschema@.idempotency_keys FROM PUBLIC;

-- pg_dump carries the rows of an extension's table only where this says so
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_keys', '');

-- ---------------------------------------------------------------------------
-- The registry: which operations are idempotent, which role may act for which tenant, what a tenant may take up.
-- Each backend keeps a copy; the triggers tell it of a change, by whatever statement (src/pg/registry.cpp). Of rows, since
-- logical replication fires no other triggers.
-- ---------------------------------------------------------------------------
CREATE TABLE @extschema@.idempotency_operations (
    method         text COLLATE "C" NOT NULL,
    path_pattern   text COLLATE "C" NOT NULL,
    key_required   boolean NOT NULL,
    retention      interval,
    leased         boolean NOT NULL,
    lease          interval,
    ignored_fields text[] NOT NULL,
    statuses       jsonb,
    CONSTRAINT idempotency_operations_pkey PRIMARY KEY (method, path_pattern),
    CONSTRAINT idempotency_operations_method_check
        CHECK (method OPERATOR(pg_catalog.=) pg_catalog.upper(method)),
    CONSTRAINT idempotency_operations_path_pattern_check
        CHECK (pg_catalog.left(path_pattern, 1) OPERATOR(pg_catalog.=) '/'),
    CONSTRAINT idempotency_operations_retention_check
        CHECK (retention OPERATOR(pg_catalog.>=) '24 hours' AND retention OPERATOR(pg_catalog.<=) '7 days'),
    CONSTRAINT idempotency_operations_lease_check
        CHECK (lease IS NULL
               OR (leased AND lease OPERATOR(pg_catalog.>=) '1 second' AND lease OPERATOR(pg_catalog.<=) '24 hours'))
);

-- {id} and {payment} are one operation
CREATE UNIQUE INDEX idempotency_operations_shape_key ON @extschema@.idempotency_operations
    (method, (pg_catalog.regexp_replace(path_pattern, '\{[^/]*\}', '{}', 'g')));

CREATE TABLE @extschema@.idempotency_tenants (
    role      regrole NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    CONSTRAINT idempotency_tenants_pkey PRIMARY KEY (role, tenant_id)
);

REVOKE ALL ON TABLE @extschema@.idempotency_operations, @extschema@.idempotency_tenants FROM PUBLIC;

SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_operations', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_tenants', '');

CREATE FUNCTION @extschema@.idem_registry_changed()
RETURNS trigger
AS 'MODULE_PATHNAME', 'idem_registry_changed'
LANGUAGE C;

-- _replicated: logical replication fires triggers of rows, and of statements for TRUNCATE alone
CREATE TRIGGER idempotency_operations_changed
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON @extschema@.idempotency_operations
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_registry_changed();
ALTER TABLE @extschema@.idempotency_operations ENABLE ALWAYS TRIGGER idempotency_operations_changed;
CREATE TRIGGER idempotency_operations_replicated
    AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idempotency_operations
    FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_registry_changed();
ALTER TABLE @extschema@.idempotency_operations ENABLE REPLICA TRIGGER idempotency_operations_replicated;
CREATE TRIGGER idempotency_tenants_changed
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON @extschema@.idempotency_tenants
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_registry_changed();
ALTER TABLE @extschema@.idempotency_tenants ENABLE ALWAYS TRIGGER idempotency_tenants_changed;
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

-- ---------------------------------------------------------------------------
-- Result types
-- ---------------------------------------------------------------------------
CREATE TYPE @extschema@.idem_claim_result AS (
    outcome  text,
    attempt  integer,
    token    uuid,
    status   integer,
    headers  jsonb,
    body     jsonb,
    raw_body bytea,
    checkpoint       text,
    checkpoint_state jsonb
);

CREATE TYPE @extschema@.idem_response AS (
    status   integer,
    headers  jsonb,
    body     jsonb,
    raw_body bytea
);

CREATE TYPE @extschema@.idem_execute_result AS (
    outcome  text,
    attempt  integer,
    status   integer,
    headers  jsonb,
    body     jsonb,
    raw_body bytea
);

CREATE TYPE @extschema@.idem_key_info AS (
    state             text,
    attempt           integer,
    response_status   integer,
    response_headers  jsonb,
    response_body     jsonb,
    response_raw_body bytea,
    lease_expires_at  timestamp with time zone,
    created_at        timestamp with time zone,
    completed_at      timestamp with time zone,
    expires_at        timestamp with time zone,
    checkpoint        text,
    checkpoint_state  jsonb
);

-- ---------------------------------------------------------------------------
-- Claim, complete, release, look up
-- ---------------------------------------------------------------------------
CREATE FUNCTION @extschema@.idem_claim(
    tenant   text,
    key      text,
    method   text,
    path     text,
    body     jsonb DEFAULT NULL,
    raw_body bytea DEFAULT NULL,
    lease    interval DEFAULT NULL)
RETURNS @extschema@.idem_claim_result
AS 'MODULE_PATHNAME', 'idem_claim'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.idem_complete(
    tenant   text,
    key      text,
    status   integer,
    body     jsonb DEFAULT NULL,
    headers  jsonb DEFAULT NULL,
    raw_body bytea DEFAULT NULL,
    token    uuid DEFAULT NULL,
    undone   boolean DEFAULT false)
RETURNS text
AS 'MODULE_PATHNAME', 'idem_complete'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.idem_release(
    tenant text,
    key    text,
    token  uuid DEFAULT NULL,
    undone boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME', 'idem_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.idem_renew(
    tenant text,
    key    text,
    token  uuid,
    lease  interval DEFAULT NULL)
RETURNS timestamp with time zone
AS 'MODULE_PATHNAME', 'idem_renew'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.idem_checkpoint(
    tenant text,
    key    text,
    token  uuid,
    name   text,
    state  jsonb DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'idem_checkpoint'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.idem_lookup(
    tenant text,
    key    text)
RETURNS SETOF @extschema@.idem_key_info
AS 'MODULE_PATHNAME', 'idem_lookup'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;

-- ---------------------------------------------------------------------------
-- Claim, handler and completion in one call; the same for a request that is in PostgREST's settings
-- ---------------------------------------------------------------------------
CREATE FUNCTION @extschema@.idem_execute(
    tenant   text,
    key      text,
    method   text,
    path     text,
    body     jsonb,
    handler  regprocedure,
    raw_body bytea DEFAULT NULL)
RETURNS @extschema@.idem_execute_result
AS 'MODULE_PATHNAME', 'idem_execute'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.idem_http(
    handler  regprocedure,
    body     jsonb DEFAULT NULL,
    raw_body bytea DEFAULT NULL)
RETURNS jsonb
AS 'MODULE_PATHNAME', 'idem_http'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

-- ---------------------------------------------------------------------------
-- The registry of operations; tenants bound to roles
-- ---------------------------------------------------------------------------
CREATE FUNCTION @extschema@.idem_allow(
    method       text,
    path_pattern text,
    key_required boolean DEFAULT true,
    retention    interval DEFAULT NULL,
    lease        interval DEFAULT NULL,
    ignore       text[] DEFAULT '{}',
    leased       boolean DEFAULT NULL,
    statuses     jsonb DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'idem_allow'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.idem_disallow(
    method       text,
    path_pattern text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'idem_disallow'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.idem_bind_tenant(
    role   regrole,
    tenant text)
RETURNS void
AS 'MODULE_PATHNAME', 'idem_bind_tenant'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.idem_unbind_tenant(
    role   regrole,
    tenant text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'idem_unbind_tenant'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

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

-- ---------------------------------------------------------------------------
-- Retention: the purge, and erasure
-- A procedure with SET or SECURITY DEFINER can't commit; this one needs neither.
-- ---------------------------------------------------------------------------
CREATE PROCEDURE @extschema@.idem_purge(
    batch       integer DEFAULT 100,
    max_batches integer DEFAULT NULL)
AS 'MODULE_PATHNAME', 'idem_purge'
LANGUAGE C;

CREATE FUNCTION @extschema@.idem_forget(
    tenant text,
    key    text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'idem_forget'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.idem_forget(
    tenant text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'idem_forget'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

-- The job runs as the role that schedules it. Nothing of the input becomes SQL: names go through quoting or parameters.
CREATE FUNCTION @extschema@.idem_schedule_purge(
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

CREATE FUNCTION @extschema@.idem_unschedule_purge(
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

-- ---------------------------------------------------------------------------
-- Seeing in: status, who holds what, counters
-- ---------------------------------------------------------------------------
CREATE FUNCTION @extschema@.idem_key_lock(
    tenant text,
    key    text)
RETURNS text
AS 'MODULE_PATHNAME', 'idem_key_lock'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE VIEW @extschema@.idempotency_status AS
SELECT k.tenant_id,
       k.status,
       pg_catalog.count(*) AS keys,
       pg_catalog.count(*) FILTER (WHERE k.gone) AS expired,
       pg_catalog.min(k.expires_at) FILTER (WHERE k.gone) AS oldest_expired,
       pg_catalog.min(k.lease_expires_at) AS oldest_lease,
       pg_catalog.count(*) FILTER (WHERE k.lease_expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()) AS leases_run_out,
       pg_catalog.pg_table_size('@extschema@.idempotency_keys') AS table_bytes,
       pg_catalog.pg_indexes_size('@extschema@.idempotency_keys') AS index_bytes
  FROM (SELECT tenant_id, status, expires_at, lease_expires_at,
               expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
               AND (lease_expires_at IS NULL OR lease_expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()) AS gone
          FROM @extschema@.idempotency_keys) AS k
 GROUP BY k.tenant_id, k.status;

-- A lock knows its key by hash only; the key of a lease is in its row. idem_key_lock() gives the hash of a key.
CREATE VIEW @extschema@.idempotency_in_flight AS
WITH locks AS (
    SELECT pg_catalog.lpad(pg_catalog.to_hex(l.classid::bigint), 8, '0')
           OPERATOR(pg_catalog.||) pg_catalog.lpad(pg_catalog.to_hex(l.objid::bigint), 8, '0') AS key_lock,
           l.pid, l.virtualtransaction
      FROM pg_catalog.pg_locks AS l
     WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.objsubid OPERATOR(pg_catalog.=) 26980 AND l.granted
       AND l.database OPERATOR(pg_catalog.=)
           (SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
), prepared AS (
    SELECT l.virtualtransaction, p.gid, p.prepared, p.owner
      FROM pg_catalog.pg_prepared_xacts AS p
      JOIN pg_catalog.pg_locks AS l ON l.transactionid OPERATOR(pg_catalog.=) p.transaction
     WHERE l.pid IS NULL AND l.locktype OPERATOR(pg_catalog.=) 'transactionid'
), holders AS (
    SELECT k.key_lock, k.pid, p.gid, COALESCE(a.usename, p.owner) AS role, COALESCE(a.xact_start, p.prepared) AS since
      FROM locks AS k
      LEFT JOIN prepared AS p ON k.pid IS NULL AND p.virtualtransaction OPERATOR(pg_catalog.=) k.virtualtransaction
      LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) k.pid
), leases AS (
    SELECT @extschema@.idem_key_lock(tenant_id, key) AS key_lock, tenant_id, key, attempt, lease_expires_at, lease, checkpoint
      FROM @extschema@.idempotency_keys
     WHERE status OPERATOR(pg_catalog.=) 'in_progress'
)
SELECT COALESCE(h.key_lock, l.key_lock) AS key_lock,
       CASE WHEN h.gid IS NOT NULL THEN 'prepared transaction'
            WHEN h.key_lock IS NOT NULL THEN 'transaction'
            WHEN l.lease_expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() THEN 'lease'
            ELSE 'lease that ran out' END AS held_by,
       l.tenant_id,
       l.key,
       h.pid,
       h.gid,
       h.role,
       COALESCE(h.since, l.lease_expires_at OPERATOR(pg_catalog.-) l.lease) AS since,
       pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-)
           COALESCE(h.since, l.lease_expires_at OPERATOR(pg_catalog.-) l.lease) AS age,
       l.attempt,
       l.lease_expires_at,
       l.checkpoint
  FROM holders AS h FULL JOIN leases AS l ON h.key_lock OPERATOR(pg_catalog.=) l.key_lock;

REVOKE ALL ON TABLE @extschema@.idempotency_status, @extschema@.idempotency_in_flight FROM PUBLIC;

-- ---------------------------------------------------------------------------
-- Counters
-- ---------------------------------------------------------------------------
CREATE FUNCTION @extschema@.idem_counters(
    OUT scope       text,
    OUT since       timestamp with time zone,
    OUT claims      bigint,
    OUT replays     bigint,
    OUT conflicts   bigint,
    OUT mismatches  bigint,
    OUT rejections  bigint,
    OUT bypasses    bigint,
    OUT take_overs  bigint,
    OUT completions bigint,
    OUT releases    bigint,
    OUT purged      bigint)
AS 'MODULE_PATHNAME', 'idem_counters'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;

-- ---------------------------------------------------------------------------
-- Pure functions: canonical JSON, fingerprint, header syntax
-- ---------------------------------------------------------------------------
CREATE FUNCTION @extschema@.idem_canonical(
    body   jsonb,
    ignore text[] DEFAULT '{}',
    strict boolean DEFAULT false)
RETURNS text
AS 'MODULE_PATHNAME', 'idem_canonical'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION @extschema@.idem_fingerprint(
    method   text,
    path     text,
    body     jsonb DEFAULT NULL,
    raw_body bytea DEFAULT NULL,
    ignore   text[] DEFAULT '{}')
RETURNS bytea
AS 'MODULE_PATHNAME', 'idem_fingerprint'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION @extschema@.idem_key_from_header(
    header text)
RETURNS text
AS 'MODULE_PATHNAME', 'idem_key_from_header'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION @extschema@.idem_derive_key(
    tenant text,
    key    text,
    step   text)
RETURNS text
AS 'MODULE_PATHNAME', 'idem_derive_key'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

-- A key is somebody's payment: nothing that reads or changes keys is for PUBLIC.
REVOKE ALL ON FUNCTION @extschema@.idem_claim(text, text, text, text, jsonb, bytea, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_complete(text, text, integer, jsonb, jsonb, bytea, uuid, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_release(text, text, uuid, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_renew(text, text, uuid, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_checkpoint(text, text, uuid, text, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_execute(text, text, text, text, jsonb, regprocedure, bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_http(regprocedure, jsonb, bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_lookup(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_allow(text, text, boolean, interval, interval, text[], boolean, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_disallow(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_bind_tenant(regrole, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_unbind_tenant(regrole, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_limit_tenant(text, integer, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_unlimit_tenant(text) FROM PUBLIC;
REVOKE ALL ON PROCEDURE @extschema@.idem_purge(integer, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_forget(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_forget(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_schedule_purge(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_unschedule_purge(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_key_lock(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_counters() FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_registry_changed() FROM PUBLIC;

-- Whoever has made default privileges (ALTER DEFAULT PRIVILEGES) for objects of his own did not mean these: rights on keys are granted
-- by name. PUBLIC has been dealt with above.
DO $revoke$
DECLARE
    given record;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    FOR given IN
        SELECT o.kind, o.name, r.rolname
          FROM (SELECT 'TABLE' AS kind, c.oid::regclass::text AS name, c.relowner AS owner, c.relacl AS acl, 'pg_class'::regclass AS catalog, c.oid
                  FROM pg_class AS c
                UNION ALL
                SELECT 'ROUTINE', p.oid::regprocedure::text, p.proowner, p.proacl, 'pg_proc'::regclass, p.oid FROM pg_proc AS p) AS o
          JOIN pg_depend AS d ON d.classid = o.catalog AND d.objid = o.oid AND d.objsubid = 0 AND d.deptype = 'e'
          JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'idempotency'
          CROSS JOIN LATERAL aclexplode(o.acl) AS a
          JOIN pg_roles AS r ON r.oid = a.grantee
         WHERE a.grantee <> o.owner
         GROUP BY o.kind, o.name, r.rolname
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %I', given.kind, given.name, given.rolname);
    END LOOP;
END
$revoke$;

-- ---------------------------------------------------------------------------
-- What each object is
-- ---------------------------------------------------------------------------
COMMENT ON TABLE @extschema@.idempotency_keys IS
    'One row for each idempotency key whose run has ended, with the response that a retry is answered with, or is leased.';
COMMENT ON COLUMN @extschema@.idempotency_keys.tenant_id IS
    'Scope of the key, 1 to 256 bytes, compared byte by byte.';
COMMENT ON COLUMN @extschema@.idempotency_keys.key IS
    'What the client chose: 16 to 256 visible ASCII characters.';
COMMENT ON COLUMN @extschema@.idempotency_keys.request_hash IS
    'SHA-256 of method, path and canonical body (see idem_fingerprint), or that under a secret: 32 bytes.';
COMMENT ON COLUMN @extschema@.idempotency_keys.status IS
    'completed: replayed to retries. failed_retryable: the next claim runs again. in_progress: a live or lost lease.';
COMMENT ON COLUMN @extschema@.idempotency_keys.response_status IS
    'HTTP status of the response, 200 to 599.';
COMMENT ON COLUMN @extschema@.idempotency_keys.response_headers IS
    'Header fields of the response: an object of strings and arrays of strings.';
COMMENT ON COLUMN @extschema@.idempotency_keys.response_body IS
    'JSON body of the response; null where it had none or came as bytes.';
COMMENT ON COLUMN @extschema@.idempotency_keys.response_raw_body IS
    'Body of the response as bytes; null where it had none or came as JSON.';
COMMENT ON COLUMN @extschema@.idempotency_keys.attempt IS
    'Which run this row is of, from 1.';
COMMENT ON COLUMN @extschema@.idempotency_keys.claim_token IS
    'Fencing token of the lease; null unless in_progress.';
COMMENT ON COLUMN @extschema@.idempotency_keys.lease_expires_at IS
    'When the lease runs out; null unless in_progress.';
COMMENT ON COLUMN @extschema@.idempotency_keys.created_at IS
    'When this run claimed the key.';
COMMENT ON COLUMN @extschema@.idempotency_keys.completed_at IS
    'When the response was stored.';
COMMENT ON COLUMN @extschema@.idempotency_keys.expires_at IS
    'From then on the key is a new key, purged or not.';
COMMENT ON COLUMN @extschema@.idempotency_keys.fingerprint_version IS
    'How request_hash was computed. 1: SHA-256. 2: HMAC-SHA-256 with a secret of idempotency.fingerprint_secret_file.';
COMMENT ON COLUMN @extschema@.idempotency_keys.ignored_fields IS
    'JSON pointers (RFC 6901) that request_hash leaves out; null means /timestamp, /request_id and /trace_id.';
COMMENT ON COLUMN @extschema@.idempotency_keys.lease IS
    'How long the lease was granted for; null unless in_progress.';
COMMENT ON COLUMN @extschema@.idempotency_keys.checkpoint IS
    'How far the leased run has come, by the name that idem_checkpoint() was given.';
COMMENT ON COLUMN @extschema@.idempotency_keys.checkpoint_state IS
    'What the next run needs to go on from the checkpoint.';

COMMENT ON TABLE @extschema@.idempotency_operations IS
    'The idempotent operations, each with its policy; empty: every request but GET, HEAD, OPTIONS, TRACE and PUT. See idem_allow().';
COMMENT ON COLUMN @extschema@.idempotency_operations.method IS
    'HTTP method, in upper case.';
COMMENT ON COLUMN @extschema@.idempotency_operations.path_pattern IS
    'Literal segments, {name} for one segment, a closing /** for any number of them.';
COMMENT ON COLUMN @extschema@.idempotency_operations.key_required IS
    'Whether a request without a key is rejected; else it bypasses.';
COMMENT ON COLUMN @extschema@.idempotency_operations.retention IS
    'How long a key is kept; null: idempotency.default_retention.';
COMMENT ON COLUMN @extschema@.idempotency_operations.leased IS
    'Whether a claim is a lease without asking for one.';
COMMENT ON COLUMN @extschema@.idempotency_operations.lease IS
    'How long that lease is; null: idempotency.default_lease.';
COMMENT ON COLUMN @extschema@.idempotency_operations.ignored_fields IS
    'JSON pointers (RFC 6901) that the fingerprint leaves out, besides idempotency.ignored_fields.';

COMMENT ON COLUMN @extschema@.idempotency_operations.statuses IS
    'HTTP statuses that a handler''s errors become, by SQLSTATE or class; null: the built-in ones.';

COMMENT ON TABLE @extschema@.idempotency_tenants IS
    'The tenants that a role is bound to, see idem_bind_tenant(); a role that is not listed may name any tenant.';
COMMENT ON COLUMN @extschema@.idempotency_tenants.role IS
    'The role; it binds its members too.';
COMMENT ON COLUMN @extschema@.idempotency_tenants.tenant_id IS
    'A tenant that the role may act for.';

COMMENT ON TABLE @extschema@.idempotency_limits IS
    'What a tenant may take up, see idem_limit_tenant().';
COMMENT ON COLUMN @extschema@.idempotency_limits.tenant_id IS
    'The tenant; null: all that have no row of their own.';
COMMENT ON COLUMN @extschema@.idempotency_limits.max_keys IS
    'How many keys it may have stored, expired ones included; null: no limit.';
COMMENT ON COLUMN @extschema@.idempotency_limits.max_in_flight IS
    'How many keys its transactions may hold at a time; null: no limit.';

COMMENT ON TYPE @extschema@.idem_claim_result IS
    'What idem_claim() answers: the outcome and, unless it is claimed or bypass, the complete HTTP answer.';
COMMENT ON COLUMN @extschema@.idem_claim_result.outcome IS
    'claimed, replay, in_progress, mismatch, rejected or bypass.';
COMMENT ON COLUMN @extschema@.idem_claim_result.attempt IS
    'claimed: which run this is, from 1. replay: which run is replayed. Else null.';
COMMENT ON COLUMN @extschema@.idem_claim_result.token IS
    'Fencing token of a leased claim; else null.';
COMMENT ON COLUMN @extschema@.idem_claim_result.status IS
    'HTTP status to answer; null for claimed and bypass.';
COMMENT ON COLUMN @extschema@.idem_claim_result.headers IS
    'HTTP header fields to answer: an object of strings and arrays of strings.';
COMMENT ON COLUMN @extschema@.idem_claim_result.body IS
    'JSON body to answer; null where there is none or it is in raw_body.';
COMMENT ON COLUMN @extschema@.idem_claim_result.raw_body IS
    'Body to answer as bytes, as it was given to idem_complete().';
COMMENT ON COLUMN @extschema@.idem_claim_result.checkpoint IS
    'claimed: the last checkpoint of the run that this one takes over from; else null.';
COMMENT ON COLUMN @extschema@.idem_claim_result.checkpoint_state IS
    'claimed: what that run had stored with its checkpoint.';

COMMENT ON TYPE @extschema@.idem_response IS
    'What a handler may return: the complete HTTP answer.';
COMMENT ON COLUMN @extschema@.idem_response.status IS
    'HTTP status, 200 to 599. 401, 403, 408, 425, 429 and 5xx undo what the handler did.';
COMMENT ON COLUMN @extschema@.idem_response.headers IS
    'HTTP header fields: an object of strings and arrays of strings; null for none.';
COMMENT ON COLUMN @extschema@.idem_response.body IS
    'JSON body; null where there is none or it is in raw_body.';
COMMENT ON COLUMN @extschema@.idem_response.raw_body IS
    'Body as bytes; null where there is none or it is in body.';

COMMENT ON TYPE @extschema@.idem_execute_result IS
    'What idem_execute() answers: the complete HTTP answer, and how it came about.';
COMMENT ON COLUMN @extschema@.idem_execute_result.outcome IS
    'completed, failed_retryable or released: the handler ran. replay, in_progress, mismatch or rejected: it did not. bypass: it ran without a key.';
COMMENT ON COLUMN @extschema@.idem_execute_result.attempt IS
    'Which run this is, or which is replayed, from 1; else null.';
COMMENT ON COLUMN @extschema@.idem_execute_result.status IS
    'HTTP status to answer.';
COMMENT ON COLUMN @extschema@.idem_execute_result.headers IS
    'HTTP header fields to answer: an object of strings and arrays of strings.';
COMMENT ON COLUMN @extschema@.idem_execute_result.body IS
    'JSON body to answer; null where there is none or it is in raw_body.';
COMMENT ON COLUMN @extschema@.idem_execute_result.raw_body IS
    'Body to answer as bytes.';

COMMENT ON TYPE @extschema@.idem_key_info IS
    'What idem_lookup() knows of a key.';
COMMENT ON COLUMN @extschema@.idem_key_info.state IS
    'in_progress (held by a transaction or a lease), lease_expired, completed, failed_retryable or expired.';
COMMENT ON COLUMN @extschema@.idem_key_info.attempt IS
    'Which run the response is of, from 1.';
COMMENT ON COLUMN @extschema@.idem_key_info.response_status IS
    'HTTP status of the stored response.';
COMMENT ON COLUMN @extschema@.idem_key_info.response_headers IS
    'Header fields of the stored response.';
COMMENT ON COLUMN @extschema@.idem_key_info.response_body IS
    'JSON body of the stored response.';
COMMENT ON COLUMN @extschema@.idem_key_info.response_raw_body IS
    'Body of the stored response as bytes.';
COMMENT ON COLUMN @extschema@.idem_key_info.lease_expires_at IS
    'When the lease runs out.';
COMMENT ON COLUMN @extschema@.idem_key_info.created_at IS
    'When the stored run claimed the key.';
COMMENT ON COLUMN @extschema@.idem_key_info.completed_at IS
    'When the response was stored.';
COMMENT ON COLUMN @extschema@.idem_key_info.expires_at IS
    'From then on the key is a new key.';

COMMENT ON COLUMN @extschema@.idem_key_info.checkpoint IS
    'How far the leased run has come.';
COMMENT ON COLUMN @extschema@.idem_key_info.checkpoint_state IS
    'What was stored with the checkpoint.';

COMMENT ON FUNCTION @extschema@.idem_claim(text, text, text, text, jsonb, bytea, interval) IS
    'Claims the right to run a request once, for the length of the transaction or of a lease, or says what to answer instead. Never waits.';
COMMENT ON FUNCTION @extschema@.idem_complete(text, text, integer, jsonb, jsonb, bytea, uuid, boolean) IS
    'Stores the response of a claimed request, in the transaction that did its work; says completed or failed_retryable.';
COMMENT ON FUNCTION @extschema@.idem_release(text, text, uuid, boolean) IS
    'Gives a claim up and stores nothing; refused once the transaction has written, unless undone => true.';
COMMENT ON FUNCTION @extschema@.idem_renew(text, text, uuid, interval) IS
    'Prolongs the lease that the token holds, counted from now; says when it runs out. Commit it at once.';
COMMENT ON FUNCTION @extschema@.idem_checkpoint(text, text, uuid, text, jsonb) IS
    'Notes how far a leased run has come, in the transaction that did the step; the run that takes over is told.';
COMMENT ON FUNCTION @extschema@.idem_derive_key(text, text, text) IS
    'A key to send to another system for one step of a request: UUIDv5 (RFC 9562) of tenant, key and step, the same in each run.';
COMMENT ON FUNCTION @extschema@.idem_execute(text, text, text, text, jsonb, regprocedure, bytea) IS
    'Claims, runs the handler with the caller''s rights and completes, in one call; an exception of the handler becomes a stored answer.';
COMMENT ON FUNCTION @extschema@.idem_http(regprocedure, jsonb, bytea) IS
    'idem_execute() of the request that PostgREST has put into settings; answers by response.status, response.headers and its result.';
COMMENT ON FUNCTION @extschema@.idem_lookup(text, text) IS
    'What is known of a key, for support staff; no row for an unknown key. Works on a standby.';
COMMENT ON FUNCTION @extschema@.idem_canonical(jsonb, text[], boolean) IS
    'Canonical JSON text (RFC 8785, with exact numbers unless strict) without the members that the JSON pointers in ignore name.';
COMMENT ON FUNCTION @extschema@.idem_fingerprint(text, text, jsonb, bytea, text[]) IS
    'SHA-256 over method, line feed, path, line feed and canonical body or bytes: 32 bytes.';
COMMENT ON FUNCTION @extschema@.idem_key_from_header(text) IS
    'The key out of an Idempotency-Key field value: an RFC 9651 string, or bare.';
COMMENT ON FUNCTION @extschema@.idem_allow(text, text, boolean, interval, interval, text[], boolean, jsonb) IS
    'Registers an idempotent operation, or replaces its policy. Once one is registered, all others bypass.';
COMMENT ON FUNCTION @extschema@.idem_disallow(text, text) IS
    'Takes an operation off the registry; says whether it was there.';
COMMENT ON FUNCTION @extschema@.idem_bind_tenant(regrole, text) IS
    'Lets a role, and its members, act for this tenant, and for no other that it is not bound to.';
COMMENT ON FUNCTION @extschema@.idem_unbind_tenant(regrole, text) IS
    'Takes a binding back; says whether it was there. A role without any may name every tenant.';
COMMENT ON FUNCTION @extschema@.idem_limit_tenant(text, integer, integer) IS
    'Limits how many keys a tenant may have stored and in flight; beyond that a new key is answered with 429. A null tenant: all without limits of their own.';
COMMENT ON FUNCTION @extschema@.idem_unlimit_tenant(text) IS
    'Takes a tenant''s limits back; says whether it had any.';
COMMENT ON FUNCTION @extschema@.idem_registry_changed() IS
    'Trigger function: tells every session that the registry has changed.';
COMMENT ON FUNCTION @extschema@.idem_counters() IS
    'What happened: in the whole server since its start where the library is preloaded, else in this session.';
COMMENT ON PROCEDURE @extschema@.idem_purge(integer, integer) IS
    'Deletes expired keys, oldest first, in batches that are transactions of their own. Never makes a claim wait.';
COMMENT ON FUNCTION @extschema@.idem_forget(text, text) IS
    'Erases a key and its response; says how many there were. A retry runs again.';
COMMENT ON FUNCTION @extschema@.idem_forget(text) IS
    'Erases all keys and responses of a tenant; says how many there were. Retries run again.';
COMMENT ON FUNCTION @extschema@.idem_schedule_purge(text, text) IS
    'Has pg_cron run idem_purge(), in this database or another one; called again, changes the schedule. Returns the job.';
COMMENT ON FUNCTION @extschema@.idem_unschedule_purge(text) IS
    'Ends the job of idem_schedule_purge(); says whether there was one.';
COMMENT ON FUNCTION @extschema@.idem_key_lock(text, text) IS
    'The lock that stands for a key, as idempotency_in_flight shows it: 16 hexadecimal digits.';
COMMENT ON VIEW @extschema@.idempotency_status IS
    'Keys by tenant and status, what has expired and is not purged, the oldest lease, and sizes. Reads the whole table.';
COMMENT ON VIEW @extschema@.idempotency_in_flight IS
    'Who holds which key now: transactions, prepared ones, and leases.';
