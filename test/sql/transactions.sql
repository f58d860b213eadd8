-- The commit guard, savepoints and all the ways in which a transaction can end.
\set VERBOSITY default
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
TRUNCATE idempotency_keys;
CREATE TABLE effects (n int);
\set key '''key-0000000000000001'''

-- a forgotten completion can't commit; the work goes with it
BEGIN;
SELECT outcome FROM idem_claim('acme', :key, 'POST', '/p');
INSERT INTO effects VALUES (1);
COMMIT;
SELECT count(*) AS effects FROM effects;
-- autocommit: the same error at once
SELECT outcome FROM idem_claim('acme', :key, 'POST', '/p');
-- two open claims
BEGIN;
SELECT outcome FROM idem_claim('acme', :key, 'POST', '/p');
SELECT outcome FROM idem_claim('acme', 'key-0000000000000002', 'POST', '/p');
COMMIT;
-- PREPARE TRANSACTION too
BEGIN;
SELECT outcome FROM idem_claim('acme', :key, 'POST', '/p');
PREPARE TRANSACTION 'open';
SELECT count(*) AS prepared FROM pg_prepared_xacts WHERE database = current_database();
-- ROLLBACK needs nothing; the outcomes that are not a claim need nothing
BEGIN;
SELECT outcome FROM idem_claim('acme', :key, 'POST', '/p');
ROLLBACK;
SELECT outcome FROM idem_claim('acme', NULL, 'POST', '/p');
SELECT outcome FROM idem_claim('acme', NULL, 'GET', '/p');

\set VERBOSITY terse
-- autocommit works where claim and completion are one command
DO $$ BEGIN PERFORM idem_claim('acme', 'key-do-block-0000001', 'POST', '/p'); PERFORM idem_complete('acme', 'key-do-block-0000001', 201); END $$;
SELECT outcome FROM idem_claim('acme', 'key-multi-0000000001', 'POST', '/p') \; SELECT idem_complete('acme', 'key-multi-0000000001', 201);
CREATE FUNCTION pay(key text) RETURNS text LANGUAGE sql AS $$
    SELECT outcome FROM idem_claim('acme', key, 'POST', '/p');
    SELECT idem_complete('acme', key, 201);
$$;
SELECT pay('key-function-0000001');
SELECT key, status FROM idempotency_keys ORDER BY key;

-- a claim in a savepoint that is rolled back is gone, its lock too
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_claim('acme', :key, 'POST', '/p');
ROLLBACK TO a;
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory';
SELECT idem_complete('acme', :key, 201);
ROLLBACK;
-- released savepoints hand it to the parent
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT outcome FROM idem_claim('acme', :key, 'POST', '/p');
RELEASE b;
ROLLBACK TO a;
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory';
SAVEPOINT b;
SELECT outcome FROM idem_claim('acme', :key, 'POST', '/p');
RELEASE b;
RELEASE a;
SELECT idem_complete('acme', :key, 201);
COMMIT;
SELECT outcome, status FROM idem_claim('acme', :key, 'POST', '/p');
DELETE FROM idempotency_keys WHERE key = :key;
-- a claim before the savepoint survives, and a completion in it is undone with it
BEGIN;
SELECT outcome FROM idem_claim('acme', :key, 'POST', '/p');
SAVEPOINT work;
INSERT INTO effects VALUES (1);
SELECT idem_complete('acme', :key, 201);
ROLLBACK TO work;
SELECT outcome FROM idem_claim('acme', :key, 'POST', '/p');
SELECT idem_complete('acme', :key, 402, '{"error": "declined"}');
COMMIT;
SELECT outcome, status, body FROM idem_claim('acme', :key, 'POST', '/p');
SELECT count(*) AS effects FROM effects;
-- the completion rolled back and nothing after it: open again, so refused
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-0000000000000003', 'POST', '/p');
SAVEPOINT work;
SELECT idem_complete('acme', 'key-0000000000000003', 201);
ROLLBACK TO work;
COMMIT;
-- released and claimed again in a savepoint that is rolled back: the release stands
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-0000000000000003', 'POST', '/p');
SELECT idem_release('acme', 'key-0000000000000003');
SAVEPOINT again;
SELECT outcome FROM idem_claim('acme', 'key-0000000000000003', 'POST', '/p');
ROLLBACK TO again;
COMMIT;
-- a cursor that was opened outside the savepoint in which it claims
BEGIN;
DECLARE c CURSOR FOR SELECT outcome FROM idem_claim('acme', 'key-0000000000000004', 'POST', '/p');
SAVEPOINT a;
FETCH c;
ROLLBACK TO a;
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory';
COMMIT;
BEGIN;
DECLARE c CURSOR FOR SELECT outcome FROM idem_claim('acme', 'key-0000000000000004', 'POST', '/p');
SAVEPOINT a;
FETCH c;
RELEASE a;
CLOSE c;
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory';
SELECT idem_complete('acme', 'key-0000000000000004', 201);
COMMIT;
-- an exception block is a savepoint
DO $$
BEGIN
    BEGIN
        PERFORM idem_claim('acme', 'key-0000000000000005', 'POST', '/p');
        RAISE EXCEPTION 'x';
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
END $$;
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory';
-- a hundred levels deep, and back in one step
DO $$
DECLARE
    claims int := 0;
BEGIN
    FOR i IN 1..200 LOOP
        BEGIN
            PERFORM idem_claim('acme', 'key-deep-00000000' || i, 'POST', '/p');
            IF i % 2 = 0 THEN
                RAISE EXCEPTION 'undo';
            END IF;
            claims := claims + 1;
        EXCEPTION WHEN raise_exception THEN NULL;
        END;
    END LOOP;
    FOR i IN 1..200 BY 2 LOOP
        PERFORM idem_complete('acme', 'key-deep-00000000' || i, 201);
    END LOOP;
    RAISE WARNING '% claims, % completed', claims, (SELECT count(*) FROM idempotency_keys WHERE key LIKE 'key-deep%');
END $$;
-- a thousand claims of one transaction, completed in another order
BEGIN;
SELECT count(*) FILTER (WHERE outcome = 'claimed') AS claimed
  FROM generate_series(1, 1000) i, idem_claim('acme', 'key-batch-' || 100000 + i, 'POST', '/p');
SELECT idem_complete, count(*) FROM (
    SELECT idem_complete('acme', 'key-batch-' || 100000 + i, 201) FROM generate_series(1000, 1, -1) i) s GROUP BY 1;
COMMIT;
-- deferred triggers run before the guard
CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.n = 10 THEN
        PERFORM idem_complete('acme', 'key-deferred-0000001', 201);
    ELSIF NEW.n = 11 THEN
        PERFORM idem_claim('acme', 'key-deferred-0000002', 'POST', '/p');
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late();
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-deferred-0000001', 'POST', '/p');
INSERT INTO effects VALUES (10);
COMMIT;
INSERT INTO effects VALUES (11);
SELECT count(*) AS effects FROM effects;
-- chained transactions, and a procedure that commits
BEGIN;
SELECT pay('key-chain-0000000001');
COMMIT AND CHAIN;
SELECT pay('key-chain-0000000002');
COMMIT;
CREATE PROCEDURE pay_all(complete_last boolean) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pay('key-procedure-000001' || complete_last);
    COMMIT;
    PERFORM idem_claim('acme', 'key-procedure-000002' || complete_last, 'POST', '/p');
    IF complete_last THEN
        PERFORM idem_complete('acme', 'key-procedure-000002' || complete_last, 201);
    END IF;
    COMMIT;
END $$;
CALL pay_all(true);
CALL pay_all(false);
SELECT key FROM idempotency_keys WHERE key ~ 'chain|procedure' ORDER BY key;
-- prepared with its completion
BEGIN;
SELECT pay('key-prepared-0000001');
INSERT INTO effects VALUES (2);
PREPARE TRANSACTION 'paid';
SELECT outcome, status FROM idem_claim('acme', 'key-prepared-0000001', 'POST', '/p');
SELECT state FROM idem_lookup('acme', 'key-prepared-0000001');
COMMIT PREPARED 'paid';
SELECT outcome, status FROM idem_claim('acme', 'key-prepared-0000001', 'POST', '/p');
BEGIN;
SELECT pay('key-prepared-0000002');
PREPARE TRANSACTION 'unpaid';
ROLLBACK PREPARED 'unpaid';
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-prepared-0000002', 'POST', '/p');
ROLLBACK;
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory';
DROP TABLE effects;
DROP FUNCTION late;
DROP PROCEDURE pay_all;
DROP FUNCTION pay;
