# The lines of docs/security.md that need a server of their own: everything of pg_catalog has a look-alike that comes first; the log at debug5 and
# pg_stat_statements; what one tenant can see or take of another; bodies and keys made to be slow.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
my $file = PostgreSQL::Test::Utils::tempdir() . '/secret';
my $secret = 'this-secret-must-not-be-seen-anywhere';
append_to_file($file, "$secret\n");
chmod 0600, $file;
$node->init(extra => [ '--encoding', 'UTF8', '--locale', 'C' ]);
$node->append_conf('postgresql.conf', <<"CONF");
shared_preload_libraries = 'pg_stat_statements, idempotency'
pg_stat_statements.track = all
max_connections = 20
max_locks_per_transaction = 1000
log_min_messages = debug5
log_error_verbosity = verbose
log_statement = none
log_min_error_statement = panic
idempotency.http_tenant = 'app.tenant'
idempotency.fingerprint_secret_file = '$file'
CONF
$node->start;

# a schema with a look-alike of each function, operator, type, table and view of pg_catalog, which says so when it is used
$node->safe_psql('postgres', <<'SQL');
CREATE SCHEMA evil;
DO $$
DECLARE
	item record;
BEGIN
	FOR item IN
		SELECT proname, oidvectortypes(proargtypes) AS arguments, format_type(prorettype, NULL) AS result, proretset
		  FROM pg_proc
		 WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND provariadic = 0
		   AND NOT EXISTS (SELECT FROM pg_type WHERE (pg_type.oid = ANY (proargtypes) OR pg_type.oid = prorettype) AND typtype = 'p')
	LOOP
		EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s%s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION $m$intruder: function %%$m$, %L; END $f$',
			item.proname, item.arguments, CASE WHEN item.proretset THEN 'SETOF ' END, item.result, item.proname);
	END LOOP;
	FOR item IN
		SELECT proname, NULLIF(oidvectortypes(proargtypes), '') AS arguments, 'aggregate_' || row_number() OVER () AS name
		  FROM pg_proc
		 WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'a' AND provariadic = 0 AND proname !~ '^(percentile|mode|rank|dense_rank|percent_rank|cume_dist)'
		   AND NOT EXISTS (SELECT FROM pg_type WHERE (pg_type.oid = ANY (proargtypes) OR pg_type.oid = prorettype) AND typtype = 'p')
	LOOP
		EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS int8 LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION $m$intruder: aggregate %%$m$, %L; END $f$',
			item.name, concat_ws(', ', 'int8', item.arguments), item.proname);
		EXECUTE format('CREATE AGGREGATE evil.%I(%s) (SFUNC = evil.%I, STYPE = int8)', item.proname, coalesce(item.arguments, '*'), item.name);
	END LOOP;
	FOR item IN
		SELECT oprname, format_type(oprleft, NULL) AS l, format_type(oprright, NULL) AS r, format_type(oprresult, NULL) AS result,
		       'operator_' || row_number() OVER () AS name
		  FROM pg_operator
		 WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b'
		   AND NOT EXISTS (SELECT FROM pg_type WHERE pg_type.oid IN (oprleft, oprright, oprresult) AND typtype = 'p')
	LOOP
		EXECUTE format('CREATE FUNCTION evil.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION $m$intruder: operator %%$m$, %L; END $f$',
			item.name, item.l, item.r, item.result, item.oprname);
		EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.%I)', item.oprname, item.l, item.r, item.name);
	END LOOP;
	FOR item IN
		SELECT relname, string_agg(quote_ident(attname), ', ') AS columns
		  FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND atttypid NOT IN ('anyarray'::regtype, 'pg_statistic[]'::regtype)
		 WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r'
		 GROUP BY relname
	LOOP
		-- an error as soon as it is read
		EXECUTE format('CREATE VIEW evil.%I AS SELECT %s FROM pg_catalog.%I WHERE pg_catalog.int4div(1, 0) = 1', item.relname, item.columns, item.relname);
	END LOOP;
	FOR item IN
		SELECT typname, format_type(oid, NULL) AS type FROM pg_type
		 WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typelem = 0
		   AND NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = 'evil'::regnamespace AND relname = typname)
	LOOP
		EXECUTE format('CREATE DOMAIN evil.%I AS %s CHECK (pg_catalog.int4div(1, 0) IS NULL)', item.typname, item.type);
	END LOOP;
END $$;
SQL
my $look_alikes = $node->safe_psql('postgres', "SELECT (SELECT count(*) FROM pg_proc WHERE pronamespace = 'evil'::regnamespace) + (SELECT count(*) FROM pg_operator WHERE oprnamespace = 'evil'::regnamespace)
	+ (SELECT count(*) FROM pg_class WHERE relnamespace = 'evil'::regnamespace) + (SELECT count(*) FROM pg_type WHERE typnamespace = 'evil'::regnamespace AND typtype = 'd')");
cmp_ok($look_alikes, '>', 3000, "look-alikes: $look_alikes");
my ($status, $stdout, $stderr) = $node->psql('postgres', "SET search_path = evil, pg_catalog; SELECT lower('X'::pg_catalog.text)");
like($stderr, qr/intruder: function lower/, 'they do come first');
($status, $stdout, $stderr) = $node->psql('postgres', "SET search_path = evil, pg_catalog; SELECT 1 = 1");
like($stderr, qr/intruder: operator =/, 'operators too');
($status, $stdout, $stderr) = $node->psql('postgres', "SET search_path = evil, pg_catalog; SELECT count(*) FROM (VALUES (1)) v");
like($stderr, qr/intruder: aggregate count/, 'and aggregates');

# the extension is created among them, and each of its functions called
my $calls = <<'SQL';
SET idempotency.direct_lookup = DIRECT;
SELECT outcome FROM idem_claim('acme', 'key-0000000000000001', 'POST', '/p?x', '{"b": [1.50, {"a": null}], "timestamp": 1}', lease => '1 min');
SELECT idem_renew('acme', 'key-0000000000000001', claim_token, '2 min') IS NULL, idem_checkpoint('acme', 'key-0000000000000001', claim_token, 'charged', '{"a": 1}')
  FROM idempotency_keys;
SELECT idem_complete('acme', 'key-0000000000000001', 201, '{"a": 1}', '{"Location": ["/x", "/y"]}', token => claim_token) FROM idempotency_keys;
SELECT outcome FROM idem_claim('acme', 'key-0000000000000001', 'POST', '/p?x', '{"b": [1.5, {"a": null}]}');
SELECT outcome FROM idem_claim('acme', 'key-0000000000000001', 'POST', '/p', '{"b": 1}');
BEGIN;
SELECT outcome FROM idem_claim('acme', 'key-0000000000000002', 'POST', '/p', raw_body => '\x00');
SELECT idem_release('acme', 'key-0000000000000002');
SELECT outcome FROM idem_claim('acme', 'key-0000000000000003', 'POST', '/p');
SELECT held_by FROM idempotency_in_flight;
SELECT idem_complete('acme', 'key-0000000000000003', 503, undone => true);
COMMIT;
SELECT outcome FROM idem_execute('acme', 'key-0000000000000004', 'POST', '/p', '{"a": 1}', 'public.handle(pg_catalog.jsonb)');
BEGIN;
SET LOCAL request.method = 'POST'; SET LOCAL request.path = '/p'; SET LOCAL request.headers = '{"Idempotency-Key": "key-0000000000000005"}'; SET LOCAL app.tenant = 'acme';
SELECT idem_http('public.handle(pg_catalog.jsonb)', '{"a": 1}');
COMMIT;
SELECT state, attempt FROM idem_lookup('acme', 'key-0000000000000001');
SELECT idem_allow('POST', '/p/{id}', retention => '2 days', lease => '1 min', ignore => '{/a}', statuses => '{"22P02": 400}');
SELECT idem_bind_tenant('intruder_app', 'acme');
SELECT idem_limit_tenant(NULL, 1000, 100);
SELECT idem_limit_tenant('acme', 1000, 100);
SELECT outcome FROM idem_claim('acme', 'key-0000000000000006', 'POST', '/p/1');
SELECT outcome FROM idem_claim('acme', 'key-0000000000000006', 'POST', '/other');
SELECT method, path_pattern FROM idempotency_operations;
SELECT idem_disallow('POST', '/p/{id}');
SELECT idem_unbind_tenant('intruder_app', 'acme');
SELECT idem_unlimit_tenant(NULL);
SELECT idem_unlimit_tenant('acme');
CALL idem_purge(10, 1);
SELECT tenant_id, status, keys FROM idempotency_status;
SELECT scope FROM idem_counters();
SELECT idem_key_lock('acme', 'key-0000000000000001') IS NOT NULL;
SELECT idem_canonical('{"b": 1.0, "a": 1e2}', '{/b}'), idem_fingerprint('POST', '/p', '{"a": 1}') IS NOT NULL, idem_key_from_header('"key"'), idem_derive_key('acme', 'key-0000000000000001', 's');
SELECT idem_schedule_purge();
SELECT idem_unschedule_purge();
SELECT idem_forget('acme', 'key-0000000000000001');
SELECT idem_forget('acme');
SQL
$node->safe_psql('postgres', "CREATE ROLE intruder_app; CREATE FUNCTION public.handle(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT \$1'");
for my $direct ('on', 'off')
{
	(my $text = $calls) =~ s/DIRECT/$direct/;
	my %answers;
	for my $schema ('public', 'evil')
	{
		my $path = $schema eq 'evil' ? 'evil, pg_catalog' : 'public';
		($status, $stdout, $stderr) = $node->psql('postgres', "SET search_path = $path; CREATE EXTENSION idempotency SCHEMA $schema;\n$text", on_error_stop => 0);
		unlike($stderr, qr/intruder|division/, "$schema: no look-alike is called");
		# pg_cron is not here
		is(scalar(() = $stderr =~ /ERROR:/g), scalar(() = $stderr =~ /ERROR:.*pg_cron/g), 'nor does anything else fail') or diag($stderr);
		$answers{$schema} = $stdout;
		$node->safe_psql('postgres', 'DROP EXTENSION idempotency');
	}
	is($answers{evil}, $answers{public}, "the answers are the same (direct_lookup = $direct)");
}

# the log at its most talkative, and pg_stat_statements, after requests and answers that hold secrets, by parameters, also where they fail
my ($card, $iban) = ('4111111111111111', 'SE3550000000054910000003');
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency; CREATE EXTENSION pg_stat_statements; GRANT EXECUTE ON FUNCTION idem_claim, idem_complete, idem_lookup TO intruder_app; CREATE DATABASE bare');
my @statements = (
	qq(SELECT idem_claim('acme', 'key-secret-000000001', 'POST', '/p', '{"card": "$card"}')),
	qq(SELECT idem_execute('acme', 'key-secret-000000001', 'POST', '/p', '{"card": "$card"}', 'handle(jsonb)')),
	qq(SELECT idem_execute('acme', 'key-secret-000000001', 'POST', '/p', '{"card": "$card"}', 'handle(jsonb)')),
	qq(SELECT idem_execute('acme', 'key-secret-000000001', 'POST', '/p', '{"card": "other $card"}', 'handle(jsonb)')),
	qq(SELECT idem_claim('acme', 'key-secret-000000002', 'POST', '/p', raw_body => '$card', lease => '0 s')),
	qq(SELECT idem_claim('acme', 'key-secret-000000003', 'POST', '/p', raw_body => '$card', lease => '10 s')),
	qq(SELECT idem_complete('acme', 'key-secret-000000003', 201, '{"iban": "$iban"}', '{"x y": "$iban"}')),
	qq(SELECT idem_complete('acme', 'key-secret-000000003', 201, '{"iban": "$iban"}')),
	qq(SELECT idem_complete('acme', 'key-secret-000000003', 201, '{"iban": "$iban"}', token => claim_token) FROM idempotency_keys WHERE key = 'key-secret-000000003'),
	qq(SELECT idem_claim('', 'key-secret-000000003', 'POST', '/p', '{"card": "$card"}')),
	qq(SELECT idem_claim('acme', 'key-secret-000000003', 'P T', '/p', '{"card": "$card"}')),
	qq(SELECT idem_canonical('{"card": "$card"}', '{x}')),
	qq(SELECT idem_fingerprint('POST', '/p', '{"card": "$card"}', '$card')));
# each statement is an error's context, too: log_min_error_statement is off, as is log_statement
$node->psql('postgres', "$_;") for @statements;
$node->append_conf('postgresql.conf', "log_min_error_statement = error");
$node->reload;
my $log = slurp_file($node->logfile);
cmp_ok(length($log), '>', 100_000, 'a talkative log');
unlike($log, qr/$card|$iban/, 'no body in the log at debug5');
unlike($log, qr/\Q$secret\E/, 'nor the secret');
my $texts = $node->safe_psql('postgres', 'SELECT query FROM pg_stat_statements');
like($texts, qr/idem_execute\(\$1/, 'pg_stat_statements has seen them');
unlike($texts, qr/$card|$iban|key-secret|\Q$secret\E/, 'and has no body, no key');
is($node->safe_psql('postgres', "SET ROLE intruder_app; SELECT count(*) FROM pg_settings WHERE setting LIKE '%$secret%' OR reset_val LIKE '%$secret%'"), 0, 'nor have the settings');

# the unique index between tenants: another tenant's key of the same name is no conflict, no wait and no difference, held or stored
$node->safe_psql('postgres', "SET client_min_messages = warning; DO \$\$ BEGIN PERFORM idem_claim('acme', 'key-shared-000000001', 'POST', '/p', '1'); PERFORM idem_complete('acme', 'key-shared-000000001', 201); END \$\$");
my $acme = $node->background_psql('postgres');
$acme->query("BEGIN; SELECT idem_claim('acme', 'key-shared-000000002', 'POST', '/p'); SELECT idem_complete('acme', 'key-shared-000000002', 201)");
for my $n (1 .. 3)
{
	is($node->safe_psql('postgres', "SET lock_timeout = '100ms'; SET ROLE intruder_app; BEGIN;
		SELECT outcome, attempt FROM idem_claim('globex', 'key-shared-00000000$n', 'POST', '/p', '2');
		SELECT idem_complete('globex', 'key-shared-00000000$n', 201);
		SELECT count(*), max(state) FROM idem_lookup('globex', 'key-shared-00000000$n'); ROLLBACK;
		SELECT count(*) FROM idem_lookup('globex', 'key-shared-00000000$n')"),
		"claimed|1\ncompleted\n1|completed\n0", 'the same for ' . ('a stored key', 'a key in flight', 'a new key')[ $n - 1 ] . ' of another tenant');
}
$acme->query('ROLLBACK');
$acme->quit;

# keys that collide under the usual string hash ("Aa" and "BB" do in Java's) cost what random ones do
my $claim_all = "CREATE FUNCTION claim_all(kind text) RETURNS float8 LANGUAGE plpgsql AS \$\$
DECLARE
	started timestamptz := clock_timestamp();
	seconds float8;
BEGIN
	PERFORM idem_claim('acme', CASE kind WHEN 'flood' THEN (SELECT string_agg(CASE WHEN n >> bit & 1 = 1 THEN 'Aa' ELSE 'BB' END, '') FROM generate_series(0, 9) bit)
		ELSE left(md5(n::text), 20) END, 'POST', '/p') FROM generate_series(0, 600) n;
	seconds := extract(epoch FROM clock_timestamp() - started);
	RAISE EXCEPTION 'undo';
EXCEPTION WHEN raise_exception THEN
	RETURN seconds;
END \$\$";
$node->safe_psql('postgres', $claim_all);
my ($flood, $random) = split /\|/, $node->safe_psql('postgres', "SELECT min(claim_all('flood')), min(claim_all('random')) FROM generate_series(1, 5)");
cmp_ok($flood, '<', 4 * $random + 0.02, sprintf('keys made to collide: %.1f ms, random ones %.1f ms', 1000 * $flood, 1000 * $random));

# bodies made to be slow: eight times the body takes no more than some eight times as long. A square would take 64 times as long
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION body(kind text, n int) RETURNS jsonb LANGUAGE sql AS $$
	SELECT CASE kind
		WHEN 'members with a long common prefix' THEN (SELECT jsonb_object_agg(repeat('k', 200) || i, 1) FROM generate_series(1, n) i)
		WHEN 'members in falling order' THEN (SELECT jsonb_object_agg(to_char(n - i, 'FM00000000'), i) FROM generate_series(1, n) i)
		WHEN 'members beyond the BMP' THEN (SELECT jsonb_object_agg(U&'\+01F600' || i, U&'\FFFF') FROM generate_series(1, n) i)
		WHEN 'ignored paths' THEN jsonb_build_object('a', (SELECT jsonb_agg(jsonb_build_object('timestamp', i)) FROM generate_series(1, n) i))
		WHEN 'escapes' THEN to_jsonb(repeat(U&'\0001"\\', n * 10))
		WHEN 'huge exponents' THEN (SELECT jsonb_agg(('1e' || 131000 - i % 100)::numeric) FROM generate_series(1, n / 100) i)
		WHEN 'small exponents' THEN (SELECT jsonb_agg(('1e-' || 16000 - i % 100)::numeric) FROM generate_series(1, n / 100) i)
		WHEN 'long numbers' THEN (SELECT jsonb_agg(repeat('7', 1000)::numeric) FROM generate_series(1, n / 10) i)
		WHEN 'a long number' THEN to_jsonb(repeat('7', n)::numeric)
		WHEN 'depth' THEN (repeat('[', n / 20) || repeat(']', n / 20))::jsonb
	END
$$;
CREATE FUNCTION seconds(body jsonb) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
BEGIN
	PERFORM idem_fingerprint('POST', '/p', body, ignore => '{/timestamp,/a/0/timestamp,/a/5/x}');
	RETURN extract(epoch FROM clock_timestamp() - started);
END $$;
CREATE TABLE bodies AS SELECT kind, n, body(kind, n) FROM unnest(ARRAY['members with a long common prefix', 'members in falling order', 'members beyond the BMP', 'ignored paths',
	'escapes', 'huge exponents', 'small exponents', 'long numbers', 'a long number', 'depth']) kind, unnest(ARRAY[4000, 32000]) n;
SQL
for (split /\n/, $node->safe_psql('postgres', 'SELECT kind, small, large FROM (SELECT kind, min(seconds(body)) FILTER (WHERE n = 4000) AS small, min(seconds(body)) FILTER (WHERE n = 32000) AS large
	FROM generate_series(1, 5), bodies GROUP BY kind) k'))
{
	my ($kind, $small, $large) = split /\|/;
	cmp_ok($large, '<', 24 * $small + 0.005, sprintf('%s: %.2f ms, eight times as much %.2f ms', $kind, 1000 * $small, 1000 * $large));
}
# and is interrupted: a body that takes long enough to be cancelled
($status, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '20s'; SELECT body('members with a long common prefix', 300000) AS body \\gset
	SET statement_timeout = '30ms'; SELECT idem_fingerprint('POST', '/p', body) FROM (SELECT jsonb_build_array(b, b, b, b, b) AS body FROM body('members with a long common prefix', 200000) b) k", on_error_stop => 0);
like($stderr, qr/canceling statement due to statement timeout/, 'a large one can be cancelled');

# the lock table: a limited tenant can't fill it
$node->append_conf('postgresql.conf', 'max_locks_per_transaction = 10');
$node->restart;
$node->safe_psql('postgres', "SELECT idem_limit_tenant('acme', max_in_flight => 50)");
$acme = $node->background_psql('postgres');
is($acme->query("BEGIN; SELECT outcome, count(*) FROM generate_series(1, 20000) i, idem_claim('acme', 'key-greedy-' || 1000000 + i, 'POST', '/p') GROUP BY 1 ORDER BY 1"),
	"claimed|50\nrejected|19950", 'a greedy tenant has what it may');
is($node->safe_psql('postgres', "SELECT outcome FROM idem_execute('globex', 'key-modest-000000001', 'POST', '/p', '1', 'handle(jsonb)')"), 'completed', 'and others go on');
$acme->query('ROLLBACK');
$acme->quit;

done_testing();
