-- MUST 5, 6, 7: no half-way commit; savepoints; a run that is rolled back frees its key.
SELECT plan(11);
CREATE TABLE pgtap_effects (n int);
SELECT throws_ok($$SELECT idem_complete('acme', 'never-claimed-00001', 201)$$, 'ID002', NULL, 'no completion without a claim');

BEGIN;
SELECT is((SELECT outcome FROM idem_claim('acme', 'savepoint-000000001', 'POST', '/p')), 'claimed', 'claimed before the savepoint');
SAVEPOINT work;
INSERT INTO pgtap_effects VALUES (2);
ROLLBACK TO work;
SELECT is(idem_complete('acme', 'savepoint-000000001', 402, '{"error": "declined"}'), 'completed', 'a declined card: the work is undone, the answer kept');
COMMIT;
SELECT is((SELECT status FROM idem_claim('acme', 'savepoint-000000001', 'POST', '/p')), 402, 'and replayed');
SELECT is((SELECT count(*) FROM pgtap_effects), 0::bigint, 'without the effect');

BEGIN;
SAVEPOINT work;
SELECT is((SELECT outcome FROM idem_claim('acme', 'savepoint-000000002', 'POST', '/p')), 'claimed', 'claimed inside the savepoint');
ROLLBACK TO work;
SELECT throws_ok($$SELECT idem_complete('acme', 'savepoint-000000002', 201)$$, 'ID002', NULL, 'the claim is gone with it');
SELECT is((SELECT outcome FROM idem_claim('acme', 'savepoint-000000002', 'POST', '/p')), 'claimed', 'and the key is free');
ROLLBACK;

BEGIN;
SELECT is((SELECT outcome FROM idem_claim('acme', 'rolled-back-0000001', 'POST', '/p')), 'claimed', 'a run that is rolled back');
INSERT INTO pgtap_effects VALUES (3);
SELECT idem_complete('acme', 'rolled-back-0000001', 201);
ROLLBACK;
BEGIN;
SELECT is((SELECT outcome FROM idem_claim('acme', 'rolled-back-0000001', 'POST', '/p')), 'claimed', 'leaves the key free');
ROLLBACK;
SELECT is((SELECT count(*) FROM pgtap_effects), 0::bigint, 'and no effect');
SELECT * FROM finish();
DROP TABLE pgtap_effects;
