# The storm: clients with retries, lost answers, two payloads a key, savepoints and leases, while backends are terminated,
# statements cancelled and the server stopped in the middle and restarted. Then the checker. IDEM_STORM_SECONDS: how long (60).
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = $ENV{IDEM_STORM_SECONDS} || 60;
my $clients = 16;
my $storm = "$ENV{IDEM_SOURCE}/test/storm";
my $python = '/usr/bin/python3';
$ENV{PYTHONDONTWRITEBYTECODE} = 1;

my ($out, $error);
ok(IPC::Run::run([ $python, "$storm/check_test.py" ], '>', \$out, '2>', \$error), 'the checker catches what it has to catch') or diag($error);

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
$node->append_conf('postgresql.conf', "max_connections = 60\nlog_statement = none\nlog_min_messages = fatal\nsession_preload_libraries = 'idempotency'\nautovacuum_naptime = 1s");
$node->start;
$node->safe_psql('postgres', slurp_file("$storm/schema.sql"));

my $history = $node->basedir . '/history.jsonl';
local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
local $ENV{PGDATABASE} = 'postgres';
my $storming = IPC::Run::start([ $python, "$storm/client.py", $history, $clients, $seconds ], '>', \$out, '2>', \$error);

my $began = time;
my ($crashes, $terminated, $cancelled) = (0, 0, 0);
my $next_crash = $began + $seconds / 7;
while (time < $began + $seconds)
{
	sleep(0.2);
	if (time > $next_crash)
	{
		$node->stop('immediate');
		$node->start;
		$crashes++;
		$next_crash += $seconds / 7;
	}
	# one of the clients, whatever it does
	my $pick = "FROM (SELECT pid FROM pg_stat_activity WHERE application_name = 'storm' ORDER BY random() LIMIT 1) AS one";
	my $hit = $node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) $pick");
	$cancelled++ if $hit eq 't';
	$hit = $node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) $pick");
	$terminated++ if $hit eq 't';
}
ok(IPC::Run::finish($storming), 'every client got its final answers') or diag($error);
cmp_ok($crashes, '>=', 5, 'the server was stopped in the middle');

my $findings;
my $clean = IPC::Run::run([ $python, "$storm/check.py", $history ], '>', \$findings, '2>', \$error);
ok($clean, 'the checker finds nothing') or diag($findings, $error);
note($out);
diag("storm: $crashes crashes, $terminated backends terminated, $cancelled statements cancelled; $findings");
is($node->safe_psql('postgres', 'SELECT count(*) FROM idempotency_in_flight WHERE held_by <> $$lease$$ AND held_by <> $$lease that ran out$$'), 0, 'no key is held any more');
done_testing();
