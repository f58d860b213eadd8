-- The purge, erasure, and what operators see. What two sessions see is in specs/purge.spec, pg_cron in t/007_purge.pl.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
TRUNCATE idempotency_keys;
RESET client_min_messages;
CREATE FUNCTION pg_temp.fails(command text, OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command;
    state := 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END $$;
-- the time that a purge took is another one each time
CREATE FUNCTION pg_temp.keys(tenant text, prefix text, n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..n LOOP
        PERFORM idem_claim(tenant, prefix || lpad(i::text, 10, '0'), 'POST', '/p');
        PERFORM idem_complete(tenant, prefix || lpad(i::text, 10, '0'), 200, '{"a": 1}');
    END LOOP;
END $$;

-- what has expired goes, oldest first; what lives stays, and so does a lease that is alive
SELECT pg_temp.keys('acme', 'key-live--', 3), pg_temp.keys('acme', 'key-old---', 25);
SELECT outcome FROM idem_claim('acme', 'key-lease-alive-0001', 'POST', '/p', lease => '60 s');
SELECT outcome FROM idem_claim('acme', 'key-lease-out-000001', 'POST', '/p', lease => '60 s');
SELECT outcome FROM idem_claim('acme', 'key-lease-out-000002', 'POST', '/p', lease => '60 s');
UPDATE idempotency_keys SET expires_at = clock_timestamp() - right(key, 2)::int * interval '1 hour' WHERE key LIKE 'key-old%';
UPDATE idempotency_keys SET expires_at = clock_timestamp() - interval '1 min' WHERE key LIKE 'key-lease%1';
UPDATE idempotency_keys SET lease_expires_at = clock_timestamp() - interval '1 min' WHERE key LIKE 'key-lease-out%';
SELECT tenant_id, status, keys, expired, now() - oldest_expired > interval '25 hours' AS a_day_old, oldest_lease IS NOT NULL AS leases, leases_run_out,
       table_bytes > 0 AS has_size, index_bytes > 0 AS has_indexes
  FROM idempotency_status ORDER BY 1, 2;
SELECT key, held_by, attempt, pid, age BETWEEN '0' AND '10 min' AS has_age FROM idempotency_in_flight ORDER BY key;
SET client_min_messages = warning;
CALL idem_purge(batch => 5, max_batches => 2);
SELECT min(key) AS the_youngest_of, max(key) AS the_old_that_are_left, count(*) FROM idempotency_keys WHERE key LIKE 'key-old%';
CALL idem_purge(7);
SELECT key FROM idempotency_keys ORDER BY key;
CALL idem_purge();
DO $$ BEGIN CALL idem_purge(); END $$;
SELECT idem_lookup('acme', 'key-old---0000000001') IS NULL AS gone;
-- whatever the session's isolation level
UPDATE idempotency_keys SET expires_at = now() - interval '1 s' WHERE key = 'key-live--0000000003';
SET default_transaction_isolation = serializable;
CALL idem_purge();
RESET default_transaction_isolation;
SELECT count(*) FROM idempotency_keys WHERE key LIKE 'key-live%';
RESET client_min_messages;

-- not where it can't commit
\set SHOW_CONTEXT never
BEGIN;
CALL idem_purge();
ROLLBACK;
CREATE FUNCTION pg_temp.purges() RETURNS void LANGUAGE plpgsql AS 'BEGIN CALL idem_purge(); END';
SELECT pg_temp.purges();
SELECT 1 AS one \; CALL idem_purge();
\pset expanded on
SELECT f.* FROM pg_temp.fails('CALL idem_purge(0)') f;
SELECT f.* FROM pg_temp.fails('CALL idem_purge(-1)') f;
SELECT f.* FROM pg_temp.fails('CALL idem_purge(100001)') f;
SELECT f.* FROM pg_temp.fails('CALL idem_purge(NULL)') f;
SELECT f.* FROM pg_temp.fails('CALL idem_purge(max_batches => 0)') f;
SET default_transaction_read_only = on;
CALL idem_purge();
RESET default_transaction_read_only;

-- no pg_cron in this server
SELECT state, message, detail, regexp_replace(hint, current_database(), 'here', 'g') AS hint FROM pg_temp.fails('SELECT idem_schedule_purge()') f;
SELECT f.hint FROM pg_temp.fails($$SELECT idem_schedule_purge('*/10 * * * *', 'O''Brien"s')$$) f;
SELECT f.* FROM pg_temp.fails('SELECT idem_schedule_purge(NULL)') f;
SELECT idem_unschedule_purge('elsewhere');

-- erasure: a key, a tenant; a null key is no way to erase a tenant
SELECT pg_temp.keys('globex', 'key-globex', 3);
SELECT idem_forget('globex', 'key-globex0000000001') AS erased, idem_forget('globex', 'key-globex0000000001') AS again, idem_forget('acme', 'key-globex0000000002') AS another_tenants;
SELECT outcome FROM idem_claim('globex', 'key-globex0000000001', 'POST', '/another', lease => '60 s');
SELECT claim_token AS token FROM idempotency_keys WHERE key = 'key-globex0000000001' \gset
SELECT f.* FROM pg_temp.fails($$SELECT idem_forget('globex', NULL)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_forget(NULL)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_forget(' ')$$) f;
SELECT idem_forget('globex') AS erased;
SELECT f.* FROM pg_temp.fails(format($$SELECT idem_complete('globex', 'key-globex0000000001', 200, token => %L)$$, :'token')) f;
SELECT count(*) AS acme FROM idempotency_keys WHERE tenant_id = 'acme';
BEGIN READ ONLY;
SELECT f.* FROM pg_temp.fails($$SELECT idem_forget('acme')$$) f;
COMMIT;
\pset expanded off

-- who holds a key: its transaction, by the lock; a prepared one
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-held-00000000001', 'POST', '/p');
SELECT held_by, pid = pg_backend_pid() AS by_me, role, key_lock = idem_key_lock('acme', 'key-held-00000000001') AS this_key, tenant_id
  FROM idempotency_in_flight WHERE held_by = 'transaction';
SELECT idem_complete('acme', 'key-held-00000000001', 200);
PREPARE TRANSACTION 'held';
SELECT held_by, gid, pid, role FROM idempotency_in_flight WHERE key_lock = idem_key_lock('acme', 'key-held-00000000001');
ROLLBACK PREPARED 'held';
SELECT idem_key_lock('acme', 'order-0000000000001');

-- counters of this session, since the library is not preloaded here
\c -
SELECT scope, since <= clock_timestamp() AS has_begun, claims, replays, conflicts, mismatches, rejections, bypasses, take_overs, completions, releases, purged FROM idem_counters();
SET client_min_messages = warning;
DO $$
BEGIN
    PERFORM idem_claim('acme', 'key-count-0000000001', 'POST', '/p');
    PERFORM idem_claim('acme', 'key-count-0000000001', 'POST', '/p');
    PERFORM idem_complete('acme', 'key-count-0000000001', 200);
    PERFORM idem_claim('acme', 'key-count-0000000001', 'POST', '/p') FROM generate_series(1, 3);
    PERFORM idem_claim('acme', 'key-count-0000000001', 'POST', '/q') FROM generate_series(1, 4);
    PERFORM idem_claim('acme', 'short', 'POST', '/p') FROM generate_series(1, 5);
    PERFORM idem_claim('acme', 'key-count-0000000001', 'GET', '/p') FROM generate_series(1, 6);
    PERFORM idem_claim('acme', 'key-count-0000000002', 'POST', '/p', lease => '60 s');
    PERFORM idem_release('acme', 'key-count-0000000002', claim_token, undone => true) FROM idempotency_keys WHERE key = 'key-count-0000000002';
    PERFORM idem_claim('acme', 'key-count-0000000003', 'POST', '/p', lease => '60 s');
    UPDATE idempotency_keys SET lease_expires_at = now() - interval '1 s' WHERE key = 'key-count-0000000003';
    PERFORM idem_claim('acme', 'key-count-0000000003', 'POST', '/p', lease => '60 s');
    UPDATE idempotency_keys SET expires_at = now() - interval '1 s' WHERE key = 'key-count-0000000001';
END $$;
CALL idem_purge();
SELECT scope, claims, replays, conflicts, mismatches, rejections, bypasses, take_overs, completions, releases, purged FROM idem_counters();
TRUNCATE idempotency_keys;
