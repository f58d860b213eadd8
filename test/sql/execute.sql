-- idem_execute(): claim, handler, completion in one statement. Every statement here is in autocommit.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
TRUNCATE idempotency_keys;
CREATE SCHEMA execute_test;
SET search_path = execute_test, public;
CREATE TABLE paid (n int PRIMARY KEY, note text NOT NULL CHECK (note <> 'bad'), parent int REFERENCES paid);
CREATE FUNCTION pg_temp.fails(command text, OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command;
    state := 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END $$;

CREATE FUNCTION pay(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO paid VALUES ((body ->> 'n')::int, coalesce(body ->> 'note', 'paid'), (body ->> 'parent')::int);
    RETURN jsonb_build_object('paid', body -> 'n');
END $$;
CREATE FUNCTION pay_fully(body jsonb) RETURNS idem_response LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO paid VALUES ((body ->> 'n')::int, 'fully');
    RETURN (coalesce((body ->> 'status')::int, 201), '{"Location": "/payments/1", "Set-Cookie": "s=1", "ETag": ["a", "b"]}'::jsonb, body, NULL)::idem_response;
END $$;
CREATE FUNCTION pay_sql(body jsonb) RETURNS idem_response LANGUAGE sql AS $$
    INSERT INTO paid VALUES ((body ->> 'n')::int, 'sql');
    SELECT 202, NULL::jsonb, NULL::jsonb, '\x00ff'::bytea;
$$;
CREATE FUNCTION pay_bytes(bytea) RETURNS idem_response LANGUAGE sql AS $$ SELECT 200, '{"Content-Type": "text/csv"}'::jsonb, NULL::jsonb, $1 || '\x0a' $$;
-- raises what it is told to, after it has written
CREATE FUNCTION raise(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO paid VALUES (1000, 'undone');
    RAISE EXCEPTION USING ERRCODE = body ->> 'raise', MESSAGE = coalesce(body ->> 'message', 'text 4111-1111'), DETAIL = 'detail 4111-1111', HINT = 'hint 4111-1111';
END $$;

-- runs once; the retry is answered; another body; a handler that takes jsonb and returns jsonb answers 200
SELECT * FROM idem_execute('acme', 'key-exec-00000000001', 'POST', '/payments', '{"n": 1}', 'pay(jsonb)');
SELECT * FROM idem_execute('acme', 'key-exec-00000000001', 'POST', '/payments', '{"n": 1}', 'pay(jsonb)');
SELECT outcome, status, body ->> 'type' AS type FROM idem_execute('acme', 'key-exec-00000000001', 'POST', '/payments', '{"n": 2}', 'pay(jsonb)');
SELECT outcome, status, body ->> 'detail' AS detail FROM idem_execute('acme', 'short', 'POST', '/payments', '{"n": 2}', 'pay(jsonb)');
SELECT outcome, status FROM idem_execute('acme', NULL, 'POST', '/payments', '{"n": 2}', 'pay(jsonb)');
-- a replay is the stored answer, whatever has become of the business
DELETE FROM paid;
SELECT outcome, status, body FROM idem_execute('acme', 'key-exec-00000000001', 'POST', '/payments', '{"n": 1}', 'pay(jsonb)');
SELECT count(*) FROM paid;
-- so does idem_claim() replay it
SELECT outcome, status, headers, body FROM idem_claim('acme', 'key-exec-00000000001', 'POST', '/payments', '{"n": 1}');

-- the complete answer: the first has all headers, the stored one has not
SELECT * FROM idem_execute('acme', 'key-exec-00000000002', 'POST', '/payments', '{"n": 2}', 'pay_fully(jsonb)');
SELECT * FROM idem_execute('acme', 'key-exec-00000000002', 'POST', '/payments', '{"n": 2}', 'pay_fully(jsonb)');
SELECT * FROM idem_execute('acme', 'key-exec-00000000003', 'POST', '/payments', '{"n": 3}', 'pay_sql(jsonb)');
SELECT * FROM idem_execute('acme', 'key-exec-00000000003', 'POST', '/payments', '{"n": 3}', 'pay_sql(jsonb)');
SELECT * FROM idem_execute('acme', 'key-exec-00000000004', 'POST', '/upload', NULL, 'pay_bytes(bytea)', raw_body => '\x00');
SELECT * FROM idem_execute('acme', 'key-exec-00000000004', 'POST', '/upload', NULL, 'pay_bytes(bytea)', raw_body => '\x00');

-- an exception undoes the work and becomes a stored answer; its text is the client's only where the handler says so
CREATE TABLE told (raised text, nr serial);
INSERT INTO told (raised) VALUES ('P0001'), ('PT402'), ('PT418'), ('PT303'), ('PT404'), ('23505'), ('23503'), ('23P01'), ('23502'), ('23514'), ('P0002');
SELECT raised, outcome, status, body, headers
  FROM told, LATERAL idem_execute('acme', 'key-raise-00000-' || raised, 'POST', '/payments', jsonb_build_object('raise', raised), 'raise(jsonb)') ORDER BY nr;
SELECT raised, outcome, status, body = stored AS same, headers
  FROM told, LATERAL (SELECT response_body AS stored FROM idem_lookup('acme', 'key-raise-00000-' || raised)) AS l,
       LATERAL idem_execute('acme', 'key-raise-00000-' || raised, 'POST', '/payments', jsonb_build_object('raise', raised), 'raise(jsonb)') ORDER BY nr;
-- everything else is 500: stored as failed, runs again, attempts are counted, another body is still 422
TRUNCATE told;
INSERT INTO told (raised) VALUES ('22012'), ('22P02'), ('42P01'), ('XX000'), ('53200'), ('PT200'), ('PT999'), ('PT503'), ('PT429'), ('P0003');
SELECT raised, outcome, attempt, status, body
  FROM told, LATERAL idem_execute('acme', 'key-raise-00000-' || raised, 'POST', '/payments', jsonb_build_object('raise', raised), 'raise(jsonb)') ORDER BY nr;
SELECT outcome, attempt, status FROM idem_execute('acme', 'key-raise-00000-22012', 'POST', '/payments', '{"raise": "22012"}', 'raise(jsonb)');
SELECT outcome, attempt, status FROM idem_execute('acme', 'key-raise-00000-22012', 'POST', '/payments', '{"n": 9}', 'pay(jsonb)');
-- mended, the retry runs
CREATE OR REPLACE FUNCTION mended(body jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"mended": true}'::jsonb $$;
SELECT outcome, attempt, status, body FROM idem_execute('acme', 'key-raise-00000-22012', 'POST', '/payments', '{"raise": "22012"}', 'mended(jsonb)');
-- 401 and 403 are not kept: the same key may be sent again by who may
SELECT outcome, status, body FROM idem_execute('acme', 'key-raise-00000-42501', 'POST', '/payments', '{"raise": "42501"}', 'raise(jsonb)');
SELECT outcome, status FROM idem_execute('acme', 'key-raise-00000-42501', 'POST', '/payments', '{"raise": "PT401"}', 'raise(jsonb)');
SELECT count(*) AS stored FROM idem_lookup('acme', 'key-raise-00000-42501');
-- real errors rather than raised ones
INSERT INTO paid VALUES (5, 'five');
SELECT outcome, status, body ->> 'detail' AS detail FROM idem_execute('acme', 'key-real-00000000001', 'POST', '/payments', '{"n": 5}', 'pay(jsonb)');
SELECT outcome, status FROM idem_execute('acme', 'key-real-00000000002', 'POST', '/payments', '{"n": 6, "parent": 99}', 'pay(jsonb)');
SELECT outcome, status FROM idem_execute('acme', 'key-real-00000000003', 'POST', '/payments', '{"n": 6, "note": "bad"}', 'pay(jsonb)');
SELECT outcome, status FROM idem_execute('acme', 'key-real-00000000004', 'POST', '/payments', '{"note": "null"}', 'pay(jsonb)');
SELECT outcome, status FROM idem_execute('acme', 'key-real-00000000005', 'POST', '/payments', '{"n": "five"}', 'pay(jsonb)');
SELECT * FROM paid ORDER BY n;

-- an answer that asks to try again undoes the work too, though nothing was raised
SELECT outcome, attempt, status FROM idem_execute('acme', 'key-retry-0000000001', 'POST', '/payments', '{"n": 7, "status": 503}', 'pay_fully(jsonb)');
SELECT outcome, attempt, status FROM idem_execute('acme', 'key-retry-0000000001', 'POST', '/payments', '{"n": 7, "status": 503}', 'pay_fully(jsonb)');
SELECT outcome, attempt, status FROM idem_execute('acme', 'key-retry-0000000002', 'POST', '/payments', '{"n": 7, "status": 403}', 'pay_fully(jsonb)');
SELECT outcome, attempt, status FROM idem_execute('acme', 'key-retry-0000000003', 'POST', '/payments', '{"n": 7, "status": 409}', 'pay_fully(jsonb)');
SELECT n, note FROM paid WHERE n = 7;

-- never an answer: raised, and nothing is kept
SELECT raised, f.* FROM (VALUES ('40001'), ('40P01'), ('57000'), ('2D000'), ('ID009')) AS r (raised),
    pg_temp.fails(format($$SELECT * FROM idem_execute('acme', 'key-never-00000-%s', 'POST', '/payments', '{"raise": "%s"}', 'raise(jsonb)')$$, raised, raised)) AS f;
SELECT * FROM idem_execute('acme', 'key-never-00000-57014', 'POST', '/payments', '{"raise": "57014"}', 'raise(jsonb)');
SELECT count(*) FROM idempotency_keys WHERE key LIKE 'key-never%';

-- no handler
CREATE FUNCTION two(jsonb, jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION nothing() RETURNS jsonb LANGUAGE sql AS 'SELECT ''{}''::jsonb';
CREATE FUNCTION of_text(text) RETURNS jsonb LANGUAGE sql AS 'SELECT ''{}''::jsonb';
CREATE FUNCTION to_text(jsonb) RETURNS text LANGUAGE sql AS 'SELECT ''''';
CREATE FUNCTION to_set(jsonb) RETURNS SETOF jsonb LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION to_record(jsonb) RETURNS record LANGUAGE sql AS 'SELECT 200, $1';
CREATE PROCEDURE proc(jsonb) LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION to_null(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION strict_one(jsonb) RETURNS jsonb LANGUAGE sql STRICT AS 'SELECT $1';
CREATE FUNCTION no_status(jsonb) RETURNS idem_response LANGUAGE sql AS 'INSERT INTO paid VALUES (2000, ''lost''); SELECT NULL::int, NULL::jsonb, NULL::jsonb, NULL::bytea';
CREATE FUNCTION far_status(jsonb) RETURNS idem_response LANGUAGE sql AS 'INSERT INTO paid VALUES (2000, ''lost''); SELECT 999, NULL::jsonb, NULL::jsonb, NULL::bytea';
CREATE FUNCTION interim(jsonb) RETURNS idem_response LANGUAGE sql AS 'SELECT 100, NULL::jsonb, NULL::jsonb, NULL::bytea';
CREATE FUNCTION two_bodies(jsonb) RETURNS idem_response LANGUAGE sql AS 'SELECT 200, NULL::jsonb, $1, ''\x00''::bytea';
CREATE FUNCTION bad_headers(jsonb) RETURNS idem_response LANGUAGE sql AS 'INSERT INTO paid VALUES (2000, ''lost''); SELECT 200, ''{"A": 1}''::jsonb, NULL::jsonb, NULL::bytea';
CREATE FUNCTION null_answer(jsonb) RETURNS idem_response LANGUAGE sql AS 'SELECT NULL::idem_response';
CREATE FUNCTION commits(jsonb) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN COMMIT; RETURN $1; END';
CREATE FUNCTION claims_again(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT jsonb_build_object('outcome', outcome, 'status', status) FROM idem_claim('acme', 'key-bad-000000000001', 'POST', '/p', $1)); END $$;
CREATE FUNCTION completes(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM idem_complete('acme', 'key-bad-000000000001', 201); RETURN $1; END $$;
CREATE FUNCTION releases(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM idem_release('acme', 'key-bad-000000000001'); RETURN $1; END $$;
CREATE FUNCTION leaves_open(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM idem_claim('acme', 'key-bad-000000000002', 'POST', '/p', $1); RETURN $1; END $$;
CREATE FUNCTION big(jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO paid VALUES (2000, 'lost'); SELECT to_jsonb(repeat('x', 2000)) $$;
SELECT h, f.* FROM unnest('{"two(jsonb,jsonb)","nothing()","of_text(text)","to_text(jsonb)","to_set(jsonb)","to_record(jsonb)","proc(jsonb)","max(text)","to_null(jsonb)","no_status(jsonb)","far_status(jsonb)","interim(jsonb)","two_bodies(jsonb)","bad_headers(jsonb)","null_answer(jsonb)","commits(jsonb)","completes(jsonb)","releases(jsonb)"}'::text[]) WITH ORDINALITY AS u (h, n),
    pg_temp.fails(format($$SELECT * FROM idem_execute('acme', 'key-bad-000000000001', 'POST', '/p', '{}', %L)$$, h)) AS f ORDER BY n;
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute('acme', 'key-bad-000000000001', 'POST', '/p', '{}', 'nowhere')$$);
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute('acme', 'key-bad-000000000001', 'POST', '/p', '{}', 'nowhere(jsonb)')$$);
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute('acme', 'key-bad-000000000001', 'POST', '/p', '{}', 999999::regprocedure)$$);
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute('acme', 'key-bad-000000000001', 'POST', '/p', '{}', NULL)$$);
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute(NULL, 'key-bad-000000000001', 'POST', '/p', '{}', 'pay(jsonb)')$$);
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute('acme', 'key-bad-000000000001', 'POST', '/p', NULL, 'strict_one(jsonb)')$$);
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute('acme', 'key-bad-000000000001', 'POST', '/p', '{}', 'pay_bytes(bytea)')$$);
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute('acme', 'key-bad-000000000001', 'POST', '/p', NULL, 'pay(jsonb)', raw_body => '\x00')$$);
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute('acme', 'key-bad-000000000001', 'POST', '/p', '{}', 'pay(jsonb)', raw_body => '\x00')$$);
SET idempotency.max_response_size = '1kB';
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute('acme', 'key-bad-000000000001', 'POST', '/p', '{}', 'big(jsonb)')$$);
RESET idempotency.max_response_size;
-- the key that is claimed by the run itself is in progress to its handler
SELECT outcome, body FROM idem_execute('acme', 'key-bad-000000000001', 'POST', '/p', '{}', 'claims_again(jsonb)');
-- a claim that a handler leaves open refuses the commit, as ever
SELECT outcome FROM idem_execute('acme', 'key-bad-000000000003', 'POST', '/p', '{}', 'leaves_open(jsonb)');
SELECT count(*) AS lost FROM paid WHERE n = 2000;
SELECT key FROM idempotency_keys WHERE key LIKE 'key-bad%';

-- as part of a transaction; a savepoint undoes it
BEGIN;
SELECT outcome FROM idem_execute('acme', 'key-tx-0000000000001', 'POST', '/p', '{"n": 20}', 'pay(jsonb)');
SAVEPOINT s;
SELECT outcome FROM idem_execute('acme', 'key-tx-0000000000002', 'POST', '/p', '{"n": 21}', 'pay(jsonb)');
ROLLBACK TO s;
SELECT outcome FROM idem_execute('acme', 'key-tx-0000000000002', 'POST', '/p', '{"n": 22}', 'pay(jsonb)');
COMMIT;
SELECT n FROM paid WHERE n >= 20 ORDER BY n;
-- 1,000 in one transaction, a third of them failing
DO $$
DECLARE
    r record;
    failed int := 0;
BEGIN
    FOR i IN 1..1000 LOOP
        SELECT * INTO r FROM idem_execute('acme', 'key-many-' || lpad(i::text, 12, '0'), 'POST', '/p', jsonb_build_object('n', 3000 + i - i % 3), 'pay(jsonb)');
        failed := failed + (r.status = 409)::int;
    END LOOP;
    RAISE WARNING '% conflicts', failed;
END $$;
SELECT count(*) FROM paid WHERE n >= 3000;
-- a handler that executes another key
CREATE FUNCTION nested(body jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(e) FROM idem_execute('acme', 'key-nested-000000002', 'POST', '/inner', body, 'pay(jsonb)') AS e $$;
SELECT outcome, body FROM idem_execute('acme', 'key-nested-000000001', 'POST', '/outer', '{"n": 30}', 'nested(jsonb)');

-- no key is needed where none belongs
SELECT * FROM idem_execute('acme', NULL, 'GET', '/payments', '{"a": 1}', 'mended(jsonb)');
SELECT * FROM idem_execute('acme', NULL, 'PUT', '/payments/1', '{"raise": "P0001", "message": "no"}', 'raise(jsonb)');
-- a body that is not there
SELECT outcome, body FROM idem_execute('acme', 'key-empty-0000000001', 'POST', '/p', NULL, 'mended(jsonb)');

-- an operation's own statuses; two characters are a class
SELECT idem_allow('POST', '/payments', statuses => '{"23505": 422, "22": 400, "P0001": 409, "53": 503}');
SELECT idem_allow('POST', '/slow', lease => '1 min');
SELECT method, path_pattern, statuses FROM idempotency_operations ORDER BY path_pattern;
SELECT r.raised, outcome, status
  FROM (VALUES (1, '23505'), (2, '22012'), (3, 'P0001'), (4, '53200'), (5, '23503'), (6, 'XX000')) AS r (n, raised),
       LATERAL idem_execute('acme', 'key-own-0000000-' || raised, 'POST', '/payments', jsonb_build_object('raise', raised), 'raise(jsonb)') ORDER BY n;
SELECT f.* FROM (VALUES (1, '[]'), (2, '{"2": 400}'), (3, '{"23505": "400"}'), (4, '{"23505": 200}'), (5, '{"23505": 600}'), (6, '{"23505": null}'), (7, '{"40001": 409}'), (8, '{"40": 409}'), (9, '{"abcde": 400}'), (10, '{"23505": 400.4}')) AS s (n, statuses),
    pg_temp.fails(format('SELECT idem_allow(%L, %L, statuses => %L)', 'POST', '/p', statuses)) AS f ORDER BY n;
-- a leased operation is more than one transaction
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute('acme', 'key-leased-000000001', 'POST', '/slow', '{}', 'mended(jsonb)')$$);
-- what was completed before it was registered so is answered
SELECT idem_allow('POST', '/payments', lease => '1 min');
SELECT outcome, status FROM idem_execute('acme', 'key-exec-00000000001', 'POST', '/payments', '{"n": 1}', 'pay(jsonb)');
SELECT idem_disallow('POST', '/slow'), idem_disallow('POST', '/payments');
-- a leased run that has stopped at a checkpoint is not begun anew
SELECT token FROM idem_claim('acme', 'key-leased-000000002', 'POST', '/p', '{}', lease => '1 min') \gset
SELECT outcome, status FROM idem_execute('acme', 'key-leased-000000002', 'POST', '/p', '{}', 'mended(jsonb)');
SELECT idem_checkpoint('acme', 'key-leased-000000002', :'token', 'charged');
UPDATE idempotency_keys SET lease_expires_at = now() - interval '1 s' WHERE key = 'key-leased-000000002';
SELECT * FROM pg_temp.fails($$SELECT * FROM idem_execute('acme', 'key-leased-000000002', 'POST', '/p', '{}', 'mended(jsonb)')$$);

-- with the caller's rights, and only where it may
CREATE ROLE app_execute;
GRANT USAGE ON SCHEMA execute_test TO app_execute;
GRANT EXECUTE ON FUNCTION idem_execute TO app_execute;
CREATE TABLE mine (n int);
GRANT INSERT ON mine TO app_execute;
CREATE FUNCTION who(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN INSERT INTO mine VALUES (1); RETURN to_jsonb(current_user); END $$;
CREATE FUNCTION not_yours(jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO paid VALUES (40, 'no'); SELECT $1 $$;
CREATE FUNCTION forbidden(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
REVOKE EXECUTE ON FUNCTION forbidden FROM PUBLIC;
SET ROLE app_execute;
SELECT outcome, body FROM idem_execute('acme', 'key-role-00000000001', 'POST', '/p', '{}', 'who(jsonb)');
SELECT outcome, status FROM idem_execute('acme', 'key-role-00000000002', 'POST', '/p', '{}', 'not_yours(jsonb)');
SELECT outcome FROM idem_execute('acme', 'key-role-00000000003', 'POST', '/p', '{}', 'forbidden(jsonb)');
RESET ROLE;
-- read-only
SET default_transaction_read_only = on;
SELECT outcome FROM idem_execute('acme', 'key-role-00000000004', 'POST', '/p', '{}', 'mended(jsonb)');
SELECT outcome, status FROM idem_execute('acme', NULL, 'GET', '/p', '{}', 'mended(jsonb)');
RESET default_transaction_read_only;
DROP OWNED BY app_execute;
DROP ROLE app_execute;
SET client_min_messages = error;
DROP SCHEMA execute_test CASCADE;
