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

my $catalog = slurp_file("$ENV{IDEM_SOURCE}/test/t/catalog.sql");
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
