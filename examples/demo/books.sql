-- The books after the storm; every line that ends in "must be" is checked by the demo.
SELECT count(*) AS requests,
       count(*) FILTER (WHERE outcome = 'claimed' AND status = 201) AS payments,
       count(*) FILTER (WHERE outcome = 'claimed' AND status = 402) AS declined,
       count(*) FILTER (WHERE outcome = 'replay') AS replays,
       count(*) FILTER (WHERE outcome = 'in_progress') AS conflicts,
       count(*) FILTER (WHERE outcome NOT IN ('claimed', 'replay', 'in_progress')) AS others
  FROM answers \gset

-- a key that was paid more than once, or paid other than its answer says
SELECT count(*) AS doubles FROM (
    SELECT key FROM payments GROUP BY key HAVING count(*) > 1) double \gset
SELECT count(*) AS lost FROM (
    SELECT key FROM answers WHERE status = 201
    EXCEPT
    SELECT key FROM payments) lost \gset
SELECT count(*) AS unanswered FROM (
    SELECT key FROM payments WHERE key LIKE 'storm%'
    EXCEPT
    SELECT key FROM idempotency_keys WHERE response_status = 201) unanswered \gset
-- a replay that differs from the first answer
SELECT count(*) AS differing FROM answers a
  JOIN idempotency_keys k USING (key)
 WHERE a.outcome IN ('claimed', 'replay')
   AND (a.status, a.body) IS DISTINCT FROM (k.response_status, k.response_body) \gset
SELECT sum(balance) AS balances FROM accounts \gset
SELECT count(*) AS unbooked FROM accounts
 WHERE balance <> CASE id WHEN 0 THEN -100 * 100000 ELSE 100000 END
                  + coalesce((SELECT sum(amount) FROM entries WHERE account = id), 0) \gset

\pset footer off
SELECT * FROM (VALUES
    ('requests', :'requests'), ('payments', :'payments'), ('declined (402)', :'declined'),
    ('replays', :'replays'), ('conflicts (409)', :'conflicts'),
    ('doubles', :'doubles'), ('payments without a key', :'unanswered'), ('answers without a payment', :'lost'),
    ('replays that differ', :'differing'), ('accounts that do not match their entries', :'unbooked'),
    ('sum of balances', :'balances')) AS books ("after the storm", count);

SELECT :requests = :expected_requests AND :others = 0 AND :payments > 0 AND :declined > 0 AND :replays > 0
   AND :doubles = 0 AND :unanswered = 0 AND :lost = 0 AND :differing = 0 AND :unbooked = 0 AND :balances = 0
       AS books_balance \gset
\if :books_balance
\echo books: balanced
\else
\echo books: WRONG
\endif
