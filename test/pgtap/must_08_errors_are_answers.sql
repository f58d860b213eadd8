-- MUST 8, 10, 11: which answers are stored; bytes are bytes; nothing leaks.
BEGIN;
SELECT plan(31);

-- "try again" is accepted only where the transaction has written nothing, or has undone it
CREATE FUNCTION pg_temp.claimed(key text) RETURNS text LANGUAGE sql AS $$SELECT outcome FROM idem_claim('acme', key, 'POST', '/p')$$;
SELECT is(pg_temp.claimed('retryable-' || 1000000000 + s), 'claimed', 'a run that ends in ' || s) FROM unnest('{408,425,429,500,599}'::int[]) s;
SELECT throws_ok(format($$SELECT idem_complete('acme', 'retryable-%s', %s)$$, 1000000000 + s, s), 'ID006', NULL, s || ' after writes is refused')
  FROM unnest('{408,425,429,500,599}'::int[]) s;
SELECT throws_ok($$SELECT idem_release('acme', 'retryable-1000000500')$$, 'ID006', NULL, 'and so is a release');
SELECT is(idem_complete('acme', 'retryable-' || 1000000000 + s, s, undone => true), 'failed_retryable', s || ' with undone is stored as retryable')
  FROM unnest('{408,425,429,500,599}'::int[]) s;
SELECT is(pg_temp.claimed('final-' || 1000000000 + s), 'claimed', 'a run that ends in ' || s) FROM unnest('{200,303,400,499}'::int[]) s;
SELECT is(idem_complete('acme', 'final-' || 1000000000 + s, s), 'completed', s || ' is final') FROM unnest('{200,303,400,499}'::int[]) s;

-- bytes
SELECT is(pg_temp.claimed('bytes-0000000000001'), 'claimed', 'an answer in bytes');
SELECT is(idem_complete('acme', 'bytes-0000000000001', 200, raw_body => convert_to('{"z": 1,  "a": 2}', 'UTF8'), headers => '{"content-type": "application/json"}'), 'completed', 'is stored');
SELECT is((SELECT convert_from(raw_body, 'UTF8') FROM idem_claim('acme', 'bytes-0000000000001', 'POST', '/p')), '{"z": 1,  "a": 2}', 'and comes back with its order and blanks');
SELECT is((SELECT headers FROM idem_claim('acme', 'bytes-0000000000001', 'POST', '/p')),
    '{"content-type": "application/json", "Idempotent-Replayed": "true"}', 'and its content type');
SELECT is((SELECT body FROM idem_claim('acme', 'bytes-0000000000001', 'POST', '/p')), NULL, 'and not as JSON besides');

-- reached only through tenant and key
SELECT is((SELECT count(*) FROM idem_lookup('other', 'bytes-0000000000001')), 0::bigint, 'another tenant finds nothing');
SELECT ok(NOT has_function_privilege('public', oid, 'EXECUTE'), proname || ' is not for everybody')
  FROM pg_proc WHERE proname = 'idem_claim';
SELECT * FROM finish();
ROLLBACK;
