-- A role that is bound to tenants can't touch another tenant's keys.
BEGIN;
SELECT plan(25);
CREATE ROLE t_acme;
CREATE ROLE t_acme_web IN ROLE t_acme;
CREATE ROLE t_free;
GRANT USAGE ON SCHEMA public TO t_acme, t_free;
GRANT EXECUTE ON FUNCTION idem_claim, idem_complete, idem_release, idem_renew, idem_checkpoint, idem_lookup, idem_execute, idem_forget(text),
    idem_forget(text, text) TO t_acme, t_free;
CREATE FUNCTION handle(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
CREATE TEMP TABLE lease AS SELECT token FROM idem_claim('globex', 'key-globex-000000001', 'POST', '/p', lease => '60 s');
GRANT SELECT ON lease TO t_acme, t_free;
CREATE FUNCTION pg_temp.outcome(tenant text) RETURNS text LANGUAGE sql AS
    $$SELECT outcome FROM idem_claim(tenant, 'key-free-00000000001', 'GET', '/p')$$;

SET LOCAL ROLE t_acme;
SELECT is(pg_temp.outcome('globex'), 'bypass', 'bound to none: any tenant');
RESET ROLE;
SELECT lives_ok($$SELECT idem_bind_tenant('t_acme', 'acme')$$, 'bound');
SELECT lives_ok($$SELECT idem_bind_tenant('t_acme', 'acme')$$, 'twice is once');
SELECT is((SELECT string_agg(role || ' ' || tenant_id, ',') FROM idempotency_tenants), 't_acme acme', 'and shown readably');

SET LOCAL ROLE t_acme;
SELECT is(pg_temp.outcome('acme'), 'bypass', 'its own tenant');
SELECT throws_ok($$SELECT pg_temp.outcome('globex')$$, '42501', 'role "t_acme" may not act for tenant "globex"', 'claim for another tenant');
SELECT throws_ok($$SELECT pg_temp.outcome('Acme')$$, '42501', NULL, 'byte by byte');
SELECT throws_ok($$SELECT idem_execute('globex', 'key-globex-000000001', 'POST', '/p', NULL, 'handle(jsonb)')$$, '42501', NULL, 'execute');
SELECT throws_ok($$SELECT idem_lookup('globex', 'key-globex-000000001')$$, '42501', NULL, 'lookup');
SELECT throws_ok($$SELECT idem_complete('globex', 'key-globex-000000001', 200, token => (SELECT token FROM lease))$$, '42501', NULL, 'complete, with the token');
SELECT throws_ok($$SELECT idem_release('globex', 'key-globex-000000001', (SELECT token FROM lease))$$, '42501', NULL, 'release');
SELECT throws_ok($$SELECT idem_renew('globex', 'key-globex-000000001', (SELECT token FROM lease), '1 s')$$, '42501', NULL, 'renew');
SELECT throws_ok($$SELECT idem_checkpoint('globex', 'key-globex-000000001', (SELECT token FROM lease), 'x')$$, '42501', NULL, 'checkpoint');
SELECT throws_ok($$SELECT idem_forget('globex', 'key-globex-000000001')$$, '42501', NULL, 'forget a key');
SELECT throws_ok($$SELECT idem_forget('globex')$$, '42501', NULL, 'forget a tenant');
RESET ROLE;

SET LOCAL ROLE t_acme_web;
SELECT is(pg_temp.outcome('acme'), 'bypass', 'a member: its role''s tenant');
SELECT throws_ok($$SELECT pg_temp.outcome('globex')$$, '42501', 'role "t_acme_web" may not act for tenant "globex"', 'and no other');
RESET ROLE;
SET LOCAL ROLE t_free;
SELECT is(pg_temp.outcome('globex'), 'bypass', 'a role that is not bound: any tenant');
RESET ROLE;
SELECT is(pg_temp.outcome('globex'), 'bypass', 'a superuser is bound by nothing');

SELECT lives_ok($$SELECT idem_bind_tenant('t_acme_web', 'globex')$$, 'the member has a tenant more');
SET LOCAL ROLE t_acme_web;
SELECT is(pg_temp.outcome('acme') || pg_temp.outcome('globex'), 'bypassbypass', 'and may act for both');
RESET ROLE;
SELECT ok(idem_unbind_tenant('t_acme', 'acme'), 'taken back');
SELECT ok(NOT idem_unbind_tenant('t_acme', 'acme'), 'once');
SELECT throws_ok($$SELECT idem_bind_tenant('t_acme', ' ')$$, 'ID009', NULL, 'a blank tenant');
SELECT throws_ok($$SELECT idem_bind_tenant(NULL, 'acme')$$, 'ID009', NULL, 'no role');
SELECT * FROM finish();
ROLLBACK;
