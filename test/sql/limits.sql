-- What one tenant may take up: keys stored, keys in flight. Beyond that a new key is answered with 429, and nothing else changes.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
TRUNCATE idempotency_keys, idempotency_operations, idempotency_limits;
RESET client_min_messages;
CREATE FUNCTION pg_temp.fails(command text, OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command;
    state := 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END $$;
-- claims and completes, or says what is answered
CREATE FUNCTION pg_temp.run(tenant text, n int, status int DEFAULT 201) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer idem_claim_result := idem_claim(tenant, 'key-limits-' || lpad(n::text, 8, '0'), 'POST', '/p');
BEGIN
    IF answer.outcome = 'claimed' THEN
        RETURN answer.outcome || ' ' || idem_complete(tenant, 'key-limits-' || lpad(n::text, 8, '0'), status, undone => true);
    END IF;
    RETURN concat_ws(' ', answer.outcome, answer.status);
END $$;

-- a tenant may store three keys
SELECT idem_limit_tenant('acme', max_keys => 3);
SELECT n, pg_temp.run('acme', n) FROM generate_series(1, 5) AS n;
SELECT outcome, attempt, token, status, headers, body FROM idem_claim('acme', 'key-limits-00000004', 'POST', '/p');
-- what is stored is still answered, in each way; other tenants claim
SELECT pg_temp.run('acme', 2) AS replay, (SELECT outcome FROM idem_claim('acme', 'key-limits-00000002', 'POST', '/other')) AS mismatch, pg_temp.run('globex', 1) AS other;
-- a new limit counts from now on; a run that continues a row needs no room
SELECT idem_limit_tenant('acme', max_keys => 4);
SELECT pg_temp.run('acme', 4, 503), pg_temp.run('acme', 5);
SELECT pg_temp.run('acme', 4, 201), pg_temp.run('acme', 4);
-- a leased claim and idem_execute are limited alike
SELECT outcome, status, token FROM idem_claim('acme', 'key-limits-00000006', 'POST', '/p', lease => '10 s');
CREATE FUNCTION pg_temp.handle(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
SELECT outcome, attempt, status, headers FROM idem_execute('acme', 'key-limits-00000006', 'POST', '/p', '{}', 'pg_temp.handle(jsonb)');
-- what is not covered is not limited
SELECT outcome FROM idem_claim('acme', 'key-limits-00000006', 'GET', '/p');
SELECT idem_unlimit_tenant('acme'), idem_unlimit_tenant('acme');
SELECT pg_temp.run('acme', 6);

-- two in flight: exact, whether held by one transaction or many; a slot goes with its savepoint, a completed claim's with its transaction
SELECT idem_limit_tenant('acme', max_in_flight => 2);
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-limits-00000011', 'POST', '/p');
SAVEPOINT s;
SELECT outcome FROM idem_claim('acme', 'key-limits-00000012', 'POST', '/p');
SELECT outcome, status, headers ->> 'Retry-After' AS retry_after, body ->> 'type' AS type, body ->> 'detail' AS detail
  FROM idem_claim('acme', 'key-limits-00000013', 'POST', '/p');
SELECT pg_temp.run('acme', 1) AS replay, pg_temp.run('globex', 13) AS other;
ROLLBACK TO s;
SELECT outcome FROM idem_claim('acme', 'key-limits-00000013', 'POST', '/p');
SELECT idem_complete('acme', 'key-limits-00000013', 201);
SELECT outcome FROM idem_claim('acme', 'key-limits-00000014', 'POST', '/p');
SELECT idem_complete('acme', 'key-limits-00000011', 201);
COMMIT;
SELECT n, pg_temp.run('acme', n) FROM generate_series(15, 17) AS n;
SELECT n, pg_temp.run('acme', n) FROM generate_series(16, 17) AS n;
SELECT count(*) AS locks_left FROM pg_locks WHERE locktype = 'advisory';
-- what does not end in claimed keeps no slot
BEGIN;
SELECT pg_temp.run('acme', 11) FROM generate_series(1, 5);
SELECT pg_temp.run('acme', 18);
ROLLBACK;

-- null: all tenants without limits of their own; a tenant's own row takes the place of the whole
SELECT idem_unlimit_tenant('acme');
SELECT idem_limit_tenant(NULL, 2, 1);
SELECT idem_limit_tenant('acme');
SELECT * FROM idempotency_limits ORDER BY tenant_id;
SELECT n, pg_temp.run('initech', n), pg_temp.run('acme', 20 + n) FROM generate_series(1, 2) AS n;
SELECT pg_temp.run('initech', 2), pg_temp.run('initech', 3), pg_temp.run('globex', 3);
-- rows changed by hand count too, and so does a transaction that is rolled back
BEGIN;
DELETE FROM idempotency_limits;
SELECT pg_temp.run('initech', 3);
ROLLBACK;
SELECT pg_temp.run('initech', 3);
DELETE FROM idempotency_limits WHERE tenant_id IS NULL;
SELECT pg_temp.run('initech', 3);
SELECT idem_limit_tenant(NULL, 5), idem_unlimit_tenant(NULL), idem_unlimit_tenant(NULL);

-- a large limit is full 1.5 % early, and what is free is handed out without counting each time
SELECT idem_limit_tenant('bulk', 1000);
SELECT count(*) FILTER (WHERE outcome = 'claimed completed') BETWEEN 984 AND 1000 AS up_to_the_limit, count(DISTINCT outcome)
  FROM (SELECT pg_temp.run('bulk', n) AS outcome FROM generate_series(1, 1100) AS n) AS k;

-- errors
SELECT f.* FROM unnest(ARRAY[
    $$SELECT idem_limit_tenant('', 1)$$,
    $$SELECT idem_limit_tenant('acme', 0)$$,
    $$SELECT idem_limit_tenant('acme', -1)$$,
    $$SELECT idem_limit_tenant('acme', max_in_flight => 0)$$,
    $$SELECT idem_limit_tenant('acme', max_in_flight => 10001)$$,
    $$SELECT idem_unlimit_tenant(repeat('t', 257))$$,
    $$INSERT INTO idempotency_limits VALUES ('acme', 1, 10001)$$]) AS command, pg_temp.fails(command) AS f;
TRUNCATE idempotency_keys, idempotency_limits;
