-- Every error of the extension that one session can bring about, with SQLSTATE, detail and hint.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
TRUNCATE idempotency_keys;
CREATE FUNCTION pg_temp.fails(statement text, OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    state := 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
        detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END $$;
\pset expanded on

-- idem_claim(): the application's mistakes
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim(NULL, 'key-0000000000000001', 'POST', '/p')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('', 'key-0000000000000001', 'POST', '/p')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim(' ', 'key-0000000000000001', 'POST', '/p')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim(repeat('t', 257), 'key-0000000000000001', 'POST', '/p')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000001', NULL, '/p')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000001', '', '/p')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000001', E'POST\n/x', '/p')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000001', repeat('M', 33), '/p')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000001', 'POST', NULL)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000001', 'POST', '')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000001', 'POST', E'/a\n/b')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000001', 'POST', '/p', '{}', '{}')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000001', 'POST', '/p', lease => '999 ms')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000001', 'POST', '/p', lease => '0')$$) f;
BEGIN READ ONLY;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000001', 'POST', '/p')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000001', 200)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_release('t', 'key-0000000000000001')$$) f;
SELECT outcome FROM idem_claim('t', 'key-0000000000000001', 'GET', '/p');
SELECT outcome FROM idem_claim('t', 'short', 'POST', '/p');
SELECT count(*) FROM idem_lookup('t', 'key-0000000000000001');
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory';
COMMIT;

-- idem_complete() and idem_release()
BEGIN;
SELECT outcome FROM idem_claim('t', 'key-0000000000000001', 'POST', '/p');
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete(NULL, 'key-0000000000000001', 200)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', NULL, 200)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000001', NULL)$$) f;
SELECT status, f.state, f.message, f.detail
  FROM unnest('{-1,0,99,100,101,199,600}'::int[]) AS status,
       pg_temp.fails(format($$SELECT idem_complete('t', 'key-0000000000000001', %s)$$, status)) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000001', 200, undone => NULL)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000001', 200, '{}', raw_body => '')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000001', 200, token => 'a81bc81b-dead-4e5d-abff-90865d1e13b1')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_release('t', 'key-0000000000000001', 'a81bc81b-dead-4e5d-abff-90865d1e13b1')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000002', 200)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('T', 'key-0000000000000001', 200)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_release('t', 'key-0000000000000002')$$) f;
SELECT headers, f.* FROM unnest('{"[]","1","null","\"x\"","{\"a\": 1}","{\"a\": null}","{\"a\": {}}","{\"a\": [1]}","{\"a\": [[\"x\"]]}",
                         "{\"a b\": \"x\"}","{\"\": \"x\"}","{\"a\": \"x\\r\\nSet-Cookie: y\"}","{\"a\": [\"x\\n\"]}","{\"a\": \"1\", \"A\": \"2\"}"}'::text[]) AS headers,
       pg_temp.fails(format($$SELECT idem_complete('t', 'key-0000000000000001', 200, headers => %L)$$, headers)) f;
SET LOCAL idempotency.max_response_size = '1kB';
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000001', 200, raw_body => decode(repeat('00', 1025), 'hex'))$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000001', 200, jsonb_build_object('a', repeat('x', 1100)))$$) f;
-- nothing is lost: the claim is still there to be completed, to the limit exactly
SELECT idem_complete('t', 'key-0000000000000001', 200, raw_body => decode(repeat('00', 1024), 'hex'));
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000001', 500)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_release('t', 'key-0000000000000001')$$) f;
COMMIT;
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000001', 200)$$) f;
BEGIN;
SELECT outcome FROM idem_claim('t', 'key-0000000000000002', 'POST', '/p');
SELECT idem_release('t', 'key-0000000000000002');
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000002', 200)$$) f;
COMMIT;

-- "try again" after writes
CREATE TEMP TABLE effects (n int);
BEGIN;
SELECT outcome FROM idem_claim('t', 'key-0000000000000003', 'POST', '/p');
INSERT INTO effects VALUES (1);
SELECT f.* FROM pg_temp.fails($$SELECT idem_complete('t', 'key-0000000000000003', 503)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_release('t', 'key-0000000000000003')$$) f;
ROLLBACK;

-- a trigger that swallows the row is an error, not a success
CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER swallow BEFORE INSERT ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION swallow();
SELECT f.* FROM pg_temp.fails($$DO 'BEGIN PERFORM idem_claim(''t'', ''key-0000000000000004'', ''POST'', ''/p'');
    PERFORM idem_complete(''t'', ''key-0000000000000004'', 200); END'$$) f;
DROP TRIGGER swallow ON idempotency_keys;
DROP FUNCTION swallow;

-- a status that nobody knows, written by hand: no guess
BEGIN;
SELECT idem_claim('t', 'key-0000000000000005', 'POST', '/p') \g (format=unaligned tuples_only)
SELECT idem_complete('t', 'key-0000000000000005', 200);
UPDATE idempotency_keys SET status = 'odd' WHERE key = 'key-0000000000000005';
COMMIT;
SELECT f.* FROM pg_temp.fails($$SELECT idem_claim('t', 'key-0000000000000005', 'POST', '/p')$$) f;
SELECT idem_forget('t', 'key-0000000000000005');

-- a worker that comes back after its run has ended with "try again"
SELECT token FROM idem_claim('t', 'key-0000000000000006', 'POST', '/p', lease => '10 s') \gset
SELECT idem_complete('t', 'key-0000000000000006', 503, token => :'token', undone => true);
SELECT f.state, f.message, f.detail, f.hint FROM pg_temp.fails(format($$SELECT idem_complete('t', 'key-0000000000000006', 201, token => %L)$$, :'token')) f;
SELECT idem_forget('t', 'key-0000000000000006');
-- more statuses than an operation may have
SELECT f.* FROM pg_temp.fails($$SELECT idem_allow('POST', '/p', statuses => (SELECT jsonb_object_agg('P0' || to_char(n, 'FM000'), 400) FROM generate_series(1, 65) n))$$) f;

-- the pure functions
SELECT f.* FROM pg_temp.fails($$SELECT idem_canonical('{}', '{a}')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_canonical('{}', '{""}')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_canonical('{}', '{/a~2}')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_canonical('{}', '{/a,NULL}')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_canonical('{}', NULL)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_canonical('{}', strict => NULL)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_canonical('{}', array_fill('/a'::text, '{65}'))$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_canonical('1e400', strict => true)$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_fingerprint('POST', '/x', '{}', '{}')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_fingerprint(NULL, '/x')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_fingerprint('POST', E'/\x7f')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT idem_key_from_header('"abc')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT * FROM idem_lookup(NULL, 'key')$$) f;
SELECT f.* FROM pg_temp.fails($$SELECT * FROM idem_lookup('t', NULL)$$) f;

-- settings out of range are refused when they are set
-- (17 and later name the unit of the range)
SELECT setting, f.state, regexp_replace(f.message, ' (ms|s|kB)(?=( \.\.|\)))', '', 'g') AS message, f.detail, f.hint
  FROM (VALUES ('default_lease', '999ms'), ('default_lease', '25h'), ('default_retention', '23h'), ('default_retention', '8d'),
               ('retry_after', '0'), ('retry_after', '2h'), ('max_response_size', '0'), ('ignored_fields', 'timestamp'),
               ('ignored_fields', '/a,/b~'), ('ignored_fields', repeat('/a,', 65)), ('unknown', '1')) AS v (setting, value),
       pg_temp.fails(format('SET idempotency.%s = %L', setting, value)) f;
\pset expanded off
SELECT name, boot_val, unit, min_val, max_val FROM pg_settings WHERE name LIKE 'idempotency.%' ORDER BY name;
