/* sql/idempotency--0.9.0--1.0.0.sql: limits for a tenant, fingerprints under a secret; nothing of the key table changes */

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
