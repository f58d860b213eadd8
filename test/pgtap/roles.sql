-- Who may do what: nobody, an application, an operator, as docs/operations.md grants it; a role bound to a tenant.
BEGIN;
SELECT plan(88);
CREATE ROLE t_nobody;
CREATE ROLE t_app;
CREATE ROLE t_operator;
GRANT USAGE ON SCHEMA public TO t_nobody, t_app, t_operator;
-- the application
GRANT EXECUTE ON FUNCTION idem_claim, idem_complete, idem_release, idem_renew, idem_checkpoint, idem_lookup, idem_execute, idem_http TO t_app;
-- the operator
GRANT EXECUTE ON FUNCTION idem_lookup, idem_allow, idem_disallow, idem_forget(text), idem_forget(text, text), idem_bind_tenant,
    idem_unbind_tenant, idem_limit_tenant, idem_unlimit_tenant, idem_schedule_purge, idem_unschedule_purge, idem_key_lock, idem_counters TO t_operator;
GRANT EXECUTE ON PROCEDURE idem_purge TO t_operator;
GRANT SELECT ON idempotency_status, idempotency_in_flight, idempotency_operations, idempotency_tenants, idempotency_limits TO t_operator;

CREATE FUNCTION pg_temp.calls() RETURNS TABLE (name text, command text, app boolean, operator boolean) LANGUAGE sql AS $$
    VALUES ('claim', $c$SELECT outcome FROM idem_claim('acme', 'key-0000000000000001', 'GET', '/p')$c$, true, false),
           ('complete', $c$SELECT idem_complete(NULL, 'key-0000000000000001', 201)$c$, true, false),
           ('release', $c$SELECT idem_release(NULL, 'key-0000000000000001')$c$, true, false),
           ('renew', $c$SELECT idem_renew(NULL, 'key-0000000000000001', NULL, NULL)$c$, true, false),
           ('checkpoint', $c$SELECT idem_checkpoint(NULL, 'key-0000000000000001', NULL, NULL)$c$, true, false),
           ('lookup', $c$SELECT idem_lookup('acme', 'key-0000000000000001')$c$, true, true),
           ('execute', $c$SELECT idem_execute(NULL, 'key-0000000000000001', 'POST', '/p', NULL, 'now()')$c$, true, false),
           ('http', $c$SELECT idem_http('now()')$c$, true, false),
           ('allow', $c$SELECT idem_allow(NULL, '/p')$c$, false, true),
           ('disallow', $c$SELECT idem_disallow('POST', '/p')$c$, false, true),
           ('forget a key', $c$SELECT idem_forget('acme', 'key-0000000000000001')$c$, false, true),
           ('forget a tenant', $c$SELECT idem_forget('nobody')$c$, false, true),
           ('bind', $c$SELECT idem_bind_tenant('t_nobody', NULL)$c$, false, true),
           ('unbind', $c$SELECT idem_unbind_tenant('t_nobody', 'acme')$c$, false, true),
           ('limit', $c$SELECT idem_limit_tenant('acme', 0)$c$, false, true),
           ('unlimit', $c$SELECT idem_unlimit_tenant('acme')$c$, false, true),
           ('key lock', $c$SELECT idem_key_lock('acme', 'key-0000000000000001')$c$, false, true),
           ('purge', $c$CALL idem_purge(0)$c$, false, true),
           ('schedule', $c$SELECT idem_schedule_purge(NULL)$c$, false, true),
           ('unschedule', $c$SELECT idem_unschedule_purge('x')$c$, false, true),
           ('counters', $c$SELECT idem_counters()$c$, false, true),
           ('the keys', $c$SELECT FROM idempotency_keys$c$, false, false),
           ('changing the keys', $c$DELETE FROM idempotency_keys$c$, false, false),
           ('changing the registry', $c$DELETE FROM idempotency_operations$c$, false, false),
           ('changing the bindings', $c$DELETE FROM idempotency_tenants$c$, false, false),
           ('changing the limits', $c$DELETE FROM idempotency_limits$c$, false, false),
           ('the limits', $c$SELECT FROM idempotency_limits$c$, false, true),
           ('status', $c$SELECT FROM idempotency_status$c$, false, true),
           ('in flight', $c$SELECT FROM idempotency_in_flight$c$, false, true)
$$;
-- allowed: whatever comes, it is not 42501
CREATE FUNCTION pg_temp.refused(role text, command text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    refused boolean := false;
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    BEGIN
        EXECUTE command;
    EXCEPTION WHEN insufficient_privilege THEN
        refused := true;
    WHEN OTHERS THEN
        NULL;
    END;
    RESET ROLE;
    RETURN refused;
END $$;
SET client_min_messages = warning;
SELECT is(pg_temp.refused('t_nobody', command), name NOT LIKE 'pure%', 'nobody: ' || name) FROM pg_temp.calls();
SELECT is(pg_temp.refused('t_app', command), NOT app, 'application: ' || name) FROM pg_temp.calls();
SELECT is(pg_temp.refused('t_operator', command), NOT operator, 'operator: ' || name) FROM pg_temp.calls();
SELECT is((SELECT count(*) FROM pg_proc AS p WHERE p.pronamespace = 'public'::regnamespace AND p.proname LIKE 'idem\_%'
             AND has_function_privilege('public', p.oid, 'EXECUTE')), 4::bigint, 'the four pure functions are for everybody');
SELECT * FROM finish();
ROLLBACK;
