-- Canonical JSON and fingerprints: the published vectors, then what a client might send.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
\getenv abs_srcdir PG_ABS_SRCDIR

CREATE TEMP TABLE vectors (file text DEFAULT current_setting('my.file'), line jsonb);
SET my.file = 'jcs';
\set file :abs_srcdir '/vectors/jcs.jsonl'
COPY vectors (line) FROM :'file' WITH (FORMAT csv, DELIMITER E'\x01', QUOTE E'\x02');
SET my.file = 'fingerprint';
\set file :abs_srcdir '/vectors/fingerprint.jsonl'
COPY vectors (line) FROM :'file' WITH (FORMAT csv, DELIMITER E'\x01', QUOTE E'\x02');
SET my.file = 'reject';
\set file :abs_srcdir '/vectors/reject.jsonl'
COPY vectors (line) FROM :'file' WITH (FORMAT csv, DELIMITER E'\x01', QUOTE E'\x02');
SELECT file, count(*) FROM vectors GROUP BY file ORDER BY file;

-- RFC 8785 to the byte in strict mode, exact numbers by default; no row: all agree
SELECT line ->> 'name' AS differs_strict, idem_canonical((line ->> 'input')::jsonb, strict => true)
  FROM vectors WHERE file = 'jcs'
   AND idem_canonical((line ->> 'input')::jsonb, strict => true) IS DISTINCT FROM line ->> 'canonical';
SELECT line ->> 'name' AS differs_lossless, idem_canonical((line ->> 'input')::jsonb)
  FROM vectors WHERE file = 'jcs'
   AND idem_canonical((line ->> 'input')::jsonb) IS DISTINCT FROM line ->> 'lossless';
-- two values share a text if and only if they are equal
SELECT a.line ->> 'name' AS a, b.line ->> 'name' AS b
  FROM vectors a, vectors b
 WHERE a.file = 'jcs' AND b.file = 'jcs'
   AND ((a.line ->> 'input')::jsonb = (b.line ->> 'input')::jsonb)
    <> (idem_canonical((a.line ->> 'input')::jsonb) = idem_canonical((b.line ->> 'input')::jsonb));
-- the digest is over the preimage, and both are as published
SELECT line ->> 'name' AS differs
  FROM vectors WHERE file = 'fingerprint'
   AND (encode(idem_fingerprint(line ->> 'method', line ->> 'path', (line ->> 'body')::jsonb), 'hex') <> line ->> 'sha256'
        OR encode(sha256(convert_to(line ->> 'preimage', 'UTF8')), 'hex') <> line ->> 'sha256');
-- what the jsonb cast refuses never reaches the extension
CREATE FUNCTION pg_temp.cast_state(input text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM input::jsonb;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
SELECT line ->> 'name' AS differs, pg_temp.cast_state(line ->> 'input')
  FROM vectors WHERE file = 'reject' AND line ->> 'name' <> 'deep-60000' AND pg_temp.cast_state(line ->> 'input') <> line ->> 'sqlstate';
-- (the file describes this one in words)
SELECT pg_temp.cast_state(repeat('[', 60000) || repeat(']', 60000)) = line ->> 'sqlstate' AS too_deep
  FROM vectors WHERE line ->> 'name' = 'deep-60000';

-- numbers: layout thresholds, scale, exact digits
SELECT input, idem_canonical(input::jsonb), idem_canonical(input::jsonb, strict => true) AS strict
  FROM unnest('{0.000001,0.0000001,1.23456e-6,9.999999999999997e-7,1e20,1e21,999999999999999900000,1234567890123456800000,
                1E30,1e-0007,1e0005,-1e-7,1.0,1.00,1e0,10e-1,-0,-0.0,1.10,-42.0,1000000,
                295147905179352825856,295147905179352830000,1424953923781206.25,12345678901234567.89,12345678901234567.88,
                18446744073709551615,9223372036854775807,-9223372036854775808,9007199254740992,9007199254740993,
                4.9e-324,1e-400,5e-324,1e23,473e19,123456789012345680000}'::text[]) AS input;
SELECT idem_canonical('1e131071'), idem_canonical('1e-16383');
SELECT idem_canonical('[1, 1e309]', strict => true);
SELECT length(idem_canonical(('[' || string_agg('1e131071', ',') || ']')::jsonb)) FROM generate_series(1, 9000);

-- names: UTF-16 order, raw names sorted, no locale
SELECT idem_canonical('{"\ue000":3,"\ud800\udc00":2,"\ud7ff":1,"\udbff\udfff":4,"zk\ufffd":1,"zk\ud83d\ude00":2,"zk":3}');
SELECT idem_canonical('{"A":1,"\n":2,"\"":3,"!":4,"#":5,"\\":6,"]":7,"[":8,"":9,"10":1,"9":2,"1":3,"01":4,"a":1,"B":2,"_":3,"__proto__":0}');
-- strings: five short escapes, the rest as they are
SELECT idem_canonical('"\u0008\u0009\u000a\u000c\u000d\u000b\u001F\u007f\u2028 a\/b <>&'' \\ud83d \" \\"');
SELECT idem_canonical('[[], {}, "", null, true, false, [[[]]]]'), idem_canonical(NULL) IS NULL AS null_is_null;

-- large: 200,000 names, and as deep as jsonb allows
SELECT length(idem_canonical((SELECT jsonb_object_agg('k' || i, i) FROM generate_series(1, 200000) i)));
SELECT length(idem_canonical((repeat('[', 6000) || repeat(']', 6000))::jsonb));

-- ignored: JSON pointers into the document as it came
SELECT ignore, idem_canonical('{"a/b":1,"m~n":2,"items":[{"ts":1,"v":2},3,4],"x":{"-":1},"keep":3}', ignore)
  FROM (VALUES ('{}'::text[]), ('{/a~1b,/m~0n,/items/0/ts,/x/-}'), ('{/items/0,/items/1}'), ('{/items/00,/items/-,/items/9,/none/x}'),
               ('{/items}'), ('{/x,/keep,/keep}'), ('{/}')) AS v (ignore);

-- fingerprints: method without case (ASCII only), path as given, body or bytes
SELECT idem_fingerprint('post', '/x') = idem_fingerprint('POST', '/x') AS same_method,
       idem_fingerprint('POST', '/x?b=1&a=2') = idem_fingerprint('POST', '/x?a=2&b=1') AS other_query,
       idem_fingerprint('POST', '/a%2Fb') = idem_fingerprint('POST', '/a/b') AS other_path,
       idem_fingerprint('POST', '/x', '{"a": 1}') = idem_fingerprint('POST', '/x', raw_body => '{"a":1}') AS same_bytes,
       idem_fingerprint('POST', '/x', '{"a": 1}') = idem_fingerprint('POST', '/x', raw_body => '{"a": 1}') AS other_bytes,
       idem_fingerprint('POST', '/x', 'null') = idem_fingerprint('POST', '/x') AS null_is_a_body,
       idem_fingerprint('POST', '/x', '{"a":1,"t":2}', ignore => '{/t}') = idem_fingerprint('POST', '/x', '{"a":1}') AS ignored,
       idem_fingerprint('POST', '/x', '{"timestamp":1}') = idem_fingerprint('POST', '/x', '{}') AS nothing_by_itself,
       idem_fingerprint('POST', '/x', to_jsonb('{"a":1}'::text)) = idem_fingerprint('POST', '/x', '{"a":1}') AS string_of_json,
       length(idem_fingerprint('POST', '/x')) AS bytes;

-- the key out of a header
SELECT header, idem_key_from_header(header) AS key
  FROM (VALUES ('"8e03978e-40d5-43e8-bc93-6894a57f9324"'), ('8e03978e-40d5-43e8-bc93-6894a57f9324'), (' "abcdefghijklmnop" '),
               ('"abcdefghijklmnop";v=1;w'), ('"abcdefghijklmnop"; v="a;b"'), ('"abc\"defghijklmnop"'), ('"abc\\defghijklmnop"'),
               ('""'), (''), ('  '), ('bare with space'), (NULL)) AS v (header);
SELECT idem_key_from_header('"abc\ndefghijklmnop"');
SELECT idem_key_from_header('"abcdefghijklmnop');
SELECT idem_key_from_header('"abcdefghijklmnop\');
SELECT idem_key_from_header('"abcdefghijklmnop" x');
SELECT idem_key_from_header('"abcdefghijklmnop";=1');
SELECT idem_key_from_header('"a", "b"');
SELECT idem_key_from_header('abcdefghijklmnop,abcdefghijklmnop');
SELECT idem_key_from_header('"abcdefghijklmnöp"');
