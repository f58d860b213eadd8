-- Retention, and rows that the table itself refuses.
BEGIN;
SELECT plan(8);
CREATE FUNCTION pg_temp.put(status text, hash bytea = sha256(''), response int = 200, token uuid = NULL, lease timestamptz = NULL, body jsonb = NULL, raw bytea = NULL,
                            tenant text = 'acme', key text = 'row-00000000000000001') RETURNS void LANGUAGE sql AS $$
    INSERT INTO idempotency_keys (tenant_id, key, request_hash, status, response_status, response_body, response_raw_body, attempt, claim_token, lease_expires_at,
                                  created_at, completed_at, expires_at, fingerprint_version)
    VALUES (tenant, key, hash, status, response, body, raw, 1, token, lease, now(), CASE WHEN response IS NOT NULL THEN now() END, now() + interval '1 day', 1)
$$;
SELECT throws_ok($$SELECT pg_temp.put('in_progress', response => NULL)$$, '23514', NULL, 'in progress without a lease is not representable');
SELECT throws_ok($$SELECT pg_temp.put('completed', response => NULL)$$, '23514', NULL, 'nor is completed without a response');
SELECT throws_ok($$SELECT pg_temp.put('completed', token => 'a81bc81b-dead-4e5d-abff-90865d1e13b1')$$, '23514', NULL, 'nor completed with a token');
SELECT throws_ok($$SELECT pg_temp.put('completed', tenant => NULL)$$, '23502', NULL, 'nor none');

SELECT lives_ok($$SELECT idem_claim('acme', 'retention-000000001', 'POST', '/p'); SELECT idem_complete('acme', 'retention-000000001', 201)$$, 'a key');
SELECT is(expires_at - created_at, interval '7 days', 'lives for a week') FROM idempotency_keys WHERE key = 'retention-000000001';
SELECT results_eq($$SELECT outcome FROM unnest('{Asia/Tokyo,America/New_York}'::text[]) zone, set_config('timezone', zone, true), idem_claim('acme', 'retention-000000001', 'POST', '/p')$$,
    $$VALUES ('replay'), ('replay')$$, 'in every time zone');
UPDATE idempotency_keys SET expires_at = clock_timestamp() WHERE key = 'retention-000000001';
SELECT is((SELECT attempt FROM idem_claim('acme', 'retention-000000001', 'POST', '/other')), 1, 'and is a new key afterwards');
SELECT * FROM finish();
ROLLBACK;
