# pg_upgrade from PostgreSQL 15 with data: every row and policy is there, of 0.9.0's objects too, and what was claimed is replayed. IDEM_OLD_INSTALL
# is an installation of 15 with the extension; test/versions makes one.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'no older PostgreSQL to upgrade from: see test/versions' unless $ENV{IDEM_OLD_INSTALL};

my @initdb = ('--data-checksums', '--encoding', 'UTF8', '--locale', 'C');
my $old = PostgreSQL::Test::Cluster->new('old', install_path => $ENV{IDEM_OLD_INSTALL});
my $new = PostgreSQL::Test::Cluster->new('new');
my $secret = PostgreSQL::Test::Utils::tempdir() . '/secret';
append_to_file($secret, 'a-secret-of-thirty-two-bytes-or-more');
chmod 0600, $secret;
for my $node ($old, $new)
{
	$node->init(extra => [@initdb]);
	$node->append_conf('postgresql.conf', "idempotency.fingerprint_secret_file = '$secret'\nidempotency.http_tenant = 'app.tenant'");
}

# two databases: one has this version, one the previous, with keys of each kind and policies
$old->start;
my $rows = "SELECT md5(string_agg(k::text, chr(10) ORDER BY key)), count(*) FROM idem.idempotency_keys k";
my $policies = 'SELECT method, path_pattern, retention FROM idem.idempotency_operations; SELECT * FROM idem.idempotency_tenants';
my $catalog = slurp_file("$ENV{IDEM_SOURCE}/test/t/catalog.sql");
my %version = (present => '1.0.0', previous => '0.9.0');
my (%rows, %catalog, %token);
$old->safe_psql('postgres', 'CREATE ROLE other; CREATE ROLE app');
for my $database (sort keys %version)
{
	$old->safe_psql('postgres', "CREATE DATABASE $database");
	$old->safe_psql($database, "CREATE SCHEMA idem; CREATE EXTENSION idempotency SCHEMA idem VERSION '$version{$database}'" . <<'SQL');
;
GRANT USAGE ON SCHEMA idem TO app;
GRANT EXECUTE ON FUNCTION idem.idem_claim, idem.idem_complete TO app;
CREATE FUNCTION run(n int, tenant text DEFAULT 'acme', status int DEFAULT 201) RETURNS text LANGUAGE plpgsql SET search_path = idem, public AS $$
DECLARE
	name text := 'key-' || 1000000000000 + n;
	answer idem_claim_result := idem_claim(tenant, name, 'POST', '/payments', jsonb_build_object('n', n));
BEGIN
	IF answer.outcome = 'claimed' THEN
		PERFORM idem_complete(tenant, name, status, jsonb_build_object('n', n), '{"Location": "/x"}', undone => true);
	END IF;
	RETURN concat_ws(' ', answer.outcome, answer.status, answer.attempt, answer.body ->> 'n', answer.headers ->> 'Location');
END $$;
SELECT run(n) FROM generate_series(1, 100) n;
SELECT run(200, status => 503);
SELECT idem.idem_claim('acme', 'key-lease-00000001', 'POST', '/payments', lease => '1 hour');
SELECT idem.idem_checkpoint('acme', 'key-lease-00000001', (SELECT claim_token FROM idem.idempotency_keys WHERE key = 'key-lease-00000001'), 'charged', '{"at": 1}');
SELECT idem.idem_allow('POST', '/payments', retention => '3 days');
SELECT idem.idem_bind_tenant('app', 'acme');
SQL
	$old->safe_psql($database, "SELECT idem.idem_limit_tenant('globex', 1)") if $database eq 'present';
	$rows{$database} = $old->safe_psql($database, $rows);
	$token{$database} = $old->safe_psql($database, "SELECT claim_token FROM idem.idempotency_keys WHERE key = 'key-lease-00000001'");
}
like($rows{present}, qr/\|102$/, 'rows of each kind');
my $policies_before = $old->safe_psql('present', $policies);
$old->stop;

chdir PostgreSQL::Test::Utils::tempdir() or die;
command_ok(
	[   'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
		'-s', $new->host, '-p', $old->port, '-P', $new->port ],
	'pg_upgrade');
die 'no upgrade' unless Test::More->builder->is_passing;
$new->start;
isnt($new->safe_psql('postgres', 'SHOW server_version_num') / 10000 % 100, 15, 'another version of the server');

for my $database (sort keys %version)
{
	my $session = $new->background_psql($database);
	is($new->safe_psql($database, "SELECT extversion FROM pg_extension WHERE extname = 'idempotency'"), $version{$database}, "$database: the extension's version stays");
	is($new->safe_psql($database, $rows), $rows{$database}, 'every row');
	is($new->safe_psql($database, $policies), $policies_before, 'every policy');
	is($session->query('SELECT count(*) FROM generate_series(1, 100) n WHERE run(n) = concat($$replay 201 1 $$, n, $$ /x$$)'), 100, 'every answer is replayed');
	is($session->query("SELECT outcome FROM idem.idem_claim('acme', 'key-1000000000001', 'POST', '/payments', '2')"), 'mismatch', 'compared under the secret');
	if ($database eq 'previous')
	{
		$new->safe_psql($database, 'ALTER EXTENSION idempotency UPDATE');
		is($session->query('SELECT run(1)'), 'replay 201 1 1 /x', 'updated, while a session lives');
		is($session->query("SELECT idem.idem_limit_tenant('globex', 1)"), '', 'to the present version');
	}
	is($session->query('SELECT run(200)'), 'claimed 2', '"try again" runs again');
	is($session->query('SELECT run(300)'), 'claimed 1', 'a new key runs');
	is($session->query("SELECT run(1, 'globex') || ', ' || run(2, 'globex')"), 'claimed 1, rejected 429', 'limits hold');
	is($session->query("SELECT outcome FROM idem.idem_claim('acme', 'key-lease-00000001', 'POST', '/payments')"), 'in_progress', 'a lease is alive');
	is($session->query("SELECT idem.idem_complete('acme', 'key-lease-00000001', 201, token => '$token{$database}')"), 'completed', 'and its worker completes it');
	is($session->query('SET ROLE app; DO $$ BEGIN PERFORM idem.idem_claim(\'initech\', \'key-1000000000001\', \'POST\', \'/payments\'); EXCEPTION WHEN insufficient_privilege THEN PERFORM set_config(\'my.state\', SQLSTATE, false); END $$; SELECT current_setting(\'my.state\'); RESET ROLE'),
		'42501', 'a role keeps to its tenant');
	$session->quit;
	$catalog{$database} = $new->safe_psql($database, 'REVOKE ALL ON FUNCTION idem.idem_claim, idem.idem_complete FROM app; ' . $catalog);
}

# what has come through the upgrade is what this server makes
$new->safe_psql('postgres', 'CREATE DATABASE fresh');
$new->safe_psql('fresh', 'CREATE SCHEMA idem; CREATE EXTENSION idempotency SCHEMA idem');
my $fresh = $new->safe_psql('fresh', $catalog);
cmp_ok(length($fresh), '>', 20000, 'the catalog is read');
is($catalog{$_}, $fresh, "$_: the same objects as a fresh extension") for sort keys %version;

done_testing();
