# MUST 1 and 2: many connections fight for the same keys; each key has one effect, and no claim waits.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
# a claim that waited for a lock for 10 ms would be logged, and fail
$node->append_conf('postgresql.conf', "max_connections = 60\nlog_lock_waits = on\ndeadlock_timeout = 10ms\n");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION idempotency;
CREATE TABLE effects (key text);  -- deliberately not unique
CREATE TABLE answers (key text, outcome text, milliseconds float8);
CREATE PROCEDURE client(isolation text) LANGUAGE plpgsql AS $$
DECLARE
	k text;
	answer idem_claim_result;
	started timestamptz;
	took float8;
BEGIN
	FOR i IN 1..150 LOOP
		k := 'key-' || isolation || '-' || 10000000000 + i;
		LOOP
			COMMIT;
			started := clock_timestamp();
			answer := idem_claim('acme', k, 'POST', '/p', jsonb_build_object('n', i));
			took := extract(epoch FROM clock_timestamp() - started) * 1000;
			IF answer.outcome = 'claimed' THEN
				INSERT INTO effects VALUES (k);
				IF random() < 0.2 THEN
					ROLLBACK;  -- a run that failed: the retry runs
					CONTINUE;
				END IF;
				PERFORM idem_complete('acme', k, 201, jsonb_build_object('n', i));
			END IF;
			INSERT INTO answers VALUES (k, answer.outcome, took);
			COMMIT;
			EXIT WHEN answer.outcome <> 'in_progress';
		END LOOP;
	END LOOP;
END $$;
SQL

for my $isolation ('READ_COMMITTED', 'REPEATABLE_READ')
{
	my $script = $node->basedir . "/$isolation.sql";
	append_to_file($script, "CALL client('$isolation');\n");
	local $ENV{PGOPTIONS} = '-c default_transaction_isolation=' . lc($isolation) =~ s/_/\\ /r;
	$node->command_ok([ 'pgbench', '-n', '-c', 24, '-j', 2, '-t', 1, '-f', $script, $node->connstr('postgres') ], "24 connections, $isolation");
	is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT key) FROM effects WHERE key LIKE 'key-$isolation-%'"), '150|150', '150 keys, 150 effects');
	is($node->safe_psql('postgres', "SELECT count(*) FROM answers WHERE key LIKE 'key-$isolation-%' AND outcome = 'claimed'"), 150, 'each claimed and completed once');
	is($node->safe_psql('postgres', "SELECT count(*) FROM answers WHERE key LIKE 'key-$isolation-%' AND outcome = 'replay'"), 23 * 150, 'and replayed to all others');
	is($node->safe_psql('postgres', "SELECT count(*) FROM answers WHERE outcome NOT IN ('claimed', 'replay', 'in_progress')"), 0, 'and nothing else');
}
unlike(slurp_file($node->logfile), qr/still waiting for .*(advisory|26980)/, 'no claim waited for a lock');

# different keys at SERIALIZABLE: no failure is caused by the key table
my $script = $node->basedir . '/serializable.pgbench';
append_to_file($script, <<'SQL');
\set k random(1, 1000000000)
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT idem_claim('acme', 'ser-' || :client_id || '-' || lpad(:k::text, 12, '0'), 'POST', '/p');
SELECT idem_complete('acme', 'ser-' || :client_id || '-' || lpad(:k::text, 12, '0'), 201);
COMMIT;
SQL
$node->command_ok([ 'pgbench', '-n', '-c', 16, '-j', 2, '-t', 100, '-f', $script, $node->connstr('postgres') ], '16 serializable connections with keys of their own');
unlike(slurp_file($node->logfile), qr/could not serialize/, 'none was aborted');

# keys that share a 32-bit hash share nothing
my $holder = $node->background_psql('postgres');
$holder->query("BEGIN; SELECT idem_claim('acme', k, 'POST', '/p') FROM unnest('{idem-key-00024401,idem-key-00036348,idem-key-00063374}'::text[]) k;");
is($node->safe_psql('postgres', "BEGIN; SELECT string_agg(outcome, ' ') FROM unnest('{idem-key-00296188,idem-key-00179538,idem-key-00143514}'::text[]) k, idem_claim('acme', k, 'POST', '/p'); ROLLBACK"),
	'claimed claimed claimed', 'keys with one hashtext() are two keys');
$holder->query('ROLLBACK;');

# the application's own advisory locks, on the very hash of tenant and key
my $hash = q(('x' || substr(encode(sha256('\x00000004'::bytea || 'acme' || 'key-advisory-0000001'), 'hex'), 1, 16))::bit(64)::bigint);
$holder->query("BEGIN; SELECT pg_advisory_xact_lock($hash), pg_advisory_xact_lock(($hash >> 32)::int, (($hash << 32) >> 32)::int);");
is($node->safe_psql('postgres', "BEGIN; SELECT outcome FROM idem_claim('acme', 'key-advisory-0000001', 'POST', '/p'); ROLLBACK"), 'claimed', 'the application may lock the same number');
is($node->safe_psql('postgres', "BEGIN; SELECT idem_claim('acme', 'key-advisory-0000001', 'POST', '/p');
	SELECT ((classid::bigint << 32) | objid::bigint) = $hash, mode, objsubid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid(); ROLLBACK") =~ s/.*\n//r,
	't|ExclusiveLock|26980', 'the lock is on the documented hash and class');
$holder->quit;

done_testing();
