# ALTER EXTENSION UPDATE from 0.9.0: every key stays, and what comes of it is what CREATE EXTENSION makes and pg_dump restores. Before it, the
# new library serves the old objects.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE app');
$node->safe_psql('postgres', "CREATE DATABASE $_") for ('fresh', 'updated', 'restored');
$node->safe_psql('fresh', 'CREATE SCHEMA idem; CREATE EXTENSION idempotency SCHEMA idem');
$node->safe_psql('updated', <<'SQL');
CREATE SCHEMA idem;
CREATE EXTENSION idempotency SCHEMA idem VERSION '0.9.0';
GRANT USAGE ON SCHEMA idem TO app;
GRANT EXECUTE ON FUNCTION idem.idem_claim, idem.idem_complete TO app;
SET search_path = idem;
CREATE FUNCTION public.run(n int, tenant text DEFAULT 'acme') RETURNS text LANGUAGE plpgsql SET search_path = idem AS $$
DECLARE
	answer idem_claim_result := idem_claim(tenant, 'key-' || 1000000000000 + n, 'POST', '/payments', jsonb_build_object('n', n));
BEGIN
	IF answer.outcome = 'claimed' THEN
		PERFORM idem_complete(tenant, 'key-' || 1000000000000 + n, 201, jsonb_build_object('n', n));
	END IF;
	RETURN answer.outcome;
END $$;
SQL

# what an extension consists of, as text; comments and rights too
my $catalog = <<'SQL';
WITH member AS (SELECT classid, objid FROM pg_depend WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
                   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idempotency')),
relation AS (SELECT c.* FROM pg_class c JOIN member ON classid = 'pg_class'::regclass AND objid = c.oid),
composite AS (SELECT t.* FROM pg_type t JOIN member ON classid = 'pg_type'::regclass AND objid = t.oid)
SELECT string_agg(line, E'\n' ORDER BY line COLLATE "C") FROM (
  SELECT 'member ' || pg_describe_object(classid, objid, 0) || ' ' || coalesce(obj_description(objid, classid::regclass::name), '') FROM member
  UNION ALL SELECT 'function ' || CASE WHEN prokind IN ('f', 'p') THEN pg_get_functiondef(p.oid) END || coalesce(proacl::text, '-') FROM pg_proc p JOIN member ON classid = 'pg_proc'::regclass AND objid = p.oid
  UNION ALL SELECT 'relation ' || relname || relkind::text || coalesce(relacl::text, '-') || relreplident::text || coalesce(reloptions::text, '') FROM relation
  UNION ALL SELECT 'column ' || attrelid::regclass::text || ' ' || attnum::text || attname || ' ' || format_type(atttypid, atttypmod) || attnotnull::text || coalesce((SELECT collname FROM pg_collation WHERE oid = attcollation), '')
              || coalesce(pg_get_expr(adbin, adrelid), '') || coalesce(col_description(attrelid, attnum), '')
              FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
             WHERE attrelid IN (SELECT oid FROM relation UNION ALL SELECT typrelid FROM composite WHERE typrelid <> 0) AND attnum > 0 AND NOT attisdropped
  UNION ALL SELECT 'constraint ' || conrelid::regclass::text || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid IN (SELECT oid FROM relation)
  UNION ALL SELECT 'index ' || pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid IN (SELECT oid FROM relation)
  UNION ALL SELECT 'trigger ' || pg_get_triggerdef(oid) || tgenabled::text FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM relation)
  UNION ALL SELECT 'view ' || pg_get_viewdef(oid) FROM relation WHERE relkind = 'v'
  UNION ALL SELECT 'extension ' || extversion || (SELECT string_agg(t::regclass::text, ',') FROM unnest(extconfig) AS t) || coalesce(extcondition::text, '') FROM pg_extension WHERE extname = 'idempotency') AS k (line)
SQL
my $rows = "SELECT md5(string_agg(k::text, chr(10) ORDER BY key)) FROM idem.idempotency_keys k";
my $fresh = $node->safe_psql('fresh', $catalog);
cmp_ok(length($fresh), '>', 20000, 'the catalog is read');
isnt($node->safe_psql('updated', $catalog), $fresh, 'two versions differ');

# the new library beside the objects of 0.9.0, in a session that lives through the update
my $session = $node->background_psql('updated');
is($session->query("SELECT string_agg(public.run(n), ' ' ORDER BY n) FROM generate_series(1, 3) n"), 'claimed claimed claimed', 'claims and completes');
is($node->safe_psql('updated', "SELECT string_agg(public.run(n), ' ') FROM generate_series(1, 3) n"), 'replay replay replay', 'replays');
is($node->safe_psql('updated', "SELECT outcome FROM idem.idem_claim('acme', 'key-1000000000001', 'POST', '/payments', '2')"), 'mismatch', 'compares');
is($node->safe_psql('updated', "SELECT idem.idem_complete('acme', 'key-lease-00000001', 200, token => (SELECT token FROM idem.idem_claim('acme', 'key-lease-00000001', 'POST', '/p', lease => '10 s')))"), 'completed', 'leases');
is($node->safe_psql('updated', "CREATE FUNCTION public.handle(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT \$1'; SELECT outcome, status FROM idem.idem_execute('acme', 'key-execute-000001', 'POST', '/p', '1', 'public.handle(jsonb)')"), 'completed|200', 'executes');
is($node->safe_psql('updated', "SELECT idem.idem_allow('POST', '/payments'); SELECT idem.idem_bind_tenant('app', 'acme'); SELECT state FROM idem.idem_lookup('acme', 'key-1000000000001'); CALL idem.idem_purge(); SELECT idem.idem_forget('acme', 'key-execute-000001'); SELECT count(*) FROM idem.idempotency_in_flight; SELECT scope FROM idem.idem_counters()"),
	"\n\ncompleted\n1\n0\nsession", 'the operator\'s functions');

# the update, while a key is in flight
my $holder = $node->background_psql('updated');
$holder->query("BEGIN; SELECT idem.idem_claim('acme', 'key-1000000000900', 'POST', '/payments');");
my $before = $node->safe_psql('updated', $rows);
$node->safe_psql('updated', 'ALTER EXTENSION idempotency UPDATE');
is($holder->query("SELECT idem.idem_complete('acme', 'key-1000000000900', 201); ROLLBACK;"), 'completed', 'a claim from before the update is completed after it');
$holder->quit;
is($node->safe_psql('updated', $rows), $before, 'every row is there');
is($session->query('SELECT public.run(1)'), 'replay', 'a session of before the update goes on');
is($session->query("SELECT idem.idem_limit_tenant('globex', 1)"), '', 'and knows what is new');
is($session->query("SELECT public.run(1, 'globex') || ' ' || public.run(2, 'globex')"), 'claimed rejected', 'and what it means');
$session->quit;
is($node->safe_psql('updated', "SET ROLE app; SELECT outcome FROM idem.idem_claim('acme', 'key-1000000000001', 'POST', '/payments', '{\"n\": 1}')"), 'replay', 'the grants are there');

# the same objects, however they came
$node->safe_psql('updated', 'REVOKE ALL ON FUNCTION idem.idem_claim, idem.idem_complete FROM app');
is($node->safe_psql('updated', $catalog), $fresh, 'an updated extension is a fresh one');
$node->command_ok([ 'pg_dump', '-Fc', '-f', $node->basedir . '/dump', $node->connstr('updated') ], 'pg_dump');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), $node->basedir . '/dump' ], 'pg_restore');
is($node->safe_psql('restored', $catalog), $fresh, 'so is a restored one');
is($node->safe_psql('restored', $rows), $node->safe_psql('updated', $rows), 'with every row');
is($node->safe_psql('restored', 'SELECT * FROM idem.idempotency_limits; SELECT * FROM idem.idempotency_tenants; SELECT method, path_pattern FROM idem.idempotency_operations'),
	"globex|1|\napp|acme\nPOST|/payments", 'and every policy');
is($node->safe_psql('restored', "SELECT public.run(1) || ' ' || public.run(3, 'globex')"), 'replay rejected', 'which holds');

# a dump of 0.9.0 goes into a server with the new version
$node->safe_psql('postgres', "CREATE DATABASE older; CREATE DATABASE newer");
$node->safe_psql('older', "CREATE EXTENSION idempotency VERSION '0.9.0'; DO \$\$ BEGIN PERFORM idem_claim('acme', 'key-1000000000001', 'POST', '/p'); PERFORM idem_complete('acme', 'key-1000000000001', 201); END \$\$");
$node->command_ok([ 'pg_dump', '-Fc', '-f', $node->basedir . '/older', $node->connstr('older') ], 'pg_dump of 0.9.0');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('newer'), $node->basedir . '/older' ], 'restored');
is($node->safe_psql('newer', "SELECT extversion FROM pg_extension WHERE extname = 'idempotency'; SELECT outcome FROM idem_claim('acme', 'key-1000000000001', 'POST', '/p')"), "1.0.0\nreplay", 'as the new version, and replays');

done_testing();
