-- Every outcome of idem_claim(), with the whole answer.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
TRUNCATE idempotency_keys;
\pset expanded on

-- claimed, and completed in the same transaction
BEGIN;
SELECT * FROM idem_claim('acme', 'key-0000000000000001', 'POST', '/payments', '{"amount": 10}');
SELECT idem_complete('acme', 'key-0000000000000001', 201, '{"id": 1}', '{"Location": "/payments/1"}');
COMMIT;

-- replay: the same request, however it is written
SELECT * FROM idem_claim('acme', 'key-0000000000000001', 'POST', '/payments', '{"amount": 10}');
SELECT outcome, status FROM idem_claim('acme', 'key-0000000000000001', 'post', '/payments', '{"amount": 1.0e1}');
SELECT outcome, status FROM idem_claim('acme', 'key-0000000000000001', 'pOsT', '/payments',
    '{"timestamp": "now", "request_id": 7, "trace_id": null, "amount": 10}');
SELECT outcome, status FROM idem_claim('acme', 'key-0000000000000001', 'POST', '/payments', raw_body => '{"amount":10}');

-- mismatch: another body, path or method
SELECT * FROM idem_claim('acme', 'key-0000000000000001', 'POST', '/payments', '{"amount": 11}');
SELECT outcome FROM idem_claim('acme', 'key-0000000000000001', 'POST', '/payments/', '{"amount": 10}');
SELECT outcome FROM idem_claim('acme', 'key-0000000000000001', 'PATCH', '/payments', '{"amount": 10}');
SELECT outcome FROM idem_claim('acme', 'key-0000000000000001', 'POST', '/payments');
SELECT outcome FROM idem_claim('acme', 'key-0000000000000001', 'POST', '/payments', '{"amount": 10, "meta": {"timestamp": 1}}');

-- another tenant, another key: nothing in common
BEGIN;
SELECT outcome FROM idem_claim('Acme', 'key-0000000000000001', 'POST', '/payments', '{"amount": 10}');
SELECT outcome FROM idem_claim('acme ', 'key-0000000000000001', 'POST', '/payments', '{"amount": 10}');
SELECT outcome FROM idem_claim('acme', 'KEY-0000000000000001', 'POST', '/payments', '{"amount": 10}');
SELECT outcome FROM idem_claim('a:b', 'cdefghijklmnopqr', 'POST', '/payments');
SELECT outcome FROM idem_claim('a', 'b:cdefghijklmnopqr', 'POST', '/payments');
ROLLBACK;

-- in_progress: by this very transaction; the claim is not handed out twice
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-0000000000000002', 'POST', '/payments', '{"amount": 10}');
SELECT * FROM idem_claim('acme', 'key-0000000000000002', 'POST', '/payments', '{"amount": 10}');
SELECT outcome, status FROM idem_claim('acme', 'key-0000000000000002', 'POST', '/payments', '{"amount": 11}');
SET LOCAL idempotency.retry_after = '1500ms';
SELECT outcome, headers ->> 'Retry-After' AS retry_after
  FROM idem_claim('acme', 'key-0000000000000002', 'POST', '/payments', '{"amount": 10}');
ROLLBACK;

-- rejected: length first, then characters; the key is not echoed
SELECT * FROM idem_claim('acme', NULL, 'POST', '/payments', '{}');
SELECT * FROM idem_claim('acme', 'short', 'POST', '/payments', '{}');
\pset expanded off
SELECT label, outcome, status, headers, body ->> 'detail' AS detail
  FROM (VALUES ('empty', ''), ('15', repeat('k', 15)), ('257', repeat('k', 257)), ('300 with a space', repeat('k ', 150)),
               ('blank', repeat(' ', 20)), ('space', 'key 0000000000000001'), ('cyrillic', 'ключ-0000000000001'),
               ('tab', E'key\t0000000000001'), ('DEL', E'key-00000000000\x7f'), ('newline', E'key-000000000000001\n')) AS bad (label, key),
       idem_claim('acme', key, 'POST', '/payments', '{}');
-- these are ordinary keys
BEGIN;
SELECT label, outcome
  FROM (VALUES ('16', repeat('k', 16)), ('256', repeat('k', 256)), ('path', '../../etc/passwd-0'),
               ('sql', 'k-000000000000;DROP'), ('quote', 'key-''0000000000001'), ('edges', '!~!~!~!~!~!~!~!~')) AS good (label, key),
       idem_claim('acme', key, 'POST', '/payments', '{}');
ROLLBACK;

-- bypass: idempotent by nature, with or without a key, even a malformed one
SELECT method, outcome, status, body
  FROM unnest('{GET,head,OPTIONS,TRACE,trace,PUT}'::text[]) AS method, idem_claim('acme', 'x', method, '/payments');
BEGIN;
SELECT method, outcome
  FROM unnest('{POST,PATCH,DELETE,CANCEL}'::text[]) WITH ORDINALITY AS m (method, n),
       idem_claim('acme', 'key-000000000000001' || n, method, '/payments');
ROLLBACK;

-- an order of magnitude of amounts is no rounding
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-0000000000000003', 'POST', '/p', '{"account": 1234567890123456789}');
SELECT idem_complete('acme', 'key-0000000000000003', 200);
SELECT outcome FROM idem_claim('acme', 'key-0000000000000003', 'POST', '/p', '{"account": 1234567890123456788}');
SELECT outcome FROM idem_claim('acme', 'key-0000000000000003', 'POST', '/p', '{"account": 1234567890123456789}');
ROLLBACK;

-- evaluated more often than written: only the first one claims
BEGIN;
SELECT (idem_claim('acme', 'key-0000000000000004', 'POST', '/p')).outcome
  FROM generate_series(1, 2);
ROLLBACK;

SELECT tenant_id, key, status, attempt FROM idempotency_keys ORDER BY 1, 2;
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory';
