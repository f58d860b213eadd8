-- The shop: accounts with balances in cents, payments between them, refunds. The pool's role owns nothing else.
CREATE EXTENSION IF NOT EXISTS idempotency;
CREATE SCHEMA shop;
CREATE TABLE shop.accounts (
    id      integer PRIMARY KEY,
    balance bigint NOT NULL CHECK (balance >= 0)
);
CREATE TABLE shop.payments (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payer    integer NOT NULL REFERENCES shop.accounts,
    payee    integer NOT NULL REFERENCES shop.accounts,
    amount   bigint NOT NULL CHECK (amount > 0),
    refunded bigint NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND amount)
);

-- Moves money; raises what the client is to be told, as a status in PTxyz.
CREATE FUNCTION shop.move(payer integer, payee integer, amount bigint) RETURNS void
LANGUAGE plpgsql SET search_path = shop, pg_temp AS $$
BEGIN
    -- in one order, so that two payments between the same accounts don't deadlock
    PERFORM FROM accounts WHERE id IN (payer, payee) ORDER BY id FOR UPDATE;
    UPDATE accounts SET balance = balance - amount WHERE id = payer AND balance >= amount;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PT402', MESSAGE = 'The payer has not enough money.';
    END IF;
    UPDATE accounts SET balance = balance + amount WHERE id = payee;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PT404', MESSAGE = 'There is no such payee.';
    END IF;
END $$;

-- The handler of POST /v2/payments, run by idem_execute().
CREATE FUNCTION shop.pay(body jsonb) RETURNS idem_response
LANGUAGE plpgsql AS $$
DECLARE
    id bigint;
BEGIN
    PERFORM shop.move((body ->> 'payer')::int, (body ->> 'payee')::int, (body ->> 'amount')::bigint);
    INSERT INTO shop.payments (payer, payee, amount)
    VALUES ((body ->> 'payer')::int, (body ->> 'payee')::int, (body ->> 'amount')::bigint) RETURNING payments.id INTO id;
    RETURN ROW(201, jsonb_build_object('Location', '/payments/' || id),
               jsonb_build_object('id', id, 'amount', body -> 'amount'), NULL)::idem_response;
END $$;
