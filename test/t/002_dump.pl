# pg_dump and restore keep every completed key and the grants. (pg_dump leaves out policies on an extension's table;
# docs/operations.md says so. One that exists must not make the restore fail.)
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE app');
$node->safe_psql('postgres', 'CREATE DATABASE old');
$node->safe_psql('old', <<'SQL');
CREATE SCHEMA idem;
CREATE EXTENSION idempotency SCHEMA idem;
GRANT USAGE ON SCHEMA idem TO app;
GRANT EXECUTE ON FUNCTION idem.idem_claim, idem.idem_complete TO app;
ALTER TABLE idem.idempotency_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON idem.idempotency_keys USING (tenant_id = 'acme');
DO $$ BEGIN
	FOR i IN 1..100 LOOP
		PERFORM idem.idem_claim('acme', 'key-' || 1000000000000 + i, 'POST', '/p', jsonb_build_object('n', i));
		PERFORM idem.idem_complete('acme', 'key-' || 1000000000000 + i, 201, CASE WHEN i % 2 = 0 THEN jsonb_build_object('n', i) END,
			'{"Location": "/x"}', CASE WHEN i % 2 = 1 THEN '\x00ff'::bytea END);
	END LOOP;
END $$;
SQL

my $rows = 'SELECT md5(string_agg(k::text, chr(10) ORDER BY key)) FROM idem.idempotency_keys k';
my $dump = $node->basedir . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('old') ], 'pg_dump');
for my $new ('new', 'newer')
{
	$node->safe_psql('postgres', "CREATE DATABASE $new");
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr($new), $dump ], "pg_restore into $new");
	is($node->safe_psql($new, $rows), $node->safe_psql('old', $rows), 'every row is there');
	is($node->safe_psql($new, "SELECT outcome, status, headers, body, raw_body FROM idem.idem_claim('acme', 'key-1000000000007', 'POST', '/p', '{\"n\": 7}')"),
		'replay|201|{"Location": "/x", "Idempotent-Replayed": "true"}||\x00ff', 'and replays');
	is($node->safe_psql($new, "SELECT outcome FROM idem.idem_claim('acme', 'key-1000000000007', 'POST', '/p', '{\"n\": 8}')"), 'mismatch', 'and is compared');
	is($node->safe_psql($new, "SET ROLE app; BEGIN; SELECT outcome FROM idem.idem_claim('acme', 'key-2000000000007', 'POST', '/p'); ROLLBACK"), 'claimed', 'the grants are there');
	$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr($new) ], 'the restored database is dumped again');
}

# two databases share nothing
my $holder = $node->background_psql('old');
$holder->query("BEGIN; SELECT outcome FROM idem.idem_claim('acme', 'key-both-00000000001', 'POST', '/p');");
is($node->safe_psql('new', "BEGIN; SELECT outcome FROM idem.idem_claim('acme', 'key-both-00000000001', 'POST', '/p'); ROLLBACK"), 'claimed',
	'the same tenant and key in another database is another key');
is($node->safe_psql('old', "SELECT outcome FROM idem.idem_claim('acme', 'key-both-00000000001', 'POST', '/p')"), 'in_progress', 'and in this one is held');
$holder->quit;

done_testing();
