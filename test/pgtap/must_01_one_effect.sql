-- MUST 1, 4, 9: one effect for a key; one write; a different payload gets a different answer.
BEGIN;
SELECT plan(19);
CREATE TEMP TABLE payments (id serial, amount int);

-- A payment as an application writes it.
CREATE FUNCTION pg_temp.pay(key text, amount int, OUT outcome text, OUT status int, OUT body jsonb) LANGUAGE plpgsql AS $$
DECLARE
    answer idem_claim_result;
BEGIN
    SELECT * INTO answer FROM idem_claim('acme', key, 'POST', '/payments', jsonb_build_object('amount', amount));
    outcome := answer.outcome;
    IF outcome <> 'claimed' THEN
        status := answer.status;
        body := answer.body;
        RETURN;
    END IF;
    INSERT INTO payments (amount) VALUES (pay.amount) RETURNING jsonb_build_object('id', id) INTO body;
    status := 201;
    PERFORM idem_complete('acme', key, status, body);
END $$;

SELECT is((SELECT outcome FROM pg_temp.pay('order-0000000000001', 10)), 'claimed', 'the first request runs');
SELECT is((SELECT outcome FROM pg_temp.pay('order-0000000000001', 10)), 'replay', 'the retry is answered');
SELECT is((SELECT status FROM pg_temp.pay('order-0000000000001', 10)), 201, 'with the same status');
SELECT is((SELECT body FROM pg_temp.pay('order-0000000000001', 10)), '{"id": 1}', 'and the same body');
SELECT is(count(*), 1::bigint, 'and has paid once') FROM payments;
SELECT is((SELECT status FROM pg_temp.pay('order-0000000000001', 11)), 422, 'another amount is 422');
SELECT is((SELECT body ->> 'type' FROM pg_temp.pay('order-0000000000001', 11)), 'urn:idempotency:problem:key-reused', 'as a problem with a stable type');
SELECT is(count(*), 1::bigint, 'and pays nothing') FROM payments;
SELECT is((SELECT outcome FROM pg_temp.pay('order-0000000000002', 10)), 'claimed', 'the same body with another key is another payment');
SELECT is(count(*), 2::bigint, 'and pays') FROM payments;
SELECT is(count(*), 2::bigint, 'two rows for two keys') FROM idempotency_keys WHERE key LIKE 'order-%';

-- on every path: warm plans, a failed run, an expired key
SELECT is((SELECT outcome FROM idem_claim('acme', 'order-0000000000003', 'POST', '/payments', '{"a": 1}')), 'claimed', 'a run that fails');
SELECT is(idem_complete('acme', 'order-0000000000003', 503, undone => true), 'failed_retryable', 'is stored as failed');
SELECT is((SELECT outcome FROM idem_claim('acme', 'order-0000000000003', 'POST', '/payments', '{"a": 2}')), 'mismatch', 'another payload after it is 422 too');
SELECT is((SELECT outcome FROM idem_claim('acme', 'order-0000000000003', 'POST', '/payments', '{"a": 1.0}')), 'claimed', 'the same payload runs again');
SELECT is(idem_complete('acme', 'order-0000000000003', 201), 'completed', 'and completes');
SELECT is((SELECT attempt FROM idem_claim('acme', 'order-0000000000003', 'POST', '/payments', '{"a": 1}')), 2, 'as the second attempt');
SELECT is((SELECT count(*) FROM idempotency_keys WHERE key = 'order-0000000000003'), 1::bigint, 'in one row');
SELECT results_eq($$SELECT outcome FROM generate_series(1, 20), idem_claim('acme', 'order-0000000000003', 'POST', '/payments', '{"a": 2}')$$,
    $$SELECT 'mismatch' FROM generate_series(1, 20)$$, 'twenty times in one plan');
SELECT * FROM finish();
ROLLBACK;
