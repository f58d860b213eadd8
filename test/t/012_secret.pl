# Fingerprints under a secret: a stolen table can't be searched, honest retries stay honest when the secret comes, changes or goes.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($one, $two) = ('first-secret-0123456789abcdef0123', 'other-secret-0123456789abcdef0123');
my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
$node->append_conf('postgresql.conf', "log_min_messages = debug5\nlog_statement = all\n");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION idempotency;
CREATE ROLE app LOGIN;
GRANT EXECUTE ON FUNCTION idem_claim, idem_complete TO app;
CREATE FUNCTION run(n int, amount int DEFAULT 1, tenant text DEFAULT 'acme') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer idem_claim_result := idem_claim(tenant, 'key-secret-0000000' || n, 'POST', '/p', jsonb_build_object('card', 4111111111111111, 'amount', amount));
BEGIN
	IF answer.outcome = 'claimed' THEN
		PERFORM idem_complete(tenant, 'key-secret-0000000' || n, 201);
	END IF;
	RETURN answer.outcome;
END $$;
SQL

my $file = $node->data_dir . '/secrets';

sub secrets
{
	my ($mode, @lines) = @_;
	unlink $file;
	append_to_file($file, join('', map { "$_\n" } @lines));
	chmod $mode, $file;
	$node->reload;
	return;
}

sub run
{
	my ($n, %with) = @_;
	my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT run($n, " . ($with{amount} // 1) . ", '" . ($with{tenant} // 'acme') . "')", extra_params => ['-U', $with{role} // 'app']);
	return $out ne '' ? $out : $err;
}

# a setting takes effect a moment after a reload
sub becomes
{
	my ($wanted, $name, $n, %with) = @_;
	my $got = '';
	for (1 .. 50)
	{
		$got = run($n, %with);
		last if $got =~ $wanted;
		select undef, undef, undef, 0.1;
	}
	like($got, $wanted, $name);
	return;
}

sub hash
{
	my ($n) = @_;
	return $node->safe_psql('postgres', "SELECT fingerprint_version, encode(request_hash, 'hex') FROM idempotency_keys WHERE key = 'key-secret-0000000$n'");
}
my $plain = "SELECT encode(idem_fingerprint('POST', '/p', '{\"card\": 4111111111111111, \"amount\": 1}'), 'hex')";
my $guess = $node->safe_psql('postgres', $plain);

is(run(1), 'claimed', 'without a secret');
is(hash(1), "1|$guess", 'a guess of the body finds the row');

secrets(0600, $one);
$node->append_conf('postgresql.conf', "idempotency.fingerprint_secret_file = 'secrets'\n");
$node->reload;
$node->poll_query_until('postgres', "LOAD 'idempotency'; SHOW idempotency.fingerprint_secret_file", "LOAD\nsecrets") or die 'not reloaded';
is(run(2), 'claimed', 'with a secret');
my ($version, $keyed) = split /\|/, hash(2);
is($version, 2, 'the row says how');
isnt($keyed, $guess, 'the guess finds nothing');
is($node->safe_psql('postgres', $plain), $guess, 'idem_fingerprint() is the plain one: it is no oracle for the secret');
is(run(3), 'claimed', 'the same request with another key');
isnt(substr((split /\|/, hash(3))[1], 8), substr($keyed, 8), 'equal requests are not stored equal');
is(run(2, tenant => 'globex'), 'claimed', 'nor for another tenant');
is($node->safe_psql('postgres', "SELECT count(DISTINCT substr(request_hash, 5)) FROM idempotency_keys WHERE key = 'key-secret-00000002'"), 2, 'with the same key');
is(run(1) . ' ' . run(2), 'replay replay', 'retries of a row from before, and of this one');
is(run(1, amount => 2) . ' ' . run(2, amount => 2), 'mismatch mismatch', 'another body');
is($node->safe_psql('postgres', "BEGIN; SELECT outcome FROM idem_claim('acme', 'key-open-00000000001', 'POST', '/p', '1');
	SELECT outcome FROM idem_claim('acme', 'key-open-00000000001', 'POST', '/p', '1'); SELECT outcome FROM idem_claim('acme', 'key-open-00000000001', 'POST', '/p', '2'); ROLLBACK"),
	"claimed\nin_progress\nmismatch", 'a claim that is open is compared under the secret');
is($node->safe_psql('postgres', "SELECT outcome FROM idem_claim('acme', 'key-lease-0000000001', 'POST', '/p', '{\"a\": 1, \"timestamp\": 1}', lease => '60 s');
	SET idempotency.ignored_fields = '/a'; SELECT outcome FROM idem_claim('acme', 'key-lease-0000000001', 'POST', '/p', '{\"a\": 1, \"timestamp\": 2}');
	SELECT outcome FROM idem_claim('acme', 'key-lease-0000000001', 'POST', '/p', '{\"a\": 2, \"timestamp\": 2}')"),
	"claimed\nin_progress\nmismatch", 'a lease, and other ignored fields since');

# the secret is changed
secrets(0600, $two, $one);
becomes(qr/^claimed$/, 'a new secret', 4);
my $backend = $node->background_psql('postgres');
is($backend->query('SELECT run(2)'), 'replay', 'a retry of a row of the old one');
is($backend->query('SELECT run(4)'), 'replay', 'and of the new one');
isnt(substr((split /\|/, hash(4))[1], 0, 8), substr($keyed, 0, 8), 'the row says which');

# off again: what is new is plain, the others compare
secrets(0600, 'plain', $two, $one);
for (1 .. 50)
{
	$node->safe_psql('postgres', "DELETE FROM idempotency_keys WHERE key = 'key-secret-00000009'; SELECT run(9)");
	last if substr(hash(9), 0, 1) eq '1';
	select undef, undef, undef, 0.1;
}
is(substr(hash(9), 0, 1), '1', 'retired: a new key is stored without a secret');
is(join(' ', map { run($_) } 1, 2, 4, 9), 'replay replay replay replay', 'and retries of all are answered');
is(join(' ', map { run($_, amount => 2) } 1, 2, 4, 9), 'mismatch mismatch mismatch mismatch', 'as are other requests');
secrets(0600, $two, $one);
becomes(qr/^claimed$/, 'and used again', 8);

# the secret is lost: not 422, which would have the client pay again with a new key
secrets(0600, $two);
becomes(qr/ERROR:  F0000: the secret of the fingerprint of idempotency key "key-secret-00000002" of tenant "acme" is missing/, 'a row whose secret is gone is an error', 2);
is(run(4), 'replay', 'the others are answered');
is($backend->query("DO \$\$ BEGIN PERFORM run(2); RAISE 'answered'; EXCEPTION WHEN config_file_error THEN NULL; END \$\$; SELECT 'refused'"), 'refused',
	'a session of before the reload knows, too');
$backend->quit;
$node->safe_psql('postgres', "UPDATE idempotency_keys SET created_at = now() - interval '9 days', expires_at = now() - interval '1 day' WHERE key = 'key-secret-00000002' AND tenant_id = 'acme'");
is(run(2), 'claimed', 'what has expired is not compared');

# what can't be used
for my $case (
	[ 0640, [$one], 'Others may read it: its permissions must be u=rw (0600) or less, or u=rw,g=r (0640) if root owns it.' ],
	[ 0600, ['short'], 'A secret has 32 to 1024 bytes; the one in line 1 has not.' ],
	[ 0600, ['', 'x' x 1025], 'A secret has 32 to 1024 bytes; the one in line 2 has not.' ],
	[ 0600, [], 'It has no secret.' ],
	[ 0600, [ '# the payments secret, made in 2026 by me', $one ], 'Line 1 has a blank: a secret has none, and there are no comments.' ],
	[ 0600, [ map { $one . $_ } 1 .. 9 ], 'It has more than 8 secrets.' ],
	[ 0600, [ 'x' x 20000 ], 'It cannot be read, or is larger than 8271 bytes.' ])
{
	my ($mode, $lines, $detail) = @$case;
	secrets($mode, @$lines);
	becomes(qr/ERROR:  F0000: the file of "idempotency.fingerprint_secret_file" cannot be used\nDETAIL:  \Q$detail\E/, $detail, 5);
}
unlink $file;
mkdir $file;
$node->reload;
becomes(qr/DETAIL:  It is no regular file\.|DETAIL:  It cannot be read/, 'a directory', 5);
rmdir $file;
$node->reload;
becomes(qr/DETAIL:  It cannot be opened: No such file or directory/, 'no file', 5);
is($node->safe_psql('postgres', "SELECT count(*) FROM idempotency_keys WHERE key = 'key-secret-00000005'"), 0, 'nothing was stored without the secret');
is($node->safe_psql('postgres', "SELECT outcome FROM idem_claim('acme', 'key-get-000000000001', 'GET', '/p')"), 'bypass', 'what is not covered needs no secret');
secrets(0600, $two, $one);
becomes(qr/^claimed$/, 'mended', 5);

# the setting is emptied too soon
$node->append_conf('postgresql.conf', "idempotency.fingerprint_secret_file = ''");
$node->reload;
becomes(qr/F0000: the secret of the fingerprint .* is missing\nDETAIL:  .*\nHINT:  Set "idempotency\.fingerprint_secret_file" again; with "plain" as its first line, the secrets below only compare\./, 'emptied', 4);
$node->append_conf('postgresql.conf', "idempotency.fingerprint_secret_file = 'secrets'");
$node->reload;
becomes(qr/^replay$/, 'and set again', 4);

# a fingerprint of a later version
$node->safe_psql('postgres', "UPDATE idempotency_keys SET fingerprint_version = 3 WHERE key = 'key-secret-00000005'");
like(run(5), qr/ERROR:  0A000: the fingerprint of idempotency key "key-secret-00000005" of tenant "acme" has the unknown version 3/, 'is an error, not another request');

# who may see it
my ($status, $out, $err) = $node->psql('postgres', "LOAD 'idempotency'; SET ROLE app; SHOW idempotency.fingerprint_secret_file");
like($err, qr/permission denied to examine "idempotency.fingerprint_secret_file"|must be superuser/, 'a role without rights does not even see the name of the file');
($status, $out, $err) = $node->psql('postgres', "LOAD 'idempotency'; SET idempotency.fingerprint_secret_file = ''");
like($err, qr/cannot be changed now/, 'a session can not turn it off');
($status, $out, $err) = $node->psql('postgres', "SET idempotency.fingerprint_secret_file = ''; SELECT run(6)", extra_params => ['-U', 'app']);
is(substr(hash(6), 0, 1), '2', 'nor can it before the library is loaded');
unlike(slurp_file($node->logfile), qr/first-secret|other-secret/, 'the secret is not in the log, at debug5 with all statements');

done_testing();
