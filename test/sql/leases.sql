-- Leased claims: for work that can't be one transaction.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
TRUNCATE idempotency_keys;
SET timezone = 'UTC';
CREATE FUNCTION pg_temp.fails(command text, OUT state text, OUT message text, OUT detail text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command;
    state := 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
    detail := regexp_replace(detail, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.0-9]*\+00', '(time)');
END $$;
-- the clock is moved by moving the rows
CREATE FUNCTION pg_temp.lease_runs_out(k text) RETURNS void LANGUAGE sql AS $$
    UPDATE idempotency_keys SET lease_expires_at = clock_timestamp() - interval '1 ms' WHERE key = k $$;
CREATE FUNCTION pg_temp.settle_each_way(k text, t uuid) RETURNS TABLE (call text, state text, message text, detail text)
LANGUAGE sql AS $$
    SELECT c.call, f.*
      FROM (VALUES (1, 'complete', format('SELECT idem_complete(%L, %L, 201, token => %L)', 'acme', k, t)),
                   (2, 'renew', format('SELECT idem_renew(%L, %L, %L, %L)', 'acme', k, t, '1 min')),
                   (3, 'checkpoint', format('SELECT idem_checkpoint(%L, %L, %L, %L)', 'acme', k, t, 'step')),
                   (4, 'release', format('SELECT idem_release(%L, %L, %L)', 'acme', k, t))) AS c (n, call, command),
           pg_temp.fails(c.command) AS f ORDER BY c.n $$;

-- claimed, committed; another claim is told how long; completed in the transaction of the business; replayed
SELECT outcome, attempt, token IS NOT NULL AS has_token, status, checkpoint FROM idem_claim('acme', 'key-leased-000000001', 'POST', '/p', '{"n": 1}', lease => '60 s');
SELECT claim_token AS token FROM idempotency_keys WHERE key = 'key-leased-000000001' \gset
SELECT status, attempt, lease, lease_expires_at - created_at AS granted, response_status, completed_at, expires_at - created_at AS kept FROM idempotency_keys;
SELECT outcome, status, headers, body ->> 'status' AS body, token FROM idem_claim('acme', 'key-leased-000000001', 'POST', '/p', '{"n": 1}');
SELECT outcome FROM idem_claim('acme', 'key-leased-000000001', 'POST', '/p', '{"n": 1}', lease => '1 s');
SELECT outcome FROM idem_claim('acme', 'key-leased-000000001', 'POST', '/p', '{"n": 2}');
SELECT state, attempt, response_status FROM idem_lookup('acme', 'key-leased-000000001');
BEGIN;
CREATE TEMP TABLE effects (n int);
INSERT INTO effects VALUES (1);
SELECT idem_complete('acme', 'key-leased-000000001', 201, '{"id": 1}', '{"Location": "/p/1"}', token => :'token');
COMMIT;
SELECT outcome, attempt, status, headers, body FROM idem_claim('acme', 'key-leased-000000001', 'POST', '/p', '{"n": 1}');
SELECT status, claim_token, lease_expires_at, lease, checkpoint, completed_at IS NOT NULL AS completed FROM idempotency_keys;
SELECT * FROM pg_temp.settle_each_way('key-leased-000000001', :'token');

-- Retry-After: what is left of the lease, rounded up, at least 1, and no more than a whole lease
SELECT outcome FROM idem_claim('acme', 'key-leased-000000002', 'POST', '/p', lease => '60 s');
UPDATE idempotency_keys SET lease_expires_at = clock_timestamp() + interval '1 hour' WHERE key = 'key-leased-000000002';
SELECT headers ->> 'Retry-After' AS after FROM idem_claim('acme', 'key-leased-000000002', 'POST', '/p');
UPDATE idempotency_keys SET lease_expires_at = clock_timestamp() + interval '29.5 s' WHERE key = 'key-leased-000000002';
SELECT headers ->> 'Retry-After' AS after FROM idem_claim('acme', 'key-leased-000000002', 'POST', '/p');
UPDATE idempotency_keys SET lease_expires_at = clock_timestamp() + interval '0.2 s' WHERE key = 'key-leased-000000002';
SELECT headers ->> 'Retry-After' AS after FROM idem_claim('acme', 'key-leased-000000002', 'POST', '/p');

-- the lease runs out: its token is refused from then on, whether or not somebody has taken over
SELECT claim_token AS token FROM idempotency_keys WHERE key = 'key-leased-000000002' \gset
SELECT pg_temp.lease_runs_out('key-leased-000000002');
SELECT state, attempt FROM idem_lookup('acme', 'key-leased-000000002');
SELECT * FROM pg_temp.settle_each_way('key-leased-000000002', :'token');
SELECT outcome FROM idem_claim('acme', 'key-leased-000000002', 'POST', '/other', lease => '60 s');
SELECT outcome, attempt, token <> :'token' AS new_token FROM idem_claim('acme', 'key-leased-000000002', 'POST', '/p', lease => '60 s');
SELECT * FROM pg_temp.settle_each_way('key-leased-000000002', :'token');
SELECT claim_token AS token FROM idempotency_keys WHERE key = 'key-leased-000000002' \gset
SELECT idem_complete('acme', 'key-leased-000000002', 200, token => :'token');
SELECT outcome, attempt, status FROM idem_claim('acme', 'key-leased-000000002', 'POST', '/p');

-- no token, a token where none belongs, the token of another key: three errors
SELECT outcome FROM idem_claim('acme', 'key-leased-000000003', 'POST', '/p', lease => '60 s');
SELECT claim_token AS token FROM idempotency_keys WHERE key = 'key-leased-000000003' \gset
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('acme', 'key-leased-000000003', 200)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_release('acme', 'key-leased-000000003')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('acme', 'key-leased-000000004', 'POST', '/p');
    SELECT idem_complete('acme', 'key-leased-000000004', 200, token => 'a81bc81b-dead-4e5d-abff-90865d1e13b1')$$) f;
SELECT outcome FROM idem_claim('acme', 'key-leased-000000005', 'POST', '/p', lease => '60 s');
SELECT * FROM pg_temp.settle_each_way('key-leased-000000005', :'token');
SELECT * FROM pg_temp.settle_each_way('key-unknown-00000001', :'token');

-- renewed: counted from now, never shorter; the setting where it says nothing
SELECT idem_renew('acme', 'key-leased-000000003', :'token', '1 hour') - clock_timestamp() BETWEEN '59 min' AND '1 hour' AS renewed;
SELECT headers ->> 'Retry-After' AS after FROM idem_claim('acme', 'key-leased-000000003', 'POST', '/p');
SELECT idem_renew('acme', 'key-leased-000000003', :'token', '1 s') - clock_timestamp() BETWEEN '59 min' AND '1 hour' AS not_shorter;
SET idempotency.default_lease = '2h';
SELECT idem_renew('acme', 'key-leased-000000003', :'token', NULL) - clock_timestamp() BETWEEN '119 min' AND '2 hours' AS renewed;
RESET idempotency.default_lease;

-- a lease that is alive outlives the key's own term; its answer is kept for a day at least
UPDATE idempotency_keys SET created_at = now() - interval '7 days', expires_at = now() - interval '1 s' WHERE key = 'key-leased-000000003';
SELECT outcome FROM idem_claim('acme', 'key-leased-000000003', 'POST', '/p');
SELECT state FROM idem_lookup('acme', 'key-leased-000000003');
SELECT idem_complete('acme', 'key-leased-000000003', 200, token => :'token');
SELECT expires_at - completed_at AS kept FROM idempotency_keys WHERE key = 'key-leased-000000003';
-- one that ran out does not
SELECT outcome FROM idem_claim('acme', 'key-leased-000000006', 'POST', '/p', lease => '60 s');
UPDATE idempotency_keys SET expires_at = now() - interval '1 s', lease_expires_at = now() - interval '1 s', checkpoint = 'old' WHERE key = 'key-leased-000000006';
SELECT state FROM idem_lookup('acme', 'key-leased-000000006');
SELECT outcome, attempt, checkpoint FROM idem_claim('acme', 'key-leased-000000006', 'POST', '/other', lease => '60 s');

-- checkpoints: the run that takes over goes on from there
SELECT token FROM idem_claim('acme', 'key-steps-0000000001', 'POST', '/p', lease => '60 s') \gset
SELECT idem_checkpoint('acme', 'key-steps-0000000001', :'token', 'charged', '{"charge": "ch_1"}');
BEGIN;
SELECT idem_checkpoint('acme', 'key-steps-0000000001', :'token', 'mailed');
ROLLBACK;
SELECT state, checkpoint, checkpoint_state FROM idem_lookup('acme', 'key-steps-0000000001');
SELECT pg_temp.lease_runs_out('key-steps-0000000001');
SELECT outcome, attempt, checkpoint, checkpoint_state FROM idem_claim('acme', 'key-steps-0000000001', 'POST', '/p', lease => '60 s');
SELECT claim_token AS token FROM idempotency_keys WHERE key = 'key-steps-0000000001' \gset
-- given up, the first step would be repeated
SELECT f.* FROM pg_temp.fails(format($$SELECT idem_release('acme', 'key-steps-0000000001', %L)$$, :'token')) f;
-- "try again" keeps the checkpoint
SELECT idem_complete('acme', 'key-steps-0000000001', 503, token => :'token');
SELECT status, attempt, claim_token, checkpoint, checkpoint_state FROM idempotency_keys WHERE key = 'key-steps-0000000001';
-- a claim without a lease goes on from it too, and its completion ends it
BEGIN;
SELECT outcome, attempt, token, checkpoint, checkpoint_state FROM idem_claim('acme', 'key-steps-0000000001', 'POST', '/p');
SELECT idem_complete('acme', 'key-steps-0000000001', 500);
COMMIT;
SELECT token AS token, attempt, checkpoint FROM idem_claim('acme', 'key-steps-0000000001', 'POST', '/p', lease => '60 s') \gset
SELECT :attempt AS attempt, :'checkpoint' AS checkpoint;
SELECT idem_complete('acme', 'key-steps-0000000001', 201, token => :'token');
SELECT status, attempt, checkpoint, checkpoint_state FROM idempotency_keys WHERE key = 'key-steps-0000000001';
SELECT f.* FROM pg_temp.fails($$SELECT idem_checkpoint('acme', 'key-steps-0000000001', 'a81bc81b-dead-4e5d-abff-90865d1e13b1', ' ')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_checkpoint('acme', 'key-steps-0000000001', 'a81bc81b-dead-4e5d-abff-90865d1e13b1', repeat('x', 257))$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_checkpoint('acme', 'key-steps-0000000001', 'a81bc81b-dead-4e5d-abff-90865d1e13b1', NULL)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_checkpoint('acme', 'key-steps-0000000001', NULL, 'x')$$) f;
SELECT f.* FROM pg_temp.fails($$SET LOCAL idempotency.max_response_size = '1kB';
    SELECT idem_checkpoint('acme', 'key-steps-0000000001', 'a81bc81b-dead-4e5d-abff-90865d1e13b1', 'x', to_jsonb(repeat('x', 2000)))$$) f;

-- released: nothing is stored, and another payload may come
SELECT token FROM idem_claim('acme', 'key-release-00000001', 'POST', '/p', '{"otp": 1}', lease => '60 s') \gset
BEGIN;
INSERT INTO effects VALUES (2);
SELECT f.* FROM pg_temp.fails(format($$SELECT idem_release('acme', 'key-release-00000001', %L)$$, :'token')) f;
SELECT f.* FROM pg_temp.fails(format($$SELECT idem_complete('acme', 'key-release-00000001', 503, token => %L)$$, :'token')) f;
ROLLBACK;
SELECT idem_release('acme', 'key-release-00000001', :'token');
SELECT count(*) AS stored FROM idempotency_keys WHERE key = 'key-release-00000001';
SELECT outcome, attempt FROM idem_claim('acme', 'key-release-00000001', 'POST', '/p', '{"otp": 2}', lease => '60 s');

-- a claim for the transaction takes over from a lease that ran out; rolled back, nothing has changed
SELECT pg_temp.lease_runs_out('key-release-00000001');
BEGIN;
SELECT outcome, attempt, token FROM idem_claim('acme', 'key-release-00000001', 'POST', '/p', '{"otp": 2}');
ROLLBACK;
SELECT status, attempt FROM idempotency_keys WHERE key = 'key-release-00000001';
BEGIN;
SELECT outcome, attempt, token FROM idem_claim('acme', 'key-release-00000001', 'POST', '/p', '{"otp": 2}');
SELECT idem_complete('acme', 'key-release-00000001', 200);
COMMIT;
SELECT status, attempt, claim_token, lease_expires_at, lease FROM idempotency_keys WHERE key = 'key-release-00000001';

-- within one transaction: no guard at COMMIT, and a savepoint takes the lease with it
BEGIN;
SELECT token FROM idem_claim('acme', 'key-one-transaction1', 'POST', '/p', lease => '60 s') \gset
SELECT outcome FROM idem_claim('acme', 'key-one-transaction1', 'POST', '/p');
SELECT idem_complete('acme', 'key-one-transaction1', 200, token => :'token');
SELECT outcome FROM idem_claim('acme', 'key-one-transaction1', 'POST', '/p');
SAVEPOINT s;
SELECT outcome FROM idem_claim('acme', 'key-savepoint-000001', 'POST', '/p', lease => '60 s');
ROLLBACK TO s;
SELECT outcome FROM idem_claim('acme', 'key-savepoint-000001', 'POST', '/p', lease => '60 s');
COMMIT;
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory';

-- an old snapshot sees the lease, takes it over and completes it
SELECT token FROM idem_claim('acme', 'key-old-snapshot-001', 'POST', '/p', lease => '60 s') \gset
SELECT pg_temp.lease_runs_out('key-old-snapshot-001');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome, attempt FROM idem_claim('acme', 'key-old-snapshot-001', 'POST', '/p', lease => '60 s');
SELECT claim_token AS token FROM idempotency_keys WHERE key = 'key-old-snapshot-001' \gset
SELECT idem_checkpoint('acme', 'key-old-snapshot-001', :'token', 'a');
SELECT idem_complete('acme', 'key-old-snapshot-001', 200, token => :'token');
COMMIT;

-- who may hold how long
SELECT lease, f.* FROM unnest('{0,-1 s,0.999 s,24:00:00.001,25 h,1 mon,-1 mon,178000000 years,-178000000 years}'::text[]) AS lease,
    pg_temp.fails(format($$SELECT idem_claim('acme', 'key-length-000000001', 'POST', '/p', lease => %L)$$, lease)) f;
SELECT lease, outcome FROM unnest('{1 s,24:00:00,1 day,2 days -24:00:00}'::interval[]) WITH ORDINALITY AS l (lease, n),
    idem_claim('acme', 'key-length-00000000' || n, 'POST', '/p', lease => lease);
SELECT f.* FROM pg_temp.fails($$SELECT idem_renew('acme', 'key-length-000000001', NULL, '1 s')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_renew('acme', 'key-length-000000001', 'a81bc81b-dead-4e5d-abff-90865d1e13b1', '0')$$) f;
BEGIN READ ONLY;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('acme', 'key-read-only-000001', 'POST', '/p', lease => '1 s')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_renew('acme', 'key-length-000000001', 'a81bc81b-dead-4e5d-abff-90865d1e13b1', '1 s')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_checkpoint('acme', 'key-length-000000001', 'a81bc81b-dead-4e5d-abff-90865d1e13b1', 'x')$$) f;
COMMIT;

-- derived keys: UUIDv5 of ["tenant","key","step"], whoever computes it
SELECT idem_derive_key('acme', 'order-0000000000001', 'charge'), idem_derive_key('acme', 'order-0000000000001', 'mail'),
       idem_derive_key('a"b', 'key-\0000000000001', U&'\00E9');
SELECT f.* FROM pg_temp.fails($$SELECT idem_derive_key('acme', 'order-0000000000001', '')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_derive_key('acme', 'order-0000000000001', NULL)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_derive_key('', 'order-0000000000001', 'x')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_derive_key('acme', NULL, 'x')$$) f;
TRUNCATE idempotency_keys;
