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

REVOKE ALL ON TABLE @extschema@.idempotency_keys FROM PUBLIC;

-- pg_dump carries the rows of an extension's table only where this says so
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_keys', '');

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
    expires_at        timestamp with time zone
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

CREATE FUNCTION @extschema@.idem_lookup(
    tenant text,
    key    text)
RETURNS SETOF @extschema@.idem_key_info
AS 'MODULE_PATHNAME', 'idem_lookup'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;

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

-- A key is somebody's payment: nothing that reads or changes keys is for PUBLIC.
REVOKE ALL ON FUNCTION @extschema@.idem_claim(text, text, text, text, jsonb, bytea, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_complete(text, text, integer, jsonb, jsonb, bytea, uuid, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_release(text, text, uuid, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.idem_lookup(text, text) FROM PUBLIC;

-- ---------------------------------------------------------------------------
-- What each object is
-- ---------------------------------------------------------------------------
COMMENT ON TABLE @extschema@.idempotency_keys IS
    'One row for each idempotency key whose run has ended: the response that a retry is answered with.';
COMMENT ON COLUMN @extschema@.idempotency_keys.tenant_id IS
    'Scope of the key, 1 to 256 bytes, compared byte by byte.';
COMMENT ON COLUMN @extschema@.idempotency_keys.key IS
    'What the client chose: 16 to 256 visible ASCII characters.';
COMMENT ON COLUMN @extschema@.idempotency_keys.request_hash IS
    'SHA-256 of method, path and canonical body (see idem_fingerprint): 32 bytes.';
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
    'How request_hash was computed; 1 is the only version so far.';
COMMENT ON COLUMN @extschema@.idempotency_keys.ignored_fields IS
    'JSON pointers (RFC 6901) that request_hash leaves out; null means /timestamp, /request_id and /trace_id.';

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

COMMENT ON TYPE @extschema@.idem_key_info IS
    'What idem_lookup() knows of a key.';
COMMENT ON COLUMN @extschema@.idem_key_info.state IS
    'in_progress (held by a transaction or a lease), completed, failed_retryable or expired.';
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

COMMENT ON FUNCTION @extschema@.idem_claim(text, text, text, text, jsonb, bytea, interval) IS
    'Claims the right to run a request once, for the length of the transaction, or says what to answer instead. Never waits.';
COMMENT ON FUNCTION @extschema@.idem_complete(text, text, integer, jsonb, jsonb, bytea, uuid, boolean) IS
    'Stores the response of a claimed request, in the transaction that did its work; says completed or failed_retryable.';
COMMENT ON FUNCTION @extschema@.idem_release(text, text, uuid, boolean) IS
    'Gives a claim up and stores nothing; refused once the transaction has written, unless undone => true.';
COMMENT ON FUNCTION @extschema@.idem_lookup(text, text) IS
    'What is known of a key, for support staff; no row for an unknown key. Works on a standby.';
COMMENT ON FUNCTION @extschema@.idem_canonical(jsonb, text[], boolean) IS
    'Canonical JSON text (RFC 8785, with exact numbers unless strict) without the members that the JSON pointers in ignore name.';
COMMENT ON FUNCTION @extschema@.idem_fingerprint(text, text, jsonb, bytea, text[]) IS
    'SHA-256 over method, line feed, path, line feed and canonical body or bytes: 32 bytes.';
COMMENT ON FUNCTION @extschema@.idem_key_from_header(text) IS
    'The key out of an Idempotency-Key field value: an RFC 9651 string, or bare.';
