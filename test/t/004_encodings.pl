# The fingerprint is the same whatever the database's encoding; locales change nothing.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
$node->start;
$node->safe_psql('postgres', "CREATE DATABASE utf8 ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0");
$node->safe_psql('postgres', "CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
$node->safe_psql('postgres', "CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0");
$node->safe_psql('postgres', "CREATE DATABASE icu ENCODING 'UTF8' LOCALE 'C.UTF-8' LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR' TEMPLATE template0");
my @databases = ('utf8', 'latin1', 'ascii', 'icu');
$node->safe_psql($_, 'CREATE EXTENSION idempotency') for @databases;

# the published vector (test/vectors/fingerprint.jsonl, latin1-e-acute), the body as UTF-8 bytes
my $vector = '5fb1ad75c9207bba6656f9cf1ff3ac42ee6cce0c777f896eea363402a364f64a';
my $body = q(convert_from('\x22c3a922', 'UTF8')::jsonb);
for my $database ('utf8', 'latin1', 'icu')
{
	is($node->safe_psql($database, "SELECT encode(idem_fingerprint('POST', '/x', $body), 'hex')"), $vector, "$database: the published fingerprint");
}
is($node->safe_psql('ascii', q(SELECT encode(idem_fingerprint('POST', '/x', E'"\xc3\xa9"'::jsonb), 'hex'))), $vector, 'ascii: the same for bytes that are UTF-8');
my ($status, $stdout, $stderr) = $node->psql('ascii', "\\set VERBOSITY verbose\n" . q(SELECT idem_canonical(E'"\xff"'::jsonb)));
like($stderr, qr/ERROR:  22021: invalid byte sequence for encoding "UTF8": 0xff/, 'ascii: bytes that are not are refused');

my $names = q({"a":1,"B":2,"_":3,"A":4,"b":5,"i":6,"I":7});
for my $database (@databases)
{
	is($node->safe_psql($database, "SELECT idem_canonical('$names')"), '{"A":4,"B":2,"I":7,"_":3,"a":1,"b":5,"i":6}', "$database: names in code unit order");
	is($node->safe_psql($database, "SELECT idem_fingerprint('patIch', '/') = idem_fingerprint('PATICH', '/')"), 't', "$database: capitals are ASCII's");
}

# names, pointers and the canonical text itself are converted
is($node->safe_psql('latin1', q(SET client_encoding = 'UTF8'; SELECT idem_canonical('{"é":1,"z":2,"ä":[3]}'))), '{"z":2,"ä":[3],"é":1}', 'latin1: names are sorted as UTF-16');
is($node->safe_psql('latin1', q(SET client_encoding = 'UTF8'; SELECT idem_canonical('{"é":1,"z":2,"ä":[3]}', '{/é,/ä/0}'))), '{"z":2,"ä":[]}', 'latin1: a pointer finds its member');
is($node->safe_psql('latin1', q(SET client_encoding = 'UTF8'; SELECT idem_fingerprint('POST', '/é') = sha256('\x504f53540a2fc3a90a'))), 't', 'latin1: the path is UTF-8');

# the setting, too, names members in the database's encoding: what it ignores may change on a retry
my $request = q(idem_claim('acme', 'key-ignored-00000001', 'POST', '/p', '{"a":1,"é":%d}'));
for my $database ('utf8', 'latin1')
{
	my $first = sprintf($request, 1);
	my $retry = sprintf($request, 2);
	my $set = q(SET client_encoding = 'UTF8'; SET idempotency.ignored_fields = '/é,/t';);
	$node->safe_psql($database, "$set BEGIN; SELECT $first; SELECT idem_complete('acme', 'key-ignored-00000001', 201); COMMIT");
	is($node->safe_psql($database, "$set SELECT outcome FROM $retry"), 'replay', "$database: an ignored field that is not ASCII");
	is($node->safe_psql($database, "SET client_encoding = 'UTF8'; SELECT outcome FROM $retry"), 'replay', "$database: also when the setting has changed since");
}

# tenants are compared byte by byte
for my $database ('utf8', 'latin1', 'icu')
{
	$node->safe_psql($database, q(SET client_encoding = 'UTF8'; BEGIN; SELECT idem_claim('ämé', 'key-0000000000000001', 'POST', '/p'); SELECT idem_complete('ämé', 'key-0000000000000001', 201); COMMIT));
	is($node->safe_psql($database, q(SET client_encoding = 'UTF8'; SELECT outcome FROM idem_claim('ämé', 'key-0000000000000001', 'POST', '/p'))), 'replay', "$database: a tenant that is not ASCII");
	is($node->safe_psql($database, q(SET client_encoding = 'UTF8'; BEGIN; SELECT string_agg(outcome, ' ') FROM unnest('{ÄMÉ,ämé\\\\ ,ame}'::text[]) t, idem_claim(t, 'key-0000000000000001', 'POST', '/p'); ROLLBACK)),
		'claimed claimed claimed', "$database: and others like it");
}

done_testing();
