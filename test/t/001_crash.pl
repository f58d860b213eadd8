# A server or a backend that dies in the middle: the work and its key are lost together or kept together.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
$node->append_conf('postgresql.conf', "max_prepared_transactions = 10\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency; CREATE TABLE effects (n text)');

# Runs statements in a session that stays open, and returns it.
sub session
{
	my ($sql) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query($sql);
	return $session;
}

# Ends a session whose server may be gone.
sub gone
{
	my ($session) = @_;
	eval { $session->quit };
	return;
}

my $claim = "SELECT outcome FROM idem_claim('acme', '%s', 'POST', '/p');";
my $work = "INSERT INTO effects VALUES ('%s');";
my $done = "SELECT idem_complete('acme', '%s', 201);";

sub outcome
{
	my ($key) = @_;
	my $result = $node->safe_psql('postgres', 'BEGIN; ' . sprintf($claim, $key) . ' ROLLBACK');
	return $result;
}

sub effects
{
	my ($key) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM effects WHERE n = '$key'");
}

# the whole server, at each point of a run
my %stage = (
	'key-before-work-0001' => sprintf("BEGIN; $claim", 'key-before-work-0001'),
	'key-before-done-0001' => sprintf("BEGIN; $claim $work", ('key-before-done-0001') x 2),
	'key-before-commit-01' => sprintf("BEGIN; $claim $work $done", ('key-before-commit-01') x 3),
	'key-committed-000001' => sprintf("BEGIN; $claim $work $done COMMIT;", ('key-committed-000001') x 3),
	'key-prepared-0000001' => sprintf("BEGIN; $claim $work $done PREPARE TRANSACTION 'p';", ('key-prepared-0000001') x 3));
my @sessions = map { session($stage{$_}) } sort keys %stage;
is(outcome('key-before-commit-01'), 'in_progress', 'in progress before the crash');
$node->stop('immediate');
gone($_) for @sessions;
$node->start;

for my $key ('key-before-work-0001', 'key-before-done-0001', 'key-before-commit-01')
{
	is(outcome($key), 'claimed', "$key: the retry runs after the crash");
	is(effects($key), 0, "$key: no effect is left");
}
is(outcome('key-committed-000001'), 'replay', 'a commit that was acknowledged is replayed');
is(effects('key-committed-000001'), 1, 'and its effect is there once');
is(outcome('key-prepared-0000001'), 'in_progress', 'a prepared transaction holds its key through the restart');
$node->restart;
is(outcome('key-prepared-0000001'), 'in_progress', 'and through another');
$node->safe_psql('postgres', "COMMIT PREPARED 'p'");
is(outcome('key-prepared-0000001'), 'replay', 'until it is committed');
is(effects('key-prepared-0000001'), 1, 'with its effect');

# one backend, killed
my $holder = session(sprintf("BEGIN; $claim $work", ('key-backend-00000001') x 2));
is(outcome('key-backend-00000001'), 'in_progress', 'held by a living backend');
my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 26980");
like($pid, qr/^\d+$/, 'pg_locks says who holds it');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_locks WHERE objsubid = 26980");
gone($holder);
is(outcome('key-backend-00000001'), 'claimed', 'a terminated backend frees its key');
is(effects('key-backend-00000001'), 0, 'and its work is undone');

# a client that stops without a word
my $silent = session("SET idle_in_transaction_session_timeout = '100ms'; " . sprintf("BEGIN; $claim", 'key-silent-000000001'));
ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_locks WHERE objsubid = 26980"),
	'idle_in_transaction_session_timeout frees its key');
gone($silent);

# a cancelled completion takes the work with it
my ($status, $stdout, $stderr) = $node->psql('postgres', "
	CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
	CREATE TRIGGER slow BEFORE INSERT ON idempotency_keys FOR EACH ROW WHEN (NEW.key LIKE 'key-slow%') EXECUTE FUNCTION slow();
	SET statement_timeout = '100ms';" . sprintf("BEGIN; $claim $work $done COMMIT;", ('key-slow-00000000001') x 3), on_error_stop => 0);
like($stderr, qr/canceling statement due to statement timeout/, 'the completion is cancelled');
is(effects('key-slow-00000000001'), 0, 'and the work is rolled back with it');
is(outcome('key-slow-00000000001'), 'claimed', 'the retry runs');

# the transaction dies of memory or depth: the callbacks of the abort do no harm
$node->psql('postgres', "BEGIN; SELECT count(*) FROM generate_series(1, 1000) i, idem_claim('acme', 'key-many-' || 1000000 + i, 'POST', '/p'); SELECT 1/0;", on_error_stop => 0);
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_locks WHERE objsubid = 26980'), 0, 'a thousand claims go with an error');
my $deep = join '', map { "SAVEPOINT s$_; SELECT idem_claim('acme', 'key-deep-" . (1000000 + $_) . "', 'POST', '/p'); " } 1 .. 100;
$node->psql('postgres', "BEGIN; $deep SELECT 1/0; ROLLBACK TO s50; SELECT idem_complete('acme', 'key-deep-' || 1000000 + i, 201) FROM generate_series(1, 49) i; COMMIT;", on_error_stop => 0);
is($node->safe_psql('postgres', "SELECT count(*) FROM idempotency_keys WHERE key LIKE 'key-deep%'"), 49, 'an error a hundred savepoints deep, rolled back to the middle');
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_locks WHERE objsubid = 26980'), 0, 'no lock is left');

done_testing();
