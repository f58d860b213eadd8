-- Double-entry books: each payment moves an amount from one account to another, so all balances add up to zero.
CREATE EXTENSION idempotency;

CREATE TABLE accounts (
    id      int PRIMARY KEY,
    balance bigint NOT NULL CHECK (id = 0 OR balance >= 0)  -- account 0 is the bank
);
CREATE TABLE payments (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key    text NOT NULL,  -- for the check at the end; deliberately not unique
    payer  int NOT NULL REFERENCES accounts,
    payee  int NOT NULL REFERENCES accounts,
    amount bigint NOT NULL CHECK (amount > 0)
);
CREATE TABLE entries (
    payment bigint NOT NULL REFERENCES payments,
    account int NOT NULL REFERENCES accounts,
    amount  bigint NOT NULL
);

-- The business, which knows nothing of keys.
CREATE FUNCTION transfer(key text, payer int, payee int, amount bigint) RETURNS bigint
LANGUAGE sql AS $$
    UPDATE accounts SET balance = balance + CASE id WHEN $3 THEN $4 ELSE -$4 END WHERE id IN ($2, $3);
    WITH payment AS (
        INSERT INTO payments (key, payer, payee, amount) VALUES ($1, $2, $3, $4) RETURNING id),
    entry AS (
        INSERT INTO entries SELECT id, account, amount
          FROM payment, (VALUES ($2, -$4), ($3, $4)) AS side (account, amount))
    SELECT id FROM payment;
$$;

-- The request: claim, work, complete in one transaction. A declined payment is an answer like any other, so its
-- work is rolled back to a savepoint (the inner block) and its 402 is stored.
CREATE FUNCTION pay(request_key text, request_body jsonb) RETURNS idem_claim_result
LANGUAGE plpgsql AS $$
DECLARE
    answer idem_claim_result;
BEGIN
    SELECT * INTO answer FROM idem_claim('acme', request_key, 'POST', '/payments', request_body);
    IF answer.outcome <> 'claimed' THEN
        RETURN answer;  -- the complete HTTP answer, to be sent as it stands
    END IF;
    BEGIN
        answer.body := jsonb_build_object('payment', transfer(request_key,
            (request_body ->> 'payer')::int, (request_body ->> 'payee')::int, (request_body ->> 'amount')::bigint));
        answer.status := 201;
    EXCEPTION WHEN check_violation THEN
        answer.body := '{"error": "insufficient funds"}';
        answer.status := 402;
    END;
    PERFORM idem_complete('acme', request_key, answer.status, answer.body);
    RETURN answer;
END
$$;

-- The bank funds a hundred customers.
INSERT INTO accounts SELECT i, CASE i WHEN 0 THEN -100 * 100000 ELSE 100000 END FROM generate_series(0, 100) i;

-- What the storm's clients were told.
CREATE TABLE answers (key text NOT NULL, outcome text NOT NULL, status int NOT NULL, body jsonb);
