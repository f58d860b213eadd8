# Limits of tenants with many keys: no claim counts them all where the sessions share what they know, and what one has found holds for the others.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'idempotency'\nmax_locks_per_transaction = 300\nautovacuum = off\nfsync = off\n");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION idempotency;
CREATE FUNCTION run(tenant text, n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer idem_claim_result := idem_claim(tenant, 'new-' || lpad(n::text, 20, '0'), 'POST', '/p');
BEGIN
	IF answer.outcome = 'claimed' THEN
		PERFORM idem_complete(tenant, 'new-' || lpad(n::text, 20, '0'), 201);
	END IF;
	RETURN concat_ws(' ', answer.outcome, answer.status);
END $$;
CREATE FUNCTION fill(tenant text, n int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO idempotency_keys (tenant_id, key, request_hash, status, response_status, attempt, created_at, completed_at, expires_at, fingerprint_version)
	SELECT tenant, 'key-' || lpad(i::text, 20, '0'), sha256(''), 'completed', 201, 1, now(), now(), now() + interval '7 days', 1 FROM generate_series(1, n) AS i
$$;
SELECT fill(tenant, 25000) FROM unnest(ARRAY['big', 'planned', 'roomy']) AS tenant;
SELECT idem_limit_tenant('big', 25000), idem_limit_tenant('planned', 25000), idem_limit_tenant('roomy', 1000000);
SQL

# 25,000 keys are three slices
my @sessions = map { $node->background_psql('postgres') } 1 .. 3;
for my $tenant ('big', 'planned')
{
	$_->query('SET idempotency.direct_lookup = ' . ($tenant eq 'big' ? 'on' : 'off')) for @sessions;
	is($sessions[0]->query("SELECT run('$tenant', 1)"), 'claimed', "$tenant: the first claim counts a slice");
	is($sessions[1]->query("SELECT run('$tenant', 2)"), 'claimed', 'another session goes on');
	is($sessions[2]->query("SELECT run('$tenant', 3)"), 'rejected 429', 'the third has counted all of them');
	is($sessions[0]->query("SELECT run('$tenant', 4)"), 'rejected 429', 'and the first one knows');
	is($node->safe_psql('postgres', "SELECT run('$tenant', 4)"), 'rejected 429', 'as does one that is new');
	is($sessions[0]->query("SELECT run('$tenant', 1)"), 'replay 201', 'what is stored is answered');
	ok($node->safe_psql('postgres', "SELECT idem_forget('$tenant')"), 'all keys are erased');
	$node->poll_query_until('postgres', "SELECT run('$tenant', 5)", 'claimed') or die 'still full';
	pass('and in a moment there is room');
}
is($sessions[$_]->query("SELECT run('roomy', $_)"), 'claimed', 'with room') for 0 .. 2;
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT run('roomy', n), ',') FROM generate_series(10, 100) n"), 'claimed', 'and more of it');
$_->quit for @sessions;

# a statement that is cancelled while it counts: the next claims go on without it, and after ten seconds another one counts
my $slow = '';
for my $tenant (map { "slow $_" } 1 .. 10)
{
	# behind so many dead rows, a slice takes long enough
	$node->safe_psql('postgres', "SELECT idem_limit_tenant('$tenant', 10000), fill('$tenant', 110000)");
	$node->safe_psql('postgres', "DELETE FROM idempotency_keys WHERE tenant_id = '$tenant' AND key <= 'key-' || lpad('100000', 20, '0')");
	my ($status, $out, $err) = $node->psql('postgres', "SELECT run('roomy', 1); SET statement_timeout = '5ms'; SELECT run('$tenant', 1)");
	next if $err !~ /canceling statement due to statement timeout/ or $node->safe_psql('postgres', "SELECT run('$tenant', 2)") ne 'claimed';
	$slow = $tenant;
	last;
}
isnt($slow, '', 'cancelled in the middle of a count');
is($node->safe_psql('postgres', "SELECT run('$slow', 3)"), 'claimed', 'others do not wait for it');
ok($node->poll_query_until('postgres', "SELECT run('$slow', (random() * 1000000)::int)", 'rejected 429'), 'and count in the end');

# all together: none is counted that another one has been given
$node->safe_psql('postgres', "SELECT idem_limit_tenant('shared', 400)");
append_to_file($node->basedir . '/claims', "\\set n random(1, 1000000000)\nSELECT run('shared', :n);\n");
$node->command_ok([ 'pgbench', '-n', '-c', '8', '-j', '2', '-t', '300', '-f', $node->basedir . '/claims', 'postgres' ], 'eight sessions');
my $stored = $node->safe_psql('postgres', "SELECT count(*) FROM idempotency_keys WHERE tenant_id = 'shared'");
cmp_ok($stored, '<=', 416, "no more than the limit and what is in flight: $stored");
cmp_ok($stored, '>=', 380, 'and nearly as many');

# more tenants than a session or the server remembers
$node->safe_psql('postgres', "SELECT idem_limit_tenant(NULL, 3)");
is($node->safe_psql('postgres', "SELECT outcome, count(*) FROM generate_series(1, 5) n, generate_series(1, 3000) t, run('tenant ' || t, n) outcome GROUP BY 1 ORDER BY 1"),
	"claimed|9000\nrejected 429|6000", 'each of 3,000 tenants has its three');

# and these do not undo what has been counted of one that has many
$node->safe_psql('postgres', "SELECT idem_limit_tenant('many', 25000), fill('many', 25000)");
my $crowd = sub { $node->safe_psql('postgres', "SELECT count(run('crowd ' || t, 1)) FROM generate_series(1, 3000) t") };
is(join(', ', map { $crowd->(); $node->safe_psql('postgres', "SELECT run('many', $_)") } 1 .. 3), 'claimed, claimed, rejected 429', 'a count goes on among 3,000 others');

# a key put there by hand may be longer than any that is claimed, and end a slice
$node->safe_psql('postgres', "SELECT idem_limit_tenant('long', 20000), fill('long', 9999);
	INSERT INTO idempotency_keys SELECT x.* FROM idempotency_keys k, LATERAL (SELECT string_agg(md5(i::text), '') AS tail FROM generate_series(1, 80) i) t,
		jsonb_populate_record(k, jsonb_build_object('key', 'key-9' || tail)) x WHERE k.tenant_id = 'long' AND k.key = 'key-' || lpad('1', 20, '0');
	INSERT INTO idempotency_keys SELECT x.* FROM idempotency_keys k, jsonb_populate_record(k, jsonb_build_object('key', 'z' || k.key)) x WHERE k.tenant_id = 'long' AND length(k.key) < 100");
is($node->safe_psql('postgres', "SELECT max(length(key)) > 2000, count(*) FROM idempotency_keys WHERE tenant_id = 'long'"), 't|19999', 'a very long key');
is(join(', ', map { $node->safe_psql('postgres', "SELECT run('long', $_)") } 1 .. 3), 'claimed, rejected 429, rejected 429', 'is no harm');

# a limit that was reached, and is not any more: those who are refused count on
$node->safe_psql('postgres', "SELECT idem_limit_tenant('relief', 150000), fill('relief', 150000)");
my $answers = sub { my $n = 0; $n++ while $node->safe_psql('postgres', "SELECT run('relief', (random() * 1000000000)::int)") eq $_[0]; return $n };
cmp_ok($answers->('claimed'), '<=', 15, 'counted by the claims');
$node->safe_psql('postgres', "DELETE FROM idempotency_keys WHERE tenant_id = 'relief' AND key LIKE '%1'");
my $started = time;
my $refused = $answers->('rejected 429');
cmp_ok(time - $started, '<', 60, "and in a moment there is room, after $refused more were refused");

# a batch of many in flight: a slot is found where the last one was. Else this would take a hundred times as long
$node->safe_psql('postgres', "SELECT idem_limit_tenant('batch', max_in_flight => 10000), idem_limit_tenant('free'), idem_limit_tenant('own', 5)");
my $seconds = sub { return $node->safe_psql('postgres', "BEGIN; SELECT now() AS started \\gset
	SELECT 1 FROM (SELECT count(*) FROM generate_series(1, 10000) n, idem_claim('$_[0]', 'key-batch-' || 10000000 + n, 'POST', '/p') WHERE outcome = 'claimed') k WHERE count <> 10000;
	SELECT extract(epoch FROM clock_timestamp() - :'started'); ROLLBACK") };
my ($limited, $free) = ($seconds->('batch'), $seconds->('free'));
cmp_ok($limited, '<', 10 * $free, sprintf('10,000 claims: %.2f s with a slot each, %.2f without', $limited, $free));

# the keys that a transaction has claimed and not yet stored
is($node->safe_psql('postgres', "BEGIN; SELECT outcome, count(*) FROM generate_series(1, 1000) n, idem_claim('own', 'key-own-' || 100000000 + n, 'POST', '/p') GROUP BY 1 ORDER BY 1; ROLLBACK"),
	"claimed|5\nrejected|995", 'a transaction\'s own claims count');

# what is known is of one database, whatever tenants are named in another
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', "CREATE EXTENSION idempotency; SELECT idem_limit_tenant('shared', 400)");
is($node->safe_psql('postgres', "SELECT run('shared', 2000000000)"), 'rejected 429', 'full in one database');
like($node->safe_psql('other', "BEGIN; SELECT outcome FROM idem_claim('shared', 'key-other-0000000001', 'POST', '/p'); ROLLBACK"), qr/^claimed$/, 'and not in another');

# a session of a server that shares nothing counts for itself, all at once
$node->safe_psql('postgres', "SELECT fill('big', 25000)");
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
is($node->safe_psql('postgres', "SELECT run('big', 99)"), 'rejected 429', 'not preloaded: counted at once');
is($node->safe_psql('postgres', "BEGIN; SELECT outcome, count(*) FROM generate_series(1, 1000) n, idem_claim('own', 'key-own-' || 100000000 + n, 'POST', '/p') GROUP BY 1 ORDER BY 1; ROLLBACK"),
	"claimed|5\nrejected|995", 'own claims, too');

done_testing();
