-- idem_http(): the request is in the settings that PostgREST makes, each with set_config(..., true) in the transaction
-- of the call; so is the answer, which PostgREST reads before the commit.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
TRUNCATE idempotency_keys;
CREATE SCHEMA http_test;
SET search_path = http_test, public;
CREATE TABLE rest_paid (body jsonb);
CREATE FUNCTION rest_pay(body jsonb) RETURNS idem_response LANGUAGE plpgsql AS $$
BEGIN
    IF body ->> 'raise' IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = body ->> 'raise', MESSAGE = 'no funds';
    END IF;
    INSERT INTO rest_paid VALUES (body);
    RETURN (201, '{"Location": "/payments/1", "Link": ["<a>", "<b>"]}'::jsonb, jsonb_build_object('amount', body -> 'amount'), NULL)::idem_response;
END $$;
CREATE FUNCTION rest_upload(bytea) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(encode($1, 'hex')) $$;
CREATE FUNCTION rest_bytes(jsonb) RETURNS idem_response LANGUAGE sql AS $$ SELECT 200, NULL::jsonb, NULL::jsonb, '\x00'::bytea $$;
CREATE FUNCTION rest_empty(jsonb) RETURNS idem_response LANGUAGE sql AS $$ SELECT 204, NULL::jsonb, NULL::jsonb, NULL::bytea $$;
-- as PostgREST: settings, call, answer, one transaction
CREATE FUNCTION pg_temp.rest(headers text, body text, call text DEFAULT 'SELECT idem_http(''rest_pay(jsonb)'')', path text DEFAULT '/rpc/payments', method text DEFAULT 'POST',
                             claims text DEFAULT '{"role": "web", "app": {"tenant": "acme", "number": 42}}',
                             OUT status text, OUT response_headers text, OUT answer jsonb)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('request.method', method, true), set_config('request.path', path, true),
            set_config('request.headers', headers, true), set_config('request.body', body, true), set_config('request.jwt.claims', claims, true),
            set_config('response.status', '', true), set_config('response.headers', '', true);
    EXECUTE call INTO answer;
    status := current_setting('response.status');
    response_headers := current_setting('response.headers');
EXCEPTION WHEN OTHERS THEN
    DECLARE
        message text; detail text;
    BEGIN
        GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
        status := SQLSTATE;
        response_headers := message || ' | ' || detail;
        answer := NULL;
    END;
END $$;
SET idempotency.http_tenant = 'request.jwt.claims/app/tenant';
-- the first answer and its retry; the key as an RFC 9651 string, the name of the header in any case
SELECT * FROM pg_temp.rest('{"idempotency-key": "\"key-http-00000000001\"", "content-type": "application/json"}', '{"amount": 15}');
SELECT * FROM pg_temp.rest('{"Idempotency-Key": "key-http-00000000001", "content-type": "application/json; charset=utf-8"}', '{"amount": 15.0}');
SELECT * FROM rest_paid;
SELECT tenant_id, key FROM idempotency_keys;
-- another body; the function's argument instead of a setting
SELECT status, response_headers, answer ->> 'type' AS type FROM pg_temp.rest('{"idempotency-key": "key-http-00000000001"}', NULL, $$SELECT idem_http('rest_pay(jsonb)', '{"amount": 16}')$$);
SELECT status, answer FROM pg_temp.rest('{"idempotency-key": "key-http-00000000001"}', NULL, $$SELECT idem_http('rest_pay(jsonb)', body => '{"amount": 15}')$$);
-- no key; a malformed one; an empty one; two of them, three ways
SELECT status, response_headers, answer ->> 'detail' AS detail FROM pg_temp.rest('{}', '{"amount": 15}');
SELECT status, answer ->> 'detail' AS detail FROM pg_temp.rest('{"idempotency-key": "\"key-http-00000000001"}', '{"amount": 15}');
SELECT status, answer ->> 'detail' AS detail FROM pg_temp.rest('{"idempotency-key": ""}', '{"amount": 15}');
SELECT status, answer ->> 'detail' AS detail FROM pg_temp.rest('{"idempotency-key": "key-http-00000000001, key-http-00000000002"}', '{"amount": 15}');
SELECT status, answer ->> 'detail' AS detail FROM pg_temp.rest('{"idempotency-key": ["key-http-00000000001", "key-http-00000000002"]}', '{"amount": 15}');
SELECT status, answer ->> 'detail' AS detail FROM pg_temp.rest('{"idempotency-key": "key-http-00000000001", "Idempotency-Key": "key-http-00000000002"}', '{"amount": 15}');
-- JSON where JSON is declared, by whatever type of it; else bytes
SELECT status, response_headers, answer FROM pg_temp.rest('{"idempotency-key": "key-http-00000000003", "content-type": "application/json"}', '{"amount": ');
SELECT status FROM pg_temp.rest('{"idempotency-key": "key-http-00000000003", "content-type": "application/merge-patch+json"}', '{"amount": "\u0000"}');
SELECT status FROM pg_temp.rest('{"idempotency-key": "key-http-00000000003", "content-type": "application/json"}', '{"amount": 1e999999}');
SELECT status FROM pg_temp.rest('{"idempotency-key": "key-http-00000000003", "content-type": "application/json"}', repeat('[', 100000));
SELECT status, answer FROM pg_temp.rest('{"idempotency-key": "key-http-00000000003", "content-type": "text/csv"}', 'a,b', $$SELECT idem_http('rest_upload(bytea)')$$);
SELECT status, response_headers FROM pg_temp.rest('{"idempotency-key": "key-http-00000000004", "content-type": "application/jsonp"}', '{}');
-- an exception, with its status
SELECT * FROM pg_temp.rest('{"idempotency-key": "key-http-00000000005"}', '{"raise": "PT402"}');
SELECT * FROM pg_temp.rest('{"idempotency-key": "key-http-00000000005"}', '{"raise": "PT402"}');
SELECT * FROM pg_temp.rest('{"idempotency-key": "key-http-00000000006"}', '{"raise": "40001"}');
-- no body in either direction; bytes
SELECT * FROM pg_temp.rest('{"idempotency-key": "key-http-00000000007"}', NULL, $$SELECT idem_http('rest_empty(jsonb)')$$);
SELECT * FROM pg_temp.rest('{"idempotency-key": "key-http-00000000008"}', NULL, $$SELECT idem_http('rest_bytes(jsonb)')$$);
SELECT count(*) FROM idem_lookup('acme', 'key-http-00000000008');
-- what is idempotent by nature
SELECT * FROM pg_temp.rest('{}', NULL, $$SELECT idem_http('rest_empty(jsonb)')$$, method => 'GET');

-- the settings: missing, not JSON, without a tenant
SELECT * FROM pg_temp.rest('', '{}');
SELECT * FROM pg_temp.rest('[]', '{}');
SELECT * FROM pg_temp.rest('{"a": 4111111111111111', '{}');
SELECT * FROM pg_temp.rest('{}', '{}', method => '');
SELECT * FROM pg_temp.rest('{}', '{}', path => '');
SELECT * FROM pg_temp.rest('{}', '{}', claims => '');
SELECT * FROM pg_temp.rest('{}', '{}', claims => '{"app": {"tenant": null}}');
SELECT * FROM pg_temp.rest('{}', '{}', claims => '{"app": {"tenant": ["acme"]}}');
SELECT * FROM pg_temp.rest('{}', '{}', claims => '{"app": "acme"}');
SELECT * FROM pg_temp.rest('{}', '{}', claims => '{"app": {"tenant": ""}}');
SET idempotency.http_tenant = 'request.jwt.claims/app/number';
SELECT status FROM pg_temp.rest('{"idempotency-key": "key-http-00000000009"}', '{"amount": 1}');
SET idempotency.http_tenant = 'request.path';
SELECT status FROM pg_temp.rest('{"idempotency-key": "key-http-00000000009"}', '{"amount": 1}');
SELECT tenant_id, count(*) FROM idempotency_keys GROUP BY 1 ORDER BY 1;
SET idempotency.http_tenant = 'shop.tenant';
SELECT * FROM pg_temp.rest('{"idempotency-key": "key-http-00000000009"}', '{"amount": 1}');
SET idempotency.http_tenant = 'request.jwt.claims/a~2';
SELECT * FROM pg_temp.rest('{"idempotency-key": "key-http-00000000009"}', '{"amount": 1}');
RESET idempotency.http_tenant;
SELECT * FROM pg_temp.rest('{"idempotency-key": "key-http-00000000009"}', '{"amount": 1}');
-- only an operator says where the tenant is
CREATE ROLE app_http;
SET ROLE app_http;
SET idempotency.http_tenant = 'request.path';
RESET ROLE;
DROP ROLE app_http;
SET client_min_messages = error;
DROP SCHEMA http_test CASCADE;
