CREATE EXTENSION idempotency;
-- deliberately without a unique key: a double has to show
CREATE TABLE effects (key text NOT NULL, payload text NOT NULL, run text NOT NULL);
CREATE FUNCTION handle(body jsonb) RETURNS idem_response LANGUAGE plpgsql AS $$
DECLARE
    run text := gen_random_uuid();
BEGIN
    INSERT INTO effects VALUES (body ->> 'key', body ->> 'payload', run);
    RETURN ROW(201, NULL::jsonb, jsonb_build_object('payload', body ->> 'payload', 'run', run), NULL::bytea)::idem_response;
END $$;
