# The purge under real pg_cron, in its own database and from another one; counters of the whole server; the queries for
# the prometheus exporter.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
my $host = $node->host;
$node->append_conf('postgresql.conf', <<"CONF");
shared_preload_libraries = 'pg_cron, idempotency'
cron.database_name = 'postgres'
cron.host = '$host'
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_cron');
for my $database ('postgres', 'shop')
{
	$node->safe_psql($database, 'CREATE SCHEMA idem; CREATE EXTENSION idempotency SCHEMA idem;');
	$node->safe_psql($database, <<'SQL');
DO $$ BEGIN
	FOR i IN 1..300 LOOP
		PERFORM idem.idem_claim('acme', 'key-cron--' || lpad(i::text, 10, '0'), 'POST', '/p');
		PERFORM idem.idem_complete('acme', 'key-cron--' || lpad(i::text, 10, '0'), 200);
	END LOOP;
END $$;
UPDATE idem.idempotency_keys SET expires_at = now() - interval '1 hour' WHERE right(key, 1) <> '0';
SQL
}

# counters: of the whole server, since both sessions have ended
is($node->safe_psql('shop', 'SELECT scope, claims, completions, purged FROM idem.idem_counters()'), 'server|600|600|0', 'counters of all sessions and databases');

# scheduled in its own database: the same job twice, then by the schedule given last
my $job = $node->safe_psql('postgres', 'SELECT idem.idem_schedule_purge()');
is($node->safe_psql('postgres', "SELECT schedule, command, database, active FROM cron.job WHERE jobid = $job"), '*/5 * * * *|CALL idem.idem_purge()|postgres|t', 'the job');
is($node->safe_psql('postgres', "SELECT idem.idem_schedule_purge('* * * * *')"), $job, 'scheduled again: the same job');
is($node->safe_psql('postgres', "SELECT schedule FROM cron.job WHERE jobid = $job"), '* * * * *', 'by another schedule');
my ($status, $out, $error) = $node->psql('postgres', "SELECT idem.idem_schedule_purge('every now and then')");
like($error, qr/invalid schedule/, 'no schedule: pg_cron says so');

# from another database: the SQL to run by hand, which works; or the argument
($status, $out, $error) = $node->psql('shop', "SELECT idem.idem_schedule_purge('* * * * *')");
like($error, qr/ERROR:  pg_cron is not available in database "shop"\nDETAIL:  pg_cron runs in database "postgres"\./, 'not from the other database');
my ($by_hand) = $error =~ /from its own database: (.*)/;
my $shop = $node->safe_psql('postgres', $by_hand);
cmp_ok($shop, '>', 0, 'the SQL of the hint is run in the database of pg_cron');
is($node->safe_psql('postgres', "SELECT idem.idem_schedule_purge('* * * * *', 'shop')"), $shop, 'and is what the argument "database" does');

# who may not
$node->safe_psql('postgres', 'CREATE ROLE op LOGIN; GRANT USAGE ON SCHEMA idem TO op; GRANT EXECUTE ON FUNCTION idem.idem_schedule_purge, idem.idem_unschedule_purge TO op;');
my $as_op = sub { ($status, $out, $error) = $node->psql('postgres', shift, extra_params => [ '-U', 'op' ]); return $error; };
like($as_op->('SELECT idem.idem_schedule_purge()'), qr/role "op" may not execute cron.schedule\(\)\nHINT: .*cron.schedule_in_database\('idempotency purge of postgres'/, 'no right on pg_cron: said plainly');
$node->safe_psql('postgres', 'GRANT USAGE ON SCHEMA cron TO op');
like($as_op->('SELECT idem.idem_schedule_purge()'), qr/role "op" may not execute idem_purge\(\)/, 'no right on the purge: said at once, not each night');
like($as_op->(q(SELECT idem.idem_schedule_purge(database => 'shop'))), qr/role "op" may not execute cron.schedule_in_database\(\)/, 'no right for another database');
$node->safe_psql('postgres', 'GRANT EXECUTE ON PROCEDURE idem.idem_purge TO op');
is($as_op->('SELECT idem.idem_schedule_purge()'), '', 'with the rights: scheduled');
is($as_op->('SELECT idem.idem_unschedule_purge()'), '', 'and unscheduled');
is($node->safe_psql('postgres', "SELECT count(*) FROM cron.job WHERE username = 'op'"), 0, 'its own job');
is($node->safe_psql('postgres', "SELECT count(*) FROM cron.job WHERE username <> 'op'"), 2, 'and no other');
$node->safe_psql('postgres', 'ALTER ROLE op NOLOGIN; GRANT op TO CURRENT_USER');
($status, $out, $error) = $node->psql('postgres', 'SET ROLE op; SELECT idem.idem_schedule_purge()');
like($error, qr/role "op" is not permitted to log in\nDETAIL:  pg_cron logs in/, 'a role that can not log in');

# pg_cron really runs both, within the minute
for my $database ('postgres', 'shop')
{
	ok($node->poll_query_until($database, 'SELECT count(*) = 30 FROM idem.idempotency_keys'), "pg_cron has purged $database");
	is($node->safe_psql($database, "SELECT count(*) FROM idem.idempotency_keys WHERE right(key, 1) = '0' AND expires_at > now()"), 30, 'what is left is what lives');
}
ok($node->poll_query_until('postgres', q(SELECT count(*) = 2 FROM (SELECT DISTINCT jobid FROM cron.job_run_details WHERE status = 'succeeded' AND command = 'CALL idem.idem_purge()') AS d)),
	'both runs are on record as succeeded');
ok($node->poll_query_until('postgres', 'SELECT purged = 540 FROM idem.idem_counters()'), 'and counted');

# unscheduled, twice
is($node->safe_psql('postgres', 'SELECT idem.idem_unschedule_purge()'), 't', 'unscheduled');
($status, $out, $error) = $node->psql('postgres', 'SELECT idem.idem_unschedule_purge()');
is($out, 'f', 'twice');
like($error, qr/NOTICE:  there is no job "idempotency purge of postgres"/, 'says so');
is($node->safe_psql('postgres', q(SELECT idem.idem_unschedule_purge('shop'))), 't', 'that of the other database');
is($node->safe_psql('postgres', 'SELECT count(*) FROM cron.job'), 0, 'no job is left');

# one command is one transaction: pg_cron, too, can't run it with others
$node->safe_psql('postgres', "UPDATE idem.idempotency_keys SET expires_at = now() - interval '1 hour'");
for my $mode (0, 1)
{
	($status, $out, $error) = $node->psql('postgres', 'SELECT 1; CALL idem.idem_purge()', extra_params => [ '-c', 'SELECT 1; CALL idem.idem_purge()' ]) if $mode;
}
like($error, qr/cannot run idem_purge\(\) in a transaction block/, 'several statements in one string are a transaction block');

# a purge that is cancelled keeps what it has deleted
$node->safe_psql('postgres', <<'SQL');
INSERT INTO idem.idempotency_keys (tenant_id, key, request_hash, status, response_status, attempt, created_at, completed_at, expires_at, fingerprint_version)
SELECT 'acme', 'key-many--' || lpad(i::text, 10, '0'), sha256(''), 'completed', 200, 1, now() - interval '8 days', now() - interval '8 days', now() - i * interval '1 s', 1 FROM generate_series(1, 60000) AS i;
SQL
($status, $out, $error) = $node->psql('postgres', "SET statement_timeout = '1s'; CALL idem.idem_purge(500)");
like($error, qr/canceling statement due to statement timeout/, 'cancelled');
my $left = $node->safe_psql('postgres', "SELECT count(*) FROM idem.idempotency_keys WHERE key LIKE 'key-many%'");
cmp_ok($left, '<', 60000, 'what was deleted is deleted');
is($left % 500, 0, 'in whole batches');
is($node->safe_psql('postgres', "SELECT max(key) FROM idem.idempotency_keys WHERE key LIKE 'key-many%'"), 'key-many--' . sprintf('%010d', $left), 'the oldest first');
my $plan = $node->safe_psql('postgres', 'ANALYZE idem.idempotency_keys; EXPLAIN SELECT tenant_id, key, expires_at FROM idem.idempotency_keys WHERE expires_at <= now() ORDER BY expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED');
like($plan, qr/Index Scan using idempotency_keys_expires_at_idx/, 'a batch is read from the index');

# claims go on beside it, and none fails or waits
my $claims = $node->basedir . '/claims.pgbench';
append_to_file($claims, <<'SQL');
\set r random(1, 60000)
SET lock_timeout = '1s';
BEGIN;
SELECT idem.idem_complete('acme', 'key-many--' || lpad(:r::text, 10, '0'), 200) FROM idem.idem_claim('acme', 'key-many--' || lpad(:r::text, 10, '0'), 'POST', '/p') WHERE outcome = 'claimed';
COMMIT;
SQL
my $purge = $node->background_psql('postgres');
$purge->query_until(qr/started/, "\\echo started\nCALL idem.idem_purge(500);\n");
my $bench = run_log([ 'pgbench', '-n', '-c', 8, '-j', 2, '-t', 500, '-f', $claims, $node->connstr('postgres') ]);
$purge->query_until(qr/ended/, "\\echo ended\n");
$purge->quit;
ok($bench, '4,000 claims of expired keys beside a purge: none failed');
is($node->safe_psql('postgres', "SELECT count(*) FROM idem.idempotency_keys WHERE key LIKE 'key-many%' AND expires_at <= now()"), 0, 'and all that had expired is gone or new');

# the queries for the exporter
my $queries = slurp_file($ENV{IDEM_SOURCE} . '/examples/prometheus/queries.yaml');
my @found = $queries =~ /^  query: >-\n((?:    .*\n)+)/mg;
cmp_ok(scalar(@found), '>=', 3, 'queries for the exporter');
# with the rights that the file asks for, and no more; a transaction of another role is seen to age
$node->safe_psql('postgres', 'CREATE ROLE exporter LOGIN; GRANT USAGE ON SCHEMA idem TO exporter; GRANT SELECT ON idem.idempotency_status, idem.idempotency_in_flight TO exporter;
	GRANT EXECUTE ON FUNCTION idem.idem_counters, idem.idem_key_lock TO exporter; GRANT pg_read_all_stats TO exporter');
my $stuck = $node->background_psql('postgres');
$stuck->query("BEGIN; SELECT outcome FROM idem.idem_claim('acme', 'key-stuck-0000000001', 'POST', '/p')");
sleep 1;
for my $query (@found)
{
	$query =~ s/\s+/ /g;
	($status, $out, $error) = $node->psql('postgres', "SET search_path = idem; $query", extra_params => [ '-U', 'exporter' ]);
	is($error, '', "runs: $query");
	like($out, qr/^transaction\|1\|[1-9][0-9]*\.[0-9]+$/m, 'shows the stuck transaction and its age') if $query =~ /idempotency_in_flight/;
}
$stuck->quit;
done_testing();
