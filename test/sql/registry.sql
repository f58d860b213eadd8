-- The registry of operations: what is covered, and by which policy.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
TRUNCATE idempotency_keys, idempotency_operations;
RESET client_min_messages;
CREATE FUNCTION pg_temp.fails(command text, OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command;
    state := 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END $$;
-- what a claim of a new key comes to; nothing stays
CREATE FUNCTION pg_temp.try(method text, path text, key text DEFAULT 'key-try-00000000001') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    answer idem_claim_result;
BEGIN
    answer := idem_claim('acme', key, method, path);
    RAISE EXCEPTION USING ERRCODE = 'XX999', MESSAGE = answer.outcome || CASE WHEN answer.token IS NULL THEN '' ELSE ', leased' END;
EXCEPTION WHEN SQLSTATE 'XX999' THEN
    RETURN SQLERRM;
END $$;

-- empty: all but the methods that are idempotent by nature
SELECT method, pg_temp.try(method, '/payments'), pg_temp.try(method, '/payments', NULL) AS without_key
  FROM unnest('{POST,PATCH,DELETE,post,GET,HEAD,OPTIONS,TRACE,PUT,PURGE}'::text[]) AS method;

-- not empty: what is listed, and nothing else
SELECT idem_allow('POST', '/payments');
SELECT idem_allow('post', '/payments/{id}/refunds/', key_required => false, retention => '2 days', ignore => '{/client/sent_at}');
SELECT idem_allow('PUT', '/accounts/{id}', lease => '90 s');
SELECT idem_allow('DELETE', '/admin/**', leased => true);
SELECT idem_allow('PATCH', '/');
SELECT * FROM idempotency_operations ORDER BY method, path_pattern;
SELECT method, path, pg_temp.try(method, path), pg_temp.try(method, path, NULL) AS without_key
  FROM (VALUES ('POST', '/payments'), ('post', '/payments/'), ('POST', '/payments?x=/y'), ('POST', '/payments/1'), ('POST', '/Payments'),
               ('POST', '/payments/1/refunds'), ('POST', '/payments//refunds'), ('PUT', '/accounts/7'), ('PUT', '/accounts'),
               ('DELETE', '/admin'), ('DELETE', '/admin/a/b'), ('DELETE', '/payments'), ('PATCH', '/'), ('PATCH', '/x'), ('GET', '/payments'))
    AS request (method, path);

-- the policy of the operation: retention, lease, ignored fields on top of the setting's
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-registry-0000001', 'POST', '/payments/1/refunds', '{"amount": 1, "timestamp": 1, "client": {"sent_at": 1, "id": 5}}');
SELECT idem_complete('acme', 'key-registry-0000001', 201);
COMMIT;
SELECT expires_at - created_at AS kept, ignored_fields FROM idempotency_keys WHERE key = 'key-registry-0000001';
SELECT outcome FROM idem_claim('acme', 'key-registry-0000001', 'POST', '/payments/1/refunds', '{"amount": 1, "timestamp": 2, "client": {"sent_at": 9, "id": 5}}');
SELECT outcome FROM idem_claim('acme', 'key-registry-0000001', 'POST', '/payments/1/refunds', '{"amount": 1, "client": {"sent_at": 9, "id": 6}}');
SELECT outcome, token IS NOT NULL AS leased FROM idem_claim('acme', 'key-registry-0000002', 'PUT', '/accounts/7');
SELECT outcome, token IS NOT NULL AS leased FROM idem_claim('acme', 'key-registry-0000003', 'PUT', '/accounts/7', lease => '5 s');
SET idempotency.default_lease = '2min';
SELECT outcome, token IS NOT NULL AS leased FROM idem_claim('acme', 'key-registry-0000004', 'DELETE', '/admin');
RESET idempotency.default_lease;
SELECT key, lease FROM idempotency_keys WHERE lease IS NOT NULL ORDER BY key;

-- a changed list does not turn an honest retry into 422: the row knows what it was made with
SELECT idem_allow('POST', '/payments/{refunded}/refunds', ignore => '{/client/id}');
SELECT path_pattern, key_required, retention, ignored_fields FROM idempotency_operations WHERE path_pattern LIKE '%refunds';
SELECT outcome FROM idem_claim('acme', 'key-registry-0000001', 'POST', '/payments/1/refunds', '{"amount": 1, "timestamp": 2, "client": {"sent_at": 9, "id": 5}}');
SET idempotency.ignored_fields = '/other';
SELECT outcome FROM idem_claim('acme', 'key-registry-0000001', 'POST', '/payments/1/refunds', '{"amount": 1, "timestamp": 2, "client": {"sent_at": 9, "id": 5}}');
SELECT outcome FROM idem_claim('acme', 'key-registry-0000001', 'POST', '/payments/1/refunds', '{"amount": 1, "timestamp": 2, "client": {"sent_at": 9, "id": 6}}');
RESET idempotency.ignored_fields;

-- off the list: bypass; the same shape by another name
SELECT idem_disallow('POST', '/payments/{x}/refunds'), idem_disallow('POST', '/payments/{x}/refunds');
SELECT pg_temp.try('POST', '/payments/1/refunds');

-- at once within the transaction, and gone with it; by whatever statement
BEGIN;
SELECT pg_temp.try('POST', '/orders');
SELECT idem_allow('POST', '/orders');
SELECT pg_temp.try('POST', '/orders');
SAVEPOINT s;
DELETE FROM idempotency_operations WHERE path_pattern = '/orders';
SELECT pg_temp.try('POST', '/orders');
ROLLBACK TO s;
SELECT pg_temp.try('POST', '/orders');
ROLLBACK;
SELECT pg_temp.try('POST', '/orders');
SET session_replication_role = replica;
INSERT INTO idempotency_operations VALUES ('POST', '/orders', true, NULL, false, NULL, '{}');
RESET session_replication_role;
SELECT pg_temp.try('POST', '/orders');
TRUNCATE idempotency_operations;
SELECT pg_temp.try('DELETE', '/orders'), pg_temp.try('PUT', '/accounts/7');

-- bad input
\pset expanded on
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow(NULL, '/a')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('PO ST', '/a')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('POST', NULL)$$) f;
SELECT pattern, f.* FROM unnest('{"",a,//,/a/*,"/{}",/a?b,"/a b"}'::text[]) AS pattern, pg_temp.fails(format($$SELECT idem_allow('POST', %L)$$, pattern)) f;
SELECT f.detail FROM pg_temp.fails($$SELECT idem_allow('POST', '/' || repeat('a', 1024))$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('POST', '/a', key_required => NULL)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('POST', '/a', retention => '23:59:59')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('POST', '/a', retention => '7 days 1 s')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('POST', '/a', lease => '0')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('POST', '/a', lease => '1 min', leased => false)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('POST', '/a', ignore => '{a}')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('POST', '/a', ignore => NULL)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('POST', '/a', ignore => array_fill('/a'::text, '{33}'))$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_disallow('POST', 'a')$$) f;
BEGIN READ ONLY;
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('POST', '/a')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_disallow('POST', '/a')$$) f;
COMMIT;
-- a row that was written by hand, and is no pattern
INSERT INTO idempotency_operations VALUES ('POST', '/a//b', true, NULL, false, NULL, '{}');
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('acme', 'key-registry-0000005', 'POST', '/a')$$) f;
TRUNCATE idempotency_operations, idempotency_keys;
