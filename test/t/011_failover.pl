# A standby is promoted under load, synchronous and asynchronous; the clients move over; the checker of the storm again.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $seconds = $ENV{IDEM_FAILOVER_SECONDS} || 8;
my $storm = "$ENV{IDEM_SOURCE}/test/storm";
my $python = '/usr/bin/python3';
$ENV{PYTHONDONTWRITEBYTECODE} = 1;

for my $mode ('synchronous', 'asynchronous')
{
	my $primary = PostgreSQL::Test::Cluster->new("primary_$mode");
	$primary->init(allows_streaming => 1);
	$primary->append_conf('postgresql.conf', "max_connections = 60\nlog_statement = none\nlog_min_messages = fatal\nwal_level = replica");
	$primary->start;
	$primary->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new("standby_$mode");
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->start;
	if ($mode eq 'synchronous')
	{
		$primary->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
		$primary->reload;
	}
	$primary->safe_psql('postgres', slurp_file("$storm/schema.sql"));
	if ($mode eq 'synchronous')
	{
		ok($primary->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync')), 'the standby is synchronous');
	}
	$primary->wait_for_catchup($standby);

	# libpq looks for the one that takes writes
	local $ENV{PGHOST} = join ',', $primary->host, $standby->host;
	local $ENV{PGPORT} = join ',', $primary->port, $standby->port;
	local $ENV{PGTARGETSESSIONATTRS} = 'read-write';
	local $ENV{PGDATABASE} = 'postgres';
	my $history = $standby->basedir . '/history.jsonl';
	my ($out, $error);
	my $storming = IPC::Run::start([ $python, "$storm/client.py", $history, 16, $seconds ], '>', \$out, '2>', \$error);
	sleep($seconds / 2);
	{
		local @ENV{qw(PGHOST PGPORT PGTARGETSESSIONATTRS)} = ($standby->host, $standby->port, 'any');
		my ($status, $said, $why) = $standby->psql('postgres', q(SELECT outcome FROM idem_claim('storm', 'key-standby-00000001', 'POST', '/p')));
		like($why, qr/cannot execute idem_claim\(\) on a standby server/, "$mode: before that, a claim on the standby says what it should");
	}
	$primary->stop('immediate');
	$standby->promote;
	ok(IPC::Run::finish($storming), "$mode: every client got its final answers, on the new primary") or diag($error);

	delete local $ENV{PGTARGETSESSIONATTRS};
	$ENV{PGHOST} = $standby->host;
	$ENV{PGPORT} = $standby->port;
	my $findings;
	ok(IPC::Run::run([ $python, "$storm/check.py", $history, $mode eq 'asynchronous' ? 'tables' : () ], '>', \$findings, '2>', \$error),
		$mode eq 'synchronous' ? 'no acknowledged key is lost, and no effect without its key' : 'no effect without its key, and none twice') or diag($findings, $error);
	diag("storm: failover, $mode: $findings");
	$standby->stop;
}
done_testing();
