CREATE EXTENSION idempotency;
CREATE TABLE paid (key text NOT NULL, amount numeric NOT NULL);
CREATE FUNCTION pay(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF (body ->> 'amount')::numeric > 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'PT402', MESSAGE = 'declined';
    END IF;
    INSERT INTO paid VALUES (body ->> 'key', (body ->> 'amount')::numeric);
    RETURN jsonb_build_object('paid', body -> 'amount');
END $$;
