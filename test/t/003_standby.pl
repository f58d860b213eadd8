# A standby: nothing can be claimed there, keys can be looked up, and after promotion everything works.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', "max_prepared_transactions = 10\n");
$primary->start;
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

my $claim = "SELECT outcome FROM idem_claim('acme', '%s', 'POST', '/p');";
$primary->safe_psql('postgres', 'CREATE EXTENSION idempotency');
$primary->safe_psql('postgres', sprintf("BEGIN; $claim SELECT idem_complete('acme', '%s', 201, '{\"id\": 1}'); COMMIT", ('key-completed-000001') x 2));
$primary->safe_psql('postgres', sprintf("BEGIN; $claim SELECT idem_complete('acme', '%s', 201); PREPARE TRANSACTION 'p'", ('key-prepared-0000001') x 2));
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('write'));

for my $key ('key-new-000000000001', 'key-completed-000001')
{
	my ($status, $stdout, $stderr) = $standby->psql('postgres', "\\set VERBOSITY verbose\n" . sprintf($claim, $key));
	like($stderr, qr/ERROR:  25006: cannot execute idem_claim\(\) on a standby server/, "$key: no claim on a standby");
	like($stderr, qr/HINT:  Send requests that change data to the primary/, 'with a hint');
}
is($standby->safe_psql('postgres', "SELECT outcome FROM idem_claim('acme', NULL, 'GET', '/p')"), 'bypass', 'a GET needs no key there either');
is($standby->safe_psql('postgres', "SELECT state, response_status, response_body FROM idem_lookup('acme', 'key-completed-000001')"), 'completed|201|{"id": 1}', 'a key is looked up');
is($standby->safe_psql('postgres', "SET idempotency.direct_lookup = off; SELECT state FROM idem_lookup('acme', 'key-completed-000001')"), 'completed', 'by the planner too');
is($standby->safe_psql('postgres', "SELECT count(*) FROM idem_lookup('acme', 'key-unknown-00000001')"), 0, 'an unknown one too');
is($standby->safe_psql('postgres', q(SELECT idem_canonical('{"b":1,"a":1.0}'))), '{"a":1,"b":1}', 'canonical JSON');
is($standby->safe_psql('postgres', q(SELECT length(idem_fingerprint('POST', '/p', '{}')))), 32, 'fingerprint');

$primary->stop('immediate');
$standby->promote;
$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
is($standby->safe_psql('postgres', sprintf($claim, 'key-completed-000001')), 'replay', 'promoted: a completed key is replayed');
is($standby->safe_psql('postgres', sprintf("BEGIN; $claim SELECT idem_complete('acme', '%s', 201); COMMIT", ('key-new-000000000001') x 2)),
	"claimed\ncompleted", 'a new one is claimed and completed');
is($standby->safe_psql('postgres', sprintf($claim, 'key-prepared-0000001')), 'in_progress', 'a prepared one is held');
$standby->safe_psql('postgres', "ROLLBACK PREPARED 'p'");
is($standby->safe_psql('postgres', sprintf("BEGIN; $claim ROLLBACK", 'key-prepared-0000001')), 'claimed', 'until it is rolled back');

done_testing();
