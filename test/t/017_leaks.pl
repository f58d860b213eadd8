# MUST 11, memory: each function called many times in one backend, as it succeeds and as it fails, leaves nothing behind: neither in the
# server's memory contexts nor outside of them. IDEM_LONG: a million calls of each.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $calls = $ENV{IDEM_LONG} ? 1_000_000 : 5_000;
my $secret = PostgreSQL::Test::Utils::tempdir() . '/secret';
append_to_file($secret, 'a-secret-of-enough-characters-for-hmac');
chmod 0600, $secret;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init(extra => [ '--encoding', 'UTF8', '--locale', 'C' ]);
$node->append_conf('postgresql.conf', <<"CONF");
shared_preload_libraries = 'idempotency'
idempotency.http_tenant = 'app.tenant'
idempotency.fingerprint_secret_file = '$secret'
synchronous_commit = off
fsync = off
autovacuum = off
max_wal_size = 4GB
CONF
$node->start;
# as used and as allocated by the contexts; what the process has, too, for OpenSSL and malloc know no contexts
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION idempotency;
CREATE FUNCTION handle(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION failing(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE check_violation; END $$;
CREATE ROLE app;
SELECT idem_allow('POST', '/p/{id}', ignore => '{/timestamp}', statuses => '{"22P02": 400}');
SELECT idem_limit_tenant(NULL, 1000000000, 1000);
CREATE FUNCTION memory(OUT contexts bigint, OUT process bigint) LANGUAGE sql AS $$
	SELECT (SELECT sum(total_bytes) FROM pg_backend_memory_contexts),
	       1024 * (regexp_match(pg_read_file('/proc/self/status'), 'RssAnon:\s+(\d+) kB'))[1]::bigint
$$;
DO $$ BEGIN
	PERFORM idem_claim('acme', 'key-stored-000000001', 'POST', '/p/1', '{"a": 1}');
	PERFORM idem_complete('acme', 'key-stored-000000001', 201, '{"id": 1}', '{"Location": "/p/1"}');
END $$;
SQL

my $body = q('{"amount": 10.50, "currency": "EUR", "timestamp": 1, "lines": [{"a": null}, {"b": "é"}]}');
# name, what is called, how the round ends. With COMMIT or ROLLBACK each round is a transaction, else all are one
my @cases = (
	['claim, complete', "PERFORM idem_claim('acme', 'key-' || 1000000000000 + i, 'POST', '/p/1', $body); PERFORM idem_complete('acme', 'key-' || 1000000000000 + i, 201, $body, '{\"a\": [\"b\"]}')", 'ROLLBACK'],
	['claim, complete, committed', "PERFORM idem_claim('acme', 'key-' || 1000000000000 + i, 'POST', '/p/1', $body); PERFORM idem_complete('acme', 'key-' || 1000000000000 + i, 201, $body); DELETE FROM idempotency_keys WHERE tenant_id = 'acme' AND key = 'key-' || 1000000000000 + i", 'COMMIT'],
	['claim, released', "PERFORM idem_claim('acme', 'key-released-0000001', 'POST', '/p/1', raw_body => '\\x00'); PERFORM idem_release('acme', 'key-released-0000001')", 'ROLLBACK'],
	['replay', "PERFORM idem_claim('acme', 'key-stored-000000001', 'POST', '/p/1', '{\"a\": 1}')"],
	['mismatch', "PERFORM idem_claim('acme', 'key-stored-000000001', 'POST', '/p/1', $body)"],
	['rejected', "PERFORM idem_claim('acme', 'short', 'POST', '/p/1', $body)"],
	['bypass', "PERFORM idem_claim('acme', 'key-bypass-000000001', 'GET', '/p/1')"],
	['over the limit', "PERFORM idem_claim('broke', 'key-limit-0000000001', 'POST', '/p/1')"],
	['lease', "PERFORM idem_claim('acme', 'key-' || 1000000000000 + i, 'POST', '/p/1', lease => '1 min'); SELECT claim_token INTO token FROM idempotency_keys WHERE tenant_id = 'acme' AND key = 'key-' || 1000000000000 + i;
		PERFORM idem_renew('acme', 'key-' || 1000000000000 + i, token, '2 min'), idem_checkpoint('acme', 'key-' || 1000000000000 + i, token, 'charged', '{}');
		PERFORM idem_complete('acme', 'key-' || 1000000000000 + i, 201, token => token)", 'ROLLBACK'],
	['lease, released', "PERFORM idem_claim('acme', 'key-' || 1000000000000 + i, 'POST', '/p/1', lease => '1 min'); SELECT claim_token INTO token FROM idempotency_keys WHERE tenant_id = 'acme' AND key = 'key-' || 1000000000000 + i; PERFORM idem_release('acme', 'key-' || 1000000000000 + i, token, undone => true)", 'ROLLBACK'],
	['lookup', "PERFORM idem_lookup('acme', 'key-stored-000000001'), idem_lookup('acme', 'key-nothing-00000001')"],
	['execute', "PERFORM idem_execute('acme', 'key-' || 1000000000000 + i, 'POST', '/p/1', $body, 'handle(jsonb)')", 'ROLLBACK'],
	['execute, replayed', "PERFORM idem_execute('acme', 'key-stored-000000001', 'POST', '/p/1', '{\"a\": 1}', 'handle(jsonb)')"],
	['execute, handler fails', "PERFORM idem_execute('acme', 'key-' || 1000000000000 + i, 'POST', '/p/1', $body, 'failing(jsonb)')", 'ROLLBACK'],
	['http', "SET LOCAL request.method = 'POST'; SET LOCAL request.path = '/p/1'; PERFORM set_config('request.headers', format('{\"Idempotency-Key\": \"key-%s\"}', 1000000000000 + i), true); SET LOCAL app.tenant = 'acme'; PERFORM idem_http('handle(jsonb)', $body)", 'ROLLBACK'],
	['allow, disallow', "PERFORM idem_allow('PUT', '/q/{id}', retention => '2 days', ignore => '{/a}', statuses => '{\"22P02\": 400}'), idem_claim('acme', 'short', 'PUT', '/q/1'); PERFORM idem_disallow('PUT', '/q/{id}'), idem_claim('acme', 'short', 'PUT', '/q/1')", 'COMMIT'],
	['bind, unbind', "PERFORM idem_bind_tenant('app', 'acme'), idem_claim('acme', 'short', 'POST', '/p/1'); PERFORM idem_unbind_tenant('app', 'acme')", 'COMMIT'],
	['limit, unlimit', "PERFORM idem_limit_tenant('globex', 10, 10), idem_claim('globex', 'key-globex-000000001', 'POST', '/p/1'); PERFORM idem_release('globex', 'key-globex-000000001', undone => true), idem_unlimit_tenant('globex')", 'COMMIT'],
	['purge', 'CALL idem_purge(10, 1)'],
	['forget', "PERFORM idem_forget('acme', 'key-nothing-00000001'), idem_forget('nobody')", 'COMMIT'],
	['views', 'PERFORM (SELECT count(*) FROM idempotency_in_flight), (SELECT count(*) FROM idempotency_status), (SELECT count(*) FROM idem_counters())'],
	['canonical, fingerprint', "PERFORM idem_canonical($body, '{/timestamp}'), idem_fingerprint('POST', '/p/1', $body), idem_fingerprint('POST', '/p/1', raw_body => '\\x00')"],
	['a long body', "PERFORM idem_fingerprint('POST', '/p/1', long)"],
	['header, derived key, key lock', "PERFORM idem_key_from_header('\"key\"'), idem_derive_key('acme', 'key-0000000000000001', 'step'), idem_key_lock('acme', 'key-0000000000000001')"],
	['errors of claim', "BEGIN PERFORM idem_claim('acme', 'key-' || 1000000000000 + i, 'P T', '/p', $body); EXCEPTION WHEN OTHERS THEN NULL; END", 'ROLLBACK'],
	['errors of complete', "BEGIN PERFORM idem_claim('acme', 'key-failed-000000001', 'POST', '/p/1'); PERFORM idem_complete('acme', 'key-failed-000000001', 201, $body, '{\"x y\": \"\"}'); EXCEPTION WHEN OTHERS THEN NULL; END", 'ROLLBACK'],
	['errors of the registry', "BEGIN PERFORM idem_allow('POST', '/p/{id'); EXCEPTION WHEN OTHERS THEN NULL; END; BEGIN PERFORM idem_limit_tenant('acme', -1); EXCEPTION WHEN OTHERS THEN NULL; END", 'ROLLBACK'],
	['errors of the pure functions', "BEGIN PERFORM idem_canonical($body, '{x}'); EXCEPTION WHEN OTHERS THEN NULL; END; BEGIN PERFORM idem_fingerprint('POST', 'p'); EXCEPTION WHEN OTHERS THEN NULL; END; BEGIN PERFORM idem_derive_key('acme', 'short', 's'); EXCEPTION WHEN OTHERS THEN NULL; END; BEGIN PERFORM idem_key_from_header('\"'); EXCEPTION WHEN OTHERS THEN NULL; END", 'ROLLBACK'],
);
$node->safe_psql('postgres', "SELECT idem_limit_tenant('broke', 1, 1); DO \$\$ BEGIN PERFORM idem_claim('broke', 'key-limit-0000000000', 'POST', '/p/1'); PERFORM idem_complete('broke', 'key-limit-0000000000', 201); END \$\$;");
for (@cases)
{
	my ($name, $call, $end) = @$_;
	$end = $end ? "$end;" : '';
	$node->safe_psql('postgres', "CREATE OR REPLACE PROCEDURE round(calls int) LANGUAGE plpgsql AS \$\$
DECLARE
	token uuid;
	long jsonb := (SELECT jsonb_object_agg('k' || n, n) FROM generate_series(1, 2000) n);
BEGIN
	FOR i IN 1..calls LOOP
		$call;
		$end
	END LOOP;
END \$\$");
	my $count = $name eq 'a long body' ? $calls / 100 : $name eq 'views' ? $calls / 10 : $calls;
	# the first calls fill caches; between the batches goes what the rounds leave dead, else the calls would read little else
	my $batch = $count < 5_000 ? $count : 5_000;
	my $vacuum = 'VACUUM idempotency_keys, idempotency_operations, idempotency_tenants, idempotency_limits;';
	my $batches = "CALL round($batch); $vacuum " x ($count / $batch);
	my ($before, $after) = split /\n/, $node->safe_psql('postgres', "CALL round(500); $vacuum SELECT memory(); CALL round(500); $vacuum SELECT * FROM memory(); $batches SELECT * FROM memory();") =~ s/^\(.*\n//r;
	my ($contexts, $process) = map { (split /\|/, $after)[$_] - (split /\|/, $before)[$_] } 0, 1;
	ok($contexts < 64 * 1024 && $process < 512 * 1024, "$name: $count times, contexts $contexts bytes, process $process");
}

done_testing();
