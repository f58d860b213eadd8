# Leases among many: a lease that ran out is taken over by one of any number; a worker that slept past its lease can't
# commit; updates are heap-only; a crash keeps the lease.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
$node->append_conf('postgresql.conf', "max_connections = 60\nlog_lock_waits = on\ndeadlock_timeout = 10ms\nautovacuum = off\n");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION idempotency;
CREATE TABLE take_overs (key text, attempt int, token uuid);
CREATE TABLE effects (key text);  -- deliberately not unique
CREATE PROCEDURE fight() LANGUAGE plpgsql AS $$
DECLARE
	answer idem_claim_result;
	k text;
BEGIN
	FOR i IN 1..200 LOOP
		COMMIT;
		k := 'key-fight-' || lpad(i::text, 10, '0');
		answer := idem_claim('acme', k, 'POST', '/p', lease => '1 hour');
		IF answer.outcome = 'claimed' THEN
			INSERT INTO take_overs VALUES (k, answer.attempt, answer.token);
			COMMIT;
		END IF;
	END LOOP;
END $$;
DO $$ BEGIN
	FOR i IN 1..200 LOOP
		PERFORM idem_claim('acme', 'key-fight-' || lpad(i::text, 10, '0'), 'POST', '/p', lease => '1 s');
	END LOOP;
	UPDATE idempotency_keys SET lease_expires_at = clock_timestamp() - interval '1 ms';
END $$;
SQL
my $script = $node->basedir . '/fight.sql';
append_to_file($script, "CALL fight();\n");
$node->command_ok([ 'pgbench', '-n', '-c', 16, '-j', 2, '-t', 1, '-f', $script, $node->connstr('postgres') ], '16 connections fight for 200 leases that ran out');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT key), min(attempt), max(attempt) FROM take_overs'), '200|200|2|2', '200 take-overs, not one more');
is($node->safe_psql('postgres', 'SELECT count(*) FROM idempotency_keys AS k JOIN take_overs AS t ON t.token = k.claim_token'), 200, 'each holds the lease');
unlike(slurp_file($node->logfile), qr/still waiting for \S+ on (?!extension)/, 'nobody waited for a lock on a key or row');

# sixteen workers at a time, leases of a second: most sleep past theirs, and each of those is refused
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE answers (key text, attempt int, slept boolean, state text);
CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
DECLARE
	answer idem_claim_result;
	k text;
	late boolean;
BEGIN
	FOR i IN 1..6 LOOP
		COMMIT;
		k := 'key-worker-' || lpad((1 + (random() * 3)::int)::text, 10, '0') || i;
		answer := idem_claim('acme', k, 'POST', '/p', lease => '1 s');
		COMMIT;
		CONTINUE WHEN answer.outcome <> 'claimed';
		late := random() < 0.5 AND answer.attempt = 1;
		IF late THEN
			PERFORM pg_sleep(1.05);
		END IF;
		BEGIN
			INSERT INTO effects VALUES (k);
			PERFORM idem_complete('acme', k, 201, token => answer.token);
			INSERT INTO answers VALUES (k, answer.attempt, late, 'completed');
		EXCEPTION WHEN SQLSTATE 'ID004' THEN
			INSERT INTO answers VALUES (k, answer.attempt, late, SQLSTATE);
		END;
	END LOOP;
END $$;
SQL
my $work = $node->basedir . '/work.sql';
append_to_file($work, "CALL work();\n");
$node->command_ok([ 'pgbench', '-n', '-c', 16, '-j', 2, '-t', 3, '-f', $work, $node->connstr('postgres') ], '16 connections work, and sleep');
is($node->safe_psql('postgres', "SELECT count(*) FROM answers WHERE slept AND state <> 'ID004'"), 0, 'who slept past its lease was refused, always');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM answers WHERE slept'), '>', 3, 'and some did');
is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT key) FROM effects'), 0, 'no key has two effects');
is($node->safe_psql('postgres', "SELECT count(*) FROM effects AS e FULL JOIN idempotency_keys AS k USING (key) WHERE key LIKE 'key-worker%' AND (e.key IS NULL) <> (k.status = 'in_progress')"),
	0, 'effect and completed key came together');

# a claim, a renewal, a checkpoint and a completion: one row, heap-only updates
$node->safe_psql('postgres', 'TRUNCATE idempotency_keys; SELECT pg_stat_reset();');
my $life = $node->basedir . '/life.pgbench';
append_to_file($life, <<'SQL');
\set r random(1, 999999999999)
SELECT token FROM idem_claim('acme', 'life-' || :client_id || '-' || lpad(:r::text, 12, '0'), 'POST', '/p', '{"a": 1}', lease => '60 s') \gset
SELECT idem_renew('acme', 'life-' || :client_id || '-' || lpad(:r::text, 12, '0'), :'token', '2 min');
SELECT idem_checkpoint('acme', 'life-' || :client_id || '-' || lpad(:r::text, 12, '0'), :'token', 'charged', '{"charge": "ch_1"}');
SELECT idem_complete('acme', 'life-' || :client_id || '-' || lpad(:r::text, 12, '0'), 201, '{"payment": 1}', '{"Location": "/payments/1"}', token => :'token');
SQL
# pgbench's \gset has no quotes for a value: a function gives the token back
$node->safe_psql('postgres', q(CREATE FUNCTION token_of(k text) RETURNS uuid LANGUAGE sql AS 'SELECT claim_token FROM idempotency_keys WHERE key = k'));
my $text = slurp_file($life) =~ s/ \\gset/;/r;
$text =~ s/:'token'/token_of('life-' || :client_id || '-' || lpad(:r::text, 12, '0'))/g;
unlink $life;
append_to_file($life, $text);
$node->command_ok([ 'pgbench', '-n', '-c', 8, '-j', 2, '-t', 250, '-f', $life, $node->connstr('postgres') ], '2,000 leases live their lives');
$node->poll_query_until('postgres', "SELECT n_tup_upd = 6000 FROM pg_stat_user_tables WHERE relname = 'idempotency_keys'");
my ($updates, $hot) = split /\|/, $node->safe_psql('postgres', "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'idempotency_keys'");
is($updates, 6000, 'three updates a key');
cmp_ok($hot / $updates, '>', 0.85, sprintf('of which %.1f %% are heap-only', 100 * $hot / $updates));
diag(sprintf('heap-only updates: %.1f %%', 100 * $hot / $updates));

# a lease survives a crash, and so does its token
my $token = $node->safe_psql('postgres', "SELECT token FROM idem_claim('acme', 'key-crash-0000000001', 'POST', '/p', lease => '1 hour')");
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', "SELECT outcome FROM idem_claim('acme', 'key-crash-0000000001', 'POST', '/p', lease => '1 hour')"), 'in_progress', 'after a crash the lease is still held');
is($node->safe_psql('postgres', "SELECT idem_complete('acme', 'key-crash-0000000001', 201, token => '$token')"), 'completed', 'and its worker completes it');

# a change of the registry counts in every session at once, without a query a claim
my $other = $node->background_psql('postgres');
is($other->query("SELECT outcome FROM idem_claim('acme', NULL, 'POST', '/orders')"), 'rejected', 'another session: no registry');
$node->safe_psql('postgres', "SELECT idem_allow('POST', '/payments')");
is($other->query("SELECT outcome FROM idem_claim('acme', NULL, 'POST', '/orders')"), 'bypass', 'an operation is registered: at once');
$node->safe_psql('postgres', 'DELETE FROM idempotency_operations');
is($other->query("SELECT outcome FROM idem_claim('acme', NULL, 'POST', '/orders')"), 'rejected', 'deleted by hand: at once');
$other->query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT outcome FROM idem_claim('acme', NULL, 'POST', '/orders');");
$node->safe_psql('postgres', "SELECT idem_allow('POST', '/payments')");
is($other->query("SELECT outcome FROM idem_claim('acme', NULL, 'POST', '/orders')"), 'bypass', 'within a transaction of an older snapshot, too');
$other->query('ROLLBACK;');
$other->quit;
my $scans = sub {
	my $claims = shift;
	my $before = $node->safe_psql('postgres', "SELECT seq_scan + coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = 'idempotency_operations'");
	$node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, $claims) AS i, idem_claim('acme', 'key-scans-0000000001', 'GET', '/' || i);");
	return $node->safe_psql('postgres', "SELECT seq_scan + coalesce(idx_scan, 0) - $before FROM pg_stat_user_tables WHERE relname = 'idempotency_operations'");
};
my $once = $scans->(1);
cmp_ok($once, '>', 0, 'a session reads the registry');
is($scans->(1000), $once, 'once, for a thousand claims as for one');

# dump and restore: leases, registry, bindings
$node->safe_psql('postgres', "CREATE ROLE app_acme; SELECT idem_bind_tenant('app_acme', 'acme'); SELECT idem_allow('PUT', '/accounts/{id}', retention => '2 days', lease => '30 s', ignore => '{/a}');");
my $lease = $node->safe_psql('postgres', "SELECT token FROM idem_claim('acme', 'key-dumped-000000001', 'POST', '/payments', lease => '1 hour')");
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('restored') ], 'restored');
is($node->safe_psql('restored', 'SELECT * FROM idempotency_operations ORDER BY 1'), "POST|/payments|t||f||{}|\nPUT|/accounts/{id}|t|2 days|t|00:00:30|{/a}|", 'the registry is there');
is($node->safe_psql('restored', 'SELECT * FROM idempotency_tenants'), 'app_acme|acme', 'the bindings are there');
is($node->safe_psql('restored', "SELECT idem_complete('acme', 'key-dumped-000000001', 201, token => '$lease')"), 'completed', 'the lease is there');

done_testing();
