# Logical replication to a second server: it answers what the first one has stored, knows its leases and its policies, and takes over once the first
# one has stopped claiming and everything has arrived. What it can't have is the locks (docs/operations.md).
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($first, $second) = map { PostgreSQL::Test::Cluster->new($_) } 'first', 'second';
for my $node ($first, $second)
{
	$node->init(allows_streaming => 'logical');
	$node->start;
	$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION idempotency;
CREATE ROLE app;
CREATE TABLE payments (tenant text, key text, n int, PRIMARY KEY (tenant, key));
CREATE FUNCTION run(n int, tenant text DEFAULT 'acme', status int DEFAULT 201) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	name text := 'key-' || 1000000000000 + n;
	answer idem_claim_result := idem_claim(tenant, name, 'POST', '/payments', jsonb_build_object('n', n));
BEGIN
	IF answer.outcome = 'claimed' THEN
		INSERT INTO payments VALUES (tenant, name, n);
		PERFORM idem_complete(tenant, name, status, jsonb_build_object('n', n), '{"Location": "/x"}', undone => true);
	END IF;
	RETURN concat_ws(' ', answer.outcome, answer.status, answer.body ->> 'n');
END $$;
SQL
}
my $tables = 'idempotency_keys, idempotency_operations, idempotency_tenants, idempotency_limits, payments';
$first->safe_psql('postgres', 'SELECT run(n) FROM generate_series(1, 50) n');
$first->safe_psql('postgres', "CREATE PUBLICATION keys FOR TABLE $tables");
$second->safe_psql('postgres', "CREATE SUBSCRIPTION keys CONNECTION '" . $first->connstr . " dbname=postgres' PUBLICATION keys");
$second->wait_for_subscription_sync($first, 'keys');

# the purge commits without waiting for the disk, and only what is on the disk is sent: a message that does wait takes it along
sub arrive
{
	$first->safe_psql('postgres', "SELECT pg_logical_emit_message(true, 'flush', '')");
	$first->wait_for_catchup('keys');
	return;
}

# the second server is looked at by one session throughout
my $session = $second->background_psql('postgres');
is($session->query('SELECT count(*) FROM idempotency_keys'), 50, 'the copy');
$first->safe_psql('postgres', "SELECT run(n) FROM generate_series(51, 100) n; BEGIN; SELECT run(101); ROLLBACK; SELECT run(102, status => 503);");
my ($token) = $first->safe_psql('postgres', "SELECT token FROM idem_claim('acme', 'key-lease-00000001', 'POST', '/p', lease => '10 min');
	SELECT idem_checkpoint('acme', 'key-lease-00000001', (SELECT claim_token FROM idempotency_keys WHERE key = 'key-lease-00000001'), 'charged', '{\"at\": 1}')") =~ /^([0-9a-f-]{36})$/m;
arrive();
my $rows = 'SELECT count(*), md5(string_agg(k::text, chr(10) ORDER BY key)) FROM idempotency_keys k';
is($second->safe_psql('postgres', $rows), $first->safe_psql('postgres', $rows), 'every row, to the byte');
is($session->query('SELECT run(1)'), 'replay 201 1', 'it replays what was copied');
is($session->query('SELECT run(100)'), 'replay 201 100', 'and what was sent');
is($session->query("SELECT outcome FROM idem_claim('acme', 'key-1000000000001', 'POST', '/other')"), 'mismatch', 'and compares');
is($session->query("SELECT outcome, status FROM idem_claim('acme', 'key-lease-00000001', 'POST', '/p')"), 'in_progress|409', 'a lease of the first server is alive');
is($session->query("SELECT state, checkpoint FROM idem_lookup('acme', 'key-lease-00000001')"), 'in_progress|charged', 'with its checkpoint');
is($session->query("SELECT state FROM idem_lookup('acme', 'key-1000000000102')"), 'failed_retryable', 'and so is "try again"');

# policies: the session that has read them before hears of each change
$first->safe_psql('postgres', "SELECT idem_allow('POST', '/payments', retention => '2 days'); SELECT idem_limit_tenant('globex', 1); SELECT idem_limit_tenant(NULL, 1000); SELECT idem_limit_tenant(NULL, 2000); SELECT idem_bind_tenant('app', 'acme')");
arrive();
is($session->query("SELECT outcome FROM idem_claim('acme', 'key-1000000000002', 'POST', '/other')"), 'bypass', 'an operation that was registered on the first');
is($session->query('SELECT tenant_id, max_keys FROM idempotency_limits ORDER BY 1'), "globex|1\n|2000", 'a limit that was changed there');
is($session->query('SELECT role, tenant_id FROM idempotency_tenants'), 'app|acme', 'a binding');
$first->safe_psql('postgres', "SELECT idem_disallow('POST', '/payments')");
arrive();
is($session->query("SELECT outcome FROM idem_claim('acme', 'key-1000000000002', 'POST', '/other')"), 'mismatch', 'and one that was taken off');
$first->safe_psql('postgres', 'TRUNCATE idempotency_tenants');
arrive();
is($session->query('SELECT count(*) FROM idempotency_tenants'), 0, 'TRUNCATE too');

# what is expired and purged on the first goes on the second
$first->safe_psql('postgres', "UPDATE idempotency_keys SET created_at = now() - interval '9 days', expires_at = now() - interval '1 day' WHERE key = 'key-1000000000003'; SELECT idem_forget('acme', 'key-1000000000004')");
$first->safe_psql('postgres', 'CALL idem_purge()');
arrive();
is($second->safe_psql('postgres', $rows), $first->safe_psql('postgres', $rows), 'purged and erased there, too');

# the locks do not come: a key in flight on the first is free on the second. So nobody claims on the second until the first has stopped.
my $holder = $first->background_psql('postgres');
$holder->query("BEGIN; SELECT run(200);");
is($session->query("BEGIN; SELECT outcome FROM idem_claim('acme', 'key-1000000000200', 'POST', '/payments', '{\"n\": 200}'); ROLLBACK;"), 'claimed', 'a key in flight on the first is free here: do not claim on both');
$holder->query('COMMIT');
$holder->quit;

# the switch: the first stops, everything arrives, the second goes on
arrive();
$first->stop;
$second->safe_psql('postgres', 'ALTER SUBSCRIPTION keys DISABLE; ALTER SUBSCRIPTION keys SET (slot_name = NONE); DROP SUBSCRIPTION keys');
is($session->query('SELECT run(200)'), 'replay 201 200', 'the last payment of the first is known');
is($session->query('SELECT run(300)'), 'claimed', 'a new one runs');
is($session->query("SELECT idem_complete('acme', 'key-lease-00000001', 201, token => '$token')"), 'completed', 'the worker of the lease completes it here');
is($session->query("SELECT run(1, 'globex') || ', ' || run(2, 'globex')"), 'claimed, rejected 429', 'limits hold');
is($session->query('SELECT count(*) - count(DISTINCT (tenant, key)) FROM payments'), 0, 'no payment twice');
$session->quit;

done_testing();
