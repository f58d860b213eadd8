# MUST 4 and 11: what a claim leaves in the table, in memory, in the lock table and in the log.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $claims = $ENV{IDEM_LONG} ? 1_000_000 : 100_000;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
$node->append_conf('postgresql.conf', "autovacuum = off\nmax_connections = 20\nmax_locks_per_transaction = 10\nlog_min_messages = debug1\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency; CREATE EXTENSION pgstattuple; CREATE TABLE effects (n int)');

sub tuples
{
	return $node->safe_psql('postgres', "SELECT tuple_count, dead_tuple_count FROM pgstattuple('idempotency_keys')");
}

sub statistics
{
	$node->safe_psql('postgres', 'SELECT pg_stat_force_next_flush()');
	return $node->safe_psql('postgres', "SELECT n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables WHERE relname = 'idempotency_keys'");
}

# run N times: claim, maybe complete, end
sub runs
{
	my ($prefix, $count, $end) = @_;
	my $sql = join "\n", map {
		my $key = sprintf('key-%s-%08d', $prefix, $_);
		"BEGIN; SELECT 1 FROM idem_claim('acme', '$key', 'POST', '/p'); " . ($end eq 'COMMIT' ? "SELECT idem_complete('acme', '$key', 201); " : '') . "$end;"
	} 1 .. $count;
	$node->safe_psql('postgres', "$sql\nSELECT pg_stat_force_next_flush();");
	return;
}

runs('commit', 50, 'COMMIT');
is(tuples(), '50|0', '50 claims and completions: 50 rows, none dead');
is(statistics(), '50|0|0', '50 inserts, 0 updates');
runs('rollback', 50, 'ROLLBACK');
is(tuples(), '50|0', '50 rolled back before completion leave nothing');
is(statistics(), '50|0|0', 'and have written nothing');
my $before = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
$node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, 1000), idem_claim('acme', 'key-commit-00000001', 'POST', '/p')");
$node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, 1000), idem_claim('acme', 'key-commit-00000001', 'POST', '/q')");
$node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, 1000), idem_claim('acme', 'short', 'POST', '/q')");
$node->safe_psql('postgres', "BEGIN; SELECT idem_claim('acme', 'key-open-0000000001', 'POST', '/p'); SELECT count(*) FROM generate_series(1, 1000), idem_claim('acme', 'key-open-0000000001', 'POST', '/p'); ROLLBACK");
is(tuples(), '50|0', '1,000 replays, mismatches, rejections and conflicts leave nothing');
is(statistics(), '50|0|0', 'and have written nothing');
is($node->safe_psql('postgres', "BEGIN; SELECT 1 FROM idem_claim('acme', 'key-no-xid-00000001', 'POST', '/p'); SELECT pg_current_xact_id_if_assigned() IS NULL; ROLLBACK"), "1\nt", 'a claim takes no transaction id');

# memory: many claims in one backend
$node->safe_psql('postgres', <<'SQL');
CREATE PROCEDURE many(first int, claims int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN first..first + claims - 1 LOOP
		PERFORM idem_claim('acme', 'key-' || 1000000000000 + i, 'POST', '/payments', '{"amount": 10, "currency": "EUR", "timestamp": 1}');
		IF i % 100 = 0 THEN
			PERFORM idem_complete('acme', 'key-' || 1000000000000 + i, 201, '{"id": 1}', '{"Location": "/payments/1"}');
			COMMIT;
		ELSE
			ROLLBACK;
		END IF;
	END LOOP;
END $$;
SQL
my $memory = "SELECT sum(total_bytes) FROM pg_backend_memory_contexts";
my @grown = split /\n/, $node->safe_psql('postgres', "CALL many(1, 2000); $memory; CALL many(2001, $claims); $memory;");
cmp_ok($grown[1] - $grown[0], '<', 64 * 1024, "$claims claims in one backend: memory grows by less than 64 kB (" . ($grown[1] - $grown[0]) . ' bytes)');

# the lock table: full is an error that names the setting, and nothing is lost
my ($status, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose
	BEGIN;
	INSERT INTO effects VALUES (1);
	SAVEPOINT s;
	SELECT count(*) FROM generate_series(1, 100000) i, idem_claim('acme', 'key-full-' || 1000000 + i, 'POST', '/p');
	ROLLBACK TO s;
	SELECT outcome FROM idem_claim('acme', 'key-after-full-00001', 'POST', '/p');
	SELECT idem_complete('acme', 'key-after-full-00001', 201);
	COMMIT;", on_error_stop => 0);
like($stderr, qr/ERROR:  53200: out of shared memory/, 'too many claims in one transaction: 53200');
like($stderr, qr/HINT:  You might need to increase "?max_locks_per_transaction"?/, 'and what to change');
is($node->safe_psql('postgres', "SELECT count(*), (SELECT outcome FROM idem_claim('acme', 'key-after-full-00001', 'POST', '/p')) FROM effects"), '1|replay', 'the transaction went on from its savepoint');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE objsubid = 26980"), 0, 'no lock is left');

# a parallel worker must not claim, whatever the caller's function says of itself
($status, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose
	CREATE FUNCTION lying() RETURNS text LANGUAGE sql PARALLEL SAFE AS \$\$ SELECT outcome FROM idem_claim('acme', 'key-parallel-0000001', 'POST', '/p') \$\$;
	CREATE TABLE big AS SELECT generate_series(1, 10000) n;
	ANALYZE big;
	SET force_parallel_mode = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	SELECT lying() FROM big WHERE n < 3;", on_error_stop => 0);
like($stderr, qr/ERROR:  25000: cannot execute idem_claim\(\) during a parallel operation/, 'a claim in a parallel worker is refused');

# no body in the log, at any level, whatever fails
$node->safe_psql('postgres', "ALTER TABLE idempotency_keys ADD CONSTRAINT hostile CHECK (response_status <> 299)");
$node->psql('postgres', "BEGIN; SELECT idem_claim('acme', 'key-secret-000000001', 'POST', '/p', jsonb_build_object('card', '4111' || '111111111111'));
	SELECT idem_complete('acme', 'key-secret-000000001', 201, jsonb_build_object('iban', 'SE' || '3550000000054910000003'), raw_body => NULL, headers => jsonb_build_object('x y', 'SE' || '3550000000054910000003')); COMMIT;", on_error_stop => 0);
$node->psql('postgres', "BEGIN; SELECT idem_claim('acme', 'key-secret-000000001', 'POST', '/p', jsonb_build_object('card', '4111' || '111111111111')); COMMIT;", on_error_stop => 0);
$node->psql('postgres', "SET idempotency.max_response_size = '1kB'; BEGIN; SELECT idem_claim('acme', 'key-secret-000000001', 'POST', '/p');
	SELECT idem_complete('acme', 'key-secret-000000001', 201, jsonb_build_object('iban', repeat('SE' || '3550000000054910000003', 100))); COMMIT;", on_error_stop => 0);
$node->psql('postgres', "SELECT idem_claim('acme', E'key-secret-00000000\\n1', 'POST', '/p')", on_error_stop => 0);
unlike(slurp_file($node->logfile), qr/4111111111111111|SE3550000000054910000003/, 'no body in the log');

done_testing();
