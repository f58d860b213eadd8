-- Who may do what, and what a caller can put in the way.
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS idempotency;
CREATE SCHEMA idem;
CREATE EXTENSION idempotency SCHEMA idem;

-- every object has a comment; nothing that touches keys is for PUBLIC; nothing is relocatable
SELECT pg_describe_object(classid, objid, 0) AS without_comment
  FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idempotency')
   AND obj_description(objid, classid::regclass::name) IS NULL
   AND NOT EXISTS (SELECT FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid  -- the row type of a table or view, an array type
                    WHERE classid = 'pg_type'::regclass AND t.oid = objid AND (c.relkind IN ('r', 'v') OR t.typelem <> 0));
SELECT attname AS column_without_comment FROM pg_attribute
 WHERE attrelid = 'idem.idempotency_keys'::regclass AND attnum > 0 AND col_description(attrelid, attnum) IS NULL;
SELECT proname, provolatile, proparallel, proisstrict, has_function_privilege('public', oid, 'EXECUTE') AS for_public
  FROM pg_proc WHERE pronamespace = 'idem'::regnamespace ORDER BY proname;
ALTER EXTENSION idempotency SET SCHEMA public;
SELECT attname, format_type(atttypid, atttypmod), attnotnull, (SELECT collname FROM pg_collation WHERE oid = attcollation)
  FROM pg_attribute WHERE attrelid = 'idem.idempotency_keys'::regclass AND attnum > 0 ORDER BY attnum;
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'idem.idempotency_keys'::regclass AND contype <> 'n' ORDER BY 1;

-- a role without a grant, and one that has just the application's
CREATE ROLE idem_nobody;
CREATE ROLE idem_app;
GRANT USAGE ON SCHEMA idem TO idem_nobody, idem_app;
GRANT EXECUTE ON FUNCTION idem.idem_claim, idem.idem_complete, idem.idem_release TO idem_app;
SET ROLE idem_nobody;
SELECT idem.idem_claim('acme', 'key-0000000000000001', 'POST', '/p');
SELECT idem.idem_complete('acme', 'key-0000000000000001', 201);
SELECT idem.idem_release('acme', 'key-0000000000000001');
SELECT idem.idem_lookup('acme', 'key-0000000000000001');
SELECT * FROM idem.idempotency_keys;
SELECT idem.idem_canonical('{"b":1,"a":2}');
SET ROLE idem_app;
BEGIN;
SELECT outcome FROM idem.idem_claim('acme', 'key-0000000000000001', 'POST', '/p');
SELECT idem.idem_complete('acme', 'key-0000000000000001', 201);
SELECT current_user, session_user = current_user AS same;
COMMIT;
SELECT outcome FROM idem.idem_claim('acme', 'key-0000000000000001', 'POST', '/p');
SELECT * FROM idem.idempotency_keys;
DELETE FROM idem.idempotency_keys;
SELECT idem.idem_lookup('acme', 'key-0000000000000001');

-- what a caller has in the way: temporary tables, look-alikes first in the search path, none at all
RESET ROLE;
CREATE SCHEMA evil;
GRANT ALL ON SCHEMA evil TO idem_app;
SET ROLE idem_app;
CREATE TEMP TABLE idempotency_keys (tenant_id text, key text);
CREATE FUNCTION evil.yes(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.yes);
CREATE FUNCTION evil.octet_length(text) RETURNS int LANGUAGE sql AS 'SELECT 1000';
SET search_path = evil, pg_catalog, idem;
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-0000000000000002', 'POST', '/p');
SELECT idem_complete('acme', 'key-0000000000000002', 201);
COMMIT;
SET search_path = nowhere;
SELECT outcome, status FROM idem.idem_claim('acme', 'key-0000000000000002', 'POST', '/p');
SELECT outcome, status FROM idem.idem_claim('acme', 'key-0000000000000002', 'POST', '/other');
DISCARD PLANS;
SELECT outcome, status FROM idem.idem_claim('acme', 'key-0000000000000002', 'POST', '/p');
DISCARD ALL;
SELECT outcome, status FROM idem.idem_claim('acme', 'key-0000000000000002', 'POST', '/p');
RESET ROLE;
SELECT count(*) FROM idem.idempotency_keys;

-- forced row security and policies of the operator's: the functions keep working
ALTER TABLE idem.idempotency_keys ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY none ON idem.idempotency_keys USING (false) WITH CHECK (false);
SET ROLE idem_app;
SELECT outcome, status FROM idem.idem_claim('acme', 'key-0000000000000002', 'POST', '/p');
BEGIN;
SELECT outcome FROM idem.idem_claim('acme', 'key-0000000000000003', 'POST', '/p');
SELECT idem.idem_complete('acme', 'key-0000000000000003', 201);
COMMIT;
RESET ROLE;

-- an object in the way makes CREATE EXTENSION fail; nothing is adopted
DROP EXTENSION idempotency;
SET ROLE idem_app;
CREATE TABLE evil.idempotency_keys (tenant_id text);
RESET ROLE;
CREATE EXTENSION idempotency SCHEMA evil;
SELECT count(*) FROM pg_extension WHERE extname = 'idempotency';

-- dropped and created again in a session that has used it
CREATE EXTENSION idempotency SCHEMA idem;
BEGIN;
SELECT outcome FROM idem.idem_claim('acme', 'key-0000000000000002', 'POST', '/p');
SELECT idem.idem_complete('acme', 'key-0000000000000002', 201);
COMMIT;
BEGIN;
DROP EXTENSION idempotency;
CREATE EXTENSION idempotency SCHEMA public;
SELECT outcome FROM public.idem_claim('acme', 'key-0000000000000002', 'POST', '/p');
ROLLBACK;
SELECT outcome FROM idem.idem_claim('acme', 'key-0000000000000002', 'POST', '/p');
-- a lost table is told plainly
ALTER EXTENSION idempotency DROP VIEW idem.idempotency_status;
ALTER EXTENSION idempotency DROP VIEW idem.idempotency_in_flight;
ALTER EXTENSION idempotency DROP TABLE idem.idempotency_keys;
DROP VIEW idem.idempotency_status, idem.idempotency_in_flight;
DROP TABLE idem.idempotency_keys;
\set VERBOSITY default
SELECT outcome FROM idem.idem_claim('acme', 'key-0000000000000002', 'POST', '/p');
SET client_min_messages = error;
DROP EXTENSION idempotency;
DROP SCHEMA idem, evil CASCADE;
DROP ROLE idem_nobody, idem_app;
CREATE EXTENSION idempotency;
