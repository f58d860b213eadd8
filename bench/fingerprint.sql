-- idem_canonical and idem_fingerprint against the hash of a jsonb's text, on bodies like a payment's, a cart's and an
-- export's. Each figure is the median of interleaved rounds, in microseconds a call.
CREATE TEMP TABLE bodies AS
SELECT label, jsonb_build_object('currency', 'EUR', 'reference', 'Invoice 2026-1201 "Müller & Søn"', 'items',
           (SELECT jsonb_agg(jsonb_build_object('id', i, 'name', 'Item number ' || i, 'price', round(i * 1.25, 2), 'tags',
                jsonb_build_array('blue', 'large', i::text), 'stock', i % 2 = 0)) FROM generate_series(1, items) i)) AS body
  FROM (VALUES ('200 B', 1), ('10 kB', 90), ('1 MB', 8600)) AS sizes (label, items);
CREATE TEMP TABLE timings (label text, what text, microseconds float8);
DO $$
DECLARE
    b record;
    what text;
    started timestamptz;
    calls int;
BEGIN
    FOR round IN 1..15 LOOP
        FOR b IN SELECT label, body, length(body::text) AS size FROM bodies LOOP
            calls := greatest(3, 300000 / b.size);
            FOREACH what IN ARRAY '{text,canonical,fingerprint}'::text[] LOOP
                started := clock_timestamp();
                IF what = 'text' THEN
                    FOR i IN 1..calls LOOP PERFORM sha256(convert_to(b.body::text, 'UTF8')); END LOOP;
                ELSIF what = 'canonical' THEN
                    FOR i IN 1..calls LOOP PERFORM idem_canonical(b.body); END LOOP;
                ELSE
                    FOR i IN 1..calls LOOP PERFORM idem_fingerprint('POST', '/payments', b.body); END LOOP;
                END IF;
                INSERT INTO timings VALUES (b.label, what, extract(epoch FROM clock_timestamp() - started) * 1e6 / calls);
            END LOOP;
        END LOOP;
    END LOOP;
END $$;
SELECT label AS body, round(text::numeric, 1) AS "sha256(text) us", round(canonical::numeric, 1) AS "idem_canonical us",
       round(fingerprint::numeric, 1) AS "idem_fingerprint us", round((fingerprint / text)::numeric, 2) AS "fingerprint / sha256(text)"
  FROM (SELECT label,
               percentile_cont(0.5) WITHIN GROUP (ORDER BY microseconds) FILTER (WHERE what = 'text') AS text,
               percentile_cont(0.5) WITHIN GROUP (ORDER BY microseconds) FILTER (WHERE what = 'canonical') AS canonical,
               percentile_cont(0.5) WITHIN GROUP (ORDER BY microseconds) FILTER (WHERE what = 'fingerprint') AS fingerprint
          FROM timings GROUP BY label) AS medians
 ORDER BY text;
