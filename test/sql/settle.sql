-- idem_complete(), idem_release() and idem_lookup().
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
TRUNCATE idempotency_keys;
\pset expanded on

-- no body, an empty body and JSON null are three things; bytes come back as they were
CREATE FUNCTION pg_temp.run(key text, status int, body jsonb = NULL, headers jsonb = NULL, raw_body bytea = NULL)
RETURNS idem_claim_result LANGUAGE plpgsql AS $$
BEGIN
    IF (idem_claim('acme', key, 'POST', '/p')).outcome = 'claimed' THEN
        PERFORM idem_complete('acme', key, status, body, headers, raw_body);
    END IF;
    RETURN idem_claim('acme', key, 'POST', '/p');
END $$;
SELECT * FROM pg_temp.run('key-no-body-00000001', 204);
SELECT * FROM pg_temp.run('key-json-null-000001', 200, 'null');
SELECT * FROM pg_temp.run('key-empty-bytes-0001', 200, raw_body => '');
SELECT * FROM pg_temp.run('key-bytes-0000000001', 200, raw_body => '\x00ff89504e470d0a1a0a', headers => '{"Content-Type": "image/png"}');
SELECT outcome, raw_body IS NULL AS none, sha256(raw_body) = sha256(decode(repeat('00ff7f80', 500000), 'hex')) AS same
  FROM pg_temp.run('key-bytes-0000000002', 200, raw_body => decode(repeat('00ff7f80', 500000), 'hex'));

-- headers: kept as given but for those of one exchange; names without case
SELECT status, headers FROM pg_temp.run('key-headers-00000001', 201, '{}',
    '{"Location": "/payments/1", "ETag": "\"x\"", "Link": ["<a>", "<b>"], "set-cookie": ["a", "b"], "WWW-Authenticate": "x",
      "AUTHORIZATION": "y", "date": "z", "Connection": "close", "idempotent-replayed": "false", "X-Tab": "a\tb"}');
SET idempotency.dropped_headers = 'X-Secret ,etag';
SELECT headers FROM pg_temp.run('key-headers-00000002', 201, '{}', '{"x-secret": "1", "ETag": "2", "Date": "3"}');
RESET idempotency.dropped_headers;
SELECT headers FROM pg_temp.run('key-headers-00000003', 201, '{}', '{}');

-- which statuses are final
\pset expanded off
SELECT s AS status, (pg_temp.run('key-status-0000000' || s, s)).outcome AS claimed_again
  FROM unnest('{200,201,204,299,302,400,401,404,407,409,410,422,424,426,428,431,451,499}'::int[]) AS s;
SELECT status, count(*) FROM idempotency_keys WHERE key LIKE 'key-status%' GROUP BY status;
-- these tell the client to try again
DO $$
DECLARE
    s int;
BEGIN
    FOREACH s IN ARRAY '{408,425,429,500,502,503,504,599}'::int[] LOOP
        PERFORM idem_claim('acme', 'key-retry-00000000' || s, 'POST', '/p');
        PERFORM idem_complete('acme', 'key-retry-00000000' || s, s, undone => true);
    END LOOP;
END $$;
SELECT response_status, status, attempt FROM idempotency_keys WHERE key LIKE 'key-retry%' ORDER BY 1;

-- the next run of a failed_retryable key: attempt 2, one row; another payload is still 422
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-retry-00000000503', 'POST', '/p', '{"other": true}');
SELECT outcome, attempt FROM idem_claim('acme', 'key-retry-00000000503', 'POST', '/p');
SELECT idem_complete('acme', 'key-retry-00000000503', 201, '{"id": 2}');
COMMIT;
SELECT outcome, attempt, status, body FROM idem_claim('acme', 'key-retry-00000000503', 'POST', '/p');

-- retryable only while nothing is written, or undone
CREATE TEMP TABLE effects (n int);
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-written-00000001', 'POST', '/p');
INSERT INTO effects VALUES (1);
SELECT idem_complete('acme', 'key-written-00000001', 503);
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-written-00000001', 'POST', '/p');
SAVEPOINT work;
INSERT INTO effects VALUES (1);
ROLLBACK TO work;
SELECT idem_complete('acme', 'key-written-00000001', 503, undone => true);
COMMIT;
BEGIN;
SELECT outcome, attempt FROM idem_claim('acme', 'key-written-00000001', 'POST', '/p');
SELECT idem_complete('acme', 'key-written-00000001', 503);
COMMIT;
SELECT count(*) AS effects FROM effects;

-- release: the same rule, and nothing is stored
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-release-00000001', 'POST', '/p');
SELECT idem_release('acme', 'key-release-00000001');
SELECT outcome FROM idem_claim('acme', 'key-release-00000001', 'POST', '/other');
SELECT idem_release('acme', 'key-release-00000001');
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-release-00000001', 'POST', '/p');
INSERT INTO effects VALUES (2);
SELECT idem_release('acme', 'key-release-00000001');
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-release-00000001', 'POST', '/p');
SAVEPOINT work;
INSERT INTO effects VALUES (2);
ROLLBACK TO work;
SELECT idem_release('acme', 'key-release-00000001', undone => true);
COMMIT;
SELECT count(*) AS effects FROM effects;
SELECT count(*) AS stored FROM idempotency_keys WHERE key LIKE 'key-release%';

-- an expired key is a new key, purged or not; completion takes the row's place
UPDATE idempotency_keys SET created_at = now() - interval '8 days', expires_at = now() - interval '1 second'
 WHERE key = 'key-no-body-00000001';
SELECT state FROM idem_lookup('acme', 'key-no-body-00000001');
BEGIN;
SELECT outcome, attempt FROM idem_claim('acme', 'key-no-body-00000001', 'DELETE', '/other', '{"x": 1}');
SELECT idem_complete('acme', 'key-no-body-00000001', 200, '{"new": true}');
COMMIT;
SELECT status, body FROM idem_claim('acme', 'key-no-body-00000001', 'DELETE', '/other', '{"x": 1}');
SELECT count(*), bool_and(expires_at > now()) AS lives FROM idempotency_keys WHERE key = 'key-no-body-00000001';

-- the retention is frozen when the key is claimed
SET idempotency.default_retention = '24h';
SELECT outcome FROM pg_temp.run('key-retention-000001', 200);
SET idempotency.default_retention = '7d';
SELECT outcome FROM pg_temp.run('key-retention-000001', 200);
SELECT expires_at - created_at AS retention FROM idempotency_keys WHERE key = 'key-retention-000001';
SELECT expires_at - created_at AS retention FROM idempotency_keys WHERE key = 'key-headers-00000001';

-- a changed setting does not turn an honest retry into 422
SET idempotency.ignored_fields = '/nonce';
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-ignored-00000001', 'POST', '/p', '{"a": 1, "nonce": 1}');
SELECT idem_complete('acme', 'key-ignored-00000001', 200);
COMMIT;
RESET idempotency.ignored_fields;
SELECT outcome FROM idem_claim('acme', 'key-ignored-00000001', 'POST', '/p', '{"a": 1, "nonce": 2}');
SELECT outcome FROM idem_claim('acme', 'key-ignored-00000001', 'POST', '/p', '{"a": 2, "nonce": 1}');
SELECT outcome FROM idem_claim('acme', 'key-ignored-00000001', 'POST', '/p', '{"a": 1, "nonce": 1, "timestamp": 1}');
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-ignored-00000002', 'POST', '/p', '{"a": 1, "timestamp": 1}');
SELECT idem_complete('acme', 'key-ignored-00000002', 200);
COMMIT;
SET idempotency.ignored_fields = '';
SELECT outcome FROM idem_claim('acme', 'key-ignored-00000002', 'POST', '/p', '{"a": 1, "timestamp": 2}');
SELECT outcome FROM idem_claim('acme', 'key-ignored-00000002', 'POST', '/p', '{"a": 2, "timestamp": 2}');
RESET idempotency.ignored_fields;
SELECT key, fingerprint_version, ignored_fields FROM idempotency_keys WHERE key LIKE 'key-ignored%' ORDER BY key;

-- lookup: nothing known, held, completed
SELECT * FROM idem_lookup('acme', 'key-unknown-00000001');
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-lookup-000000001', 'POST', '/p');
SELECT state, attempt, created_at FROM idem_lookup('acme', 'key-lookup-000000001');
SELECT idem_complete('acme', 'key-lookup-000000001', 201, '{"a": 1}', '{"ETag": "x"}');
SELECT state, attempt, response_status, response_headers, response_body, response_raw_body, lease_expires_at,
       completed_at >= created_at AS ordered FROM idem_lookup('acme', 'key-lookup-000000001');
COMMIT;
SELECT state, attempt, response_status FROM idem_lookup('acme', 'key-retry-00000000500');
