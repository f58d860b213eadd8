-- A small payment, and the tables that each variant needs. CREATE TABLE ... LIKE gives the floor and the hand-written
-- pattern the same columns, checks and index as the extension's table.
CREATE EXTENSION idempotency;
CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO accounts SELECT i, 0 FROM generate_series(1, 100000) i;
CREATE TABLE payments (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account int NOT NULL, amount bigint NOT NULL);
CREATE TABLE floor_keys (LIKE idempotency_keys INCLUDING ALL);
CREATE TABLE hand_keys (LIKE idempotency_keys INCLUDING ALL);
-- the hand-written pattern has a row that is in progress and has no lease; else its CHECK is the same
ALTER TABLE hand_keys DROP CONSTRAINT idempotency_keys_status_check,
    ADD CHECK (CASE
                 WHEN status OPERATOR(pg_catalog.=) 'in_progress'
                 THEN claim_token IS NULL AND lease_expires_at IS NULL AND response_status IS NULL
                 ELSE claim_token IS NULL AND lease_expires_at IS NULL AND response_status IS NOT NULL
               END);
VACUUM ANALYZE;

-- the same payment as a function, for idem_execute()
CREATE FUNCTION pay(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    UPDATE accounts SET balance = balance + (body ->> 'amount')::bigint WHERE id = (body ->> 'account')::int;
    INSERT INTO payments (account, amount) VALUES ((body ->> 'account')::int, (body ->> 'amount')::bigint);
    RETURN jsonb_build_object('payment', 1);
END $$;
