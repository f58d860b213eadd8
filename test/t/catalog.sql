-- what the extension consists of, as text; comments and rights too
WITH member AS (SELECT classid, objid FROM pg_depend WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
                   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idempotency')),
relation AS (SELECT c.* FROM pg_class c JOIN member ON classid = 'pg_class'::regclass AND objid = c.oid),
composite AS (SELECT t.* FROM pg_type t JOIN member ON classid = 'pg_type'::regclass AND objid = t.oid)
SELECT string_agg(line, E'\n' ORDER BY line COLLATE "C") FROM (
  SELECT 'member ' || pg_describe_object(classid, objid, 0) || ' ' || coalesce(obj_description(objid, classid::regclass::name), '') FROM member
  UNION ALL SELECT 'function ' || CASE WHEN prokind IN ('f', 'p') THEN pg_get_functiondef(p.oid) END || coalesce(proacl, acldefault('f', proowner))::text FROM pg_proc p JOIN member ON classid = 'pg_proc'::regclass AND objid = p.oid
  UNION ALL SELECT 'relation ' || relname || relkind::text || coalesce(relacl, acldefault('r', relowner))::text || relreplident::text || coalesce(reloptions::text, '') FROM relation
  UNION ALL SELECT 'column ' || attrelid::regclass::text || ' ' || attnum::text || attname || ' ' || format_type(atttypid, atttypmod) || attnotnull::text || coalesce((SELECT collname FROM pg_collation WHERE oid = attcollation), '')
              || coalesce(pg_get_expr(adbin, adrelid), '') || coalesce(col_description(attrelid, attnum), '')
              FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
             WHERE attrelid IN (SELECT oid FROM relation UNION ALL SELECT typrelid FROM composite WHERE typrelid <> 0) AND attnum > 0 AND NOT attisdropped
  UNION ALL SELECT 'constraint ' || conrelid::regclass::text || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid IN (SELECT oid FROM relation)
  UNION ALL SELECT 'index ' || pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid IN (SELECT oid FROM relation)
  UNION ALL SELECT 'trigger ' || pg_get_triggerdef(oid) || tgenabled::text FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM relation)
  UNION ALL SELECT 'view ' || pg_get_viewdef(oid) FROM relation WHERE relkind = 'v'
  UNION ALL SELECT 'extension ' || extversion || (SELECT string_agg(t::regclass::text, ',') FROM unnest(extconfig) AS t) || coalesce(extcondition::text, '') FROM pg_extension WHERE extname = 'idempotency') AS k (line)
