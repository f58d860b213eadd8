# What a role can't get by a detour: an unbound role by SET ROLE, rights by default privileges, somebody else's code by a schema named cron, a
# handler in a closed schema, another request's answer by its own handler; fingerprints without the secret by an option of the connection.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
my $secrets = PostgreSQL::Test::Utils::tempdir() . '/secrets';
$node->init;
$node->start;

# who says what to SQL as a role that has logged in
sub says
{
	my ($role, $sql, %with) = @_;
	local $ENV{PGOPTIONS} = $with{options} // '';
	my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql", extra_params => [ '-U', $role ], on_error_stop => 0);
	return join "\n", grep { $_ ne "" } $out, $err =~ s/^psql:<stdin>:\d+: //gmr;
}

# default privileges give away nothing of the extension's, and nothing is lost of what they mean elsewhere
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE anon LOGIN;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO anon;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON FUNCTIONS TO anon;
ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO anon WITH GRANT OPTION;
SQL
my $given = q{SELECT count(*) FROM pg_depend d JOIN pg_extension e ON e.oid = refobjid AND extname = 'idempotency' AND deptype = 'e'
	LEFT JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid LEFT JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
	CROSS JOIN aclexplode(coalesce(relacl, proacl)) WHERE grantee = 'anon'::regrole};
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');
is($node->safe_psql('postgres', $given), 0, 'default privileges are not the extension\'s');
$node->safe_psql('postgres', "DROP EXTENSION idempotency; CREATE EXTENSION idempotency VERSION '0.9.0'");
my $before = $node->safe_psql('postgres', $given);
cmp_ok($before, '>', 20, '0.9.0 had them');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION idem_lookup TO anon; ALTER EXTENSION idempotency UPDATE');
is($node->safe_psql('postgres', $given), $before, 'an update takes nothing back that was given, and gives nothing more');
like(says('anon', "SELECT idem_limit_tenant('acme', 1)"), qr/^ERROR:  42501: permission denied for function idem_limit_tenant/m, 'of what is new');
$node->safe_psql('postgres', "DROP EXTENSION idempotency; CREATE EXTENSION idempotency; CREATE TABLE after (); ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC");
is($node->safe_psql('postgres', "SELECT has_table_privilege('anon', 'after', 'SELECT')"), 't', 'they hold for other tables');
like(says('anon', 'SELECT * FROM idempotency_keys'), qr/^ERROR:  42501: permission denied for table idempotency_keys/m, 'not for the keys');
$node->safe_psql('postgres', 'ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON TABLES FROM anon; ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON FUNCTIONS FROM anon;
	ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM anon');

# a schema cron that is not pg_cron's
$node->safe_psql('postgres', 'CREATE ROLE mallory LOGIN; GRANT CREATE ON DATABASE postgres TO mallory');
says('mallory', q{CREATE SCHEMA cron; GRANT USAGE ON SCHEMA cron TO PUBLIC;
	CREATE FUNCTION cron.schedule(text, text, text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE mallory SUPERUSER; RETURN 1; END $$;
	CREATE FUNCTION cron.schedule_in_database(text, text, text, text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE mallory SUPERUSER; RETURN 1; END $$;
	CREATE FUNCTION cron.unschedule(bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE mallory SUPERUSER; RETURN true; END $$;
	CREATE FUNCTION cron.trap() RETURNS name LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE mallory SUPERUSER; RETURN current_user; END $$;
	CREATE VIEW cron.job AS SELECT 1::bigint AS jobid, 'idempotency purge of postgres'::text AS jobname, cron.trap() AS username});
is(says('postgres', 'SELECT cron.schedule_in_database(NULL, NULL, NULL, NULL) FROM generate_series(1, 0)'), '', 'the trap is set');
like(says('postgres', 'SELECT idem_schedule_purge()'), qr/^ERROR:  55000: pg_cron is not available in database "postgres"\nDETAIL:  There is a schema "cron", which is not pg_cron's\./m, 'it is not scheduled with');
like(says('postgres', "SELECT idem_schedule_purge(database => 'shop')"), qr/^ERROR:  55000: pg_cron is not available in database "postgres"/m, 'nor in another database');
like(says('postgres', 'SELECT idem_unschedule_purge()'), qr/^f\n.*NOTICE:  00000: there is no job "idempotency purge of postgres" to unschedule here\nDETAIL:  pg_cron is not in this database\.\nHINT:  Where it was scheduled: SELECT idem_unschedule_purge\('postgres'\)/s, 'nor unscheduled');
is($node->safe_psql('postgres', "SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), 'f', 'and was not called');

# a handler in a schema that the caller may not use, by its oid
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE app;
CREATE ROLE api;
CREATE ROLE acme_app LOGIN IN ROLE app;
CREATE ROLE acme_web LOGIN NOINHERIT IN ROLE acme_app;
CREATE ROLE gateway LOGIN NOINHERIT IN ROLE acme_app, app;
CREATE ROLE pool LOGIN IN ROLE acme_app;
GRANT CREATE ON SCHEMA public TO app, api;
GRANT EXECUTE ON FUNCTION idem_claim, idem_complete, idem_release, idem_execute, idem_lookup TO app, api, acme_web;
CREATE SCHEMA private;
CREATE FUNCTION private.wipe(jsonb) RETURNS jsonb LANGUAGE sql SECURITY DEFINER AS 'SELECT $1';
SQL
my $by_oid = "SELECT x.outcome FROM pg_proc p, idem_execute('acme', 'key-private-00000001', 'POST', '/p', '{}', p.oid::regprocedure) x WHERE proname = 'wipe'";
like(says('acme_app', $by_oid), qr/^ERROR:  42501: permission denied for schema private/m, 'a closed schema is closed to handlers, too');
$node->safe_psql('postgres', 'GRANT USAGE ON SCHEMA private TO app');
is(says('acme_app', $by_oid), 'completed', 'and an open one is open');

# bindings
$node->safe_psql('postgres', <<'SQL');
DO $$ BEGIN
	PERFORM idem_claim('globex', 'key-globex-000000001', 'POST', '/p');
	PERFORM idem_complete('globex', 'key-globex-000000001', 201, '"theirs"');
	PERFORM idem_claim('globex', 'key-leased-000000001', 'POST', '/p', lease => '1 h');
END $$;
SELECT idem_bind_tenant('acme_app', 'acme');
SET ROLE api;
CREATE FUNCTION as_api(tenant text) RETURNS text LANGUAGE sql SECURITY DEFINER AS
	$$SELECT COALESCE((SELECT l.response_body::text FROM public.idem_lookup(tenant, 'key-globex-000000001') AS l), 'nothing')$$;
SQL
my $look = "SELECT coalesce((SELECT response_body::text FROM idem_lookup('TENANT', 'key-globex-000000001')), 'nothing')";
my $refused = qr/^ERROR:  42501: role "\w+" may not act for tenant "globex"/m;
for my $case (
	[ 'a role that is bound', 'acme_app', '' ],
	[ 'as a role that is not', 'acme_app', 'SET ROLE app;' ],
	[ 'and that resets it', 'acme_app', 'SET ROLE app; RESET ROLE;' ],
	[ 'a member that inherits nothing and has rights of its own', 'acme_web', '' ],
	[ 'as its role', 'acme_web', 'SET ROLE acme_app;' ],
	[ 'a pool that inherits', 'pool', 'SET ROLE app;' ],
	[ 'a gateway as the bound role', 'gateway', 'SET ROLE acme_app;' ],
	[ 'a superuser as the bound role', 'postgres', 'SET ROLE acme_app;' ])
{
	my ($name, $role, $become) = @$case;
	like(says($role, $become . $look =~ s/TENANT/globex/r), $refused, "$name: not for another tenant");
	is(says($role, $become . $look =~ s/TENANT/acme/r), 'nothing', 'for its own');
	like(says($role, "$become SELECT as_api('globex')"), $refused, 'not by way of a function of an unbound role');
	is(says($role, "$become SELECT as_api('acme')"), 'nothing', 'for its own');
}
is(says('gateway', "SET ROLE app;" . $look =~ s/TENANT/globex/r), '"theirs"', 'a gateway that inherits nothing is, as an unbound role, not bound');
is(says('postgres', $look =~ s/TENANT/globex/r), '"theirs"', 'nor is a superuser');
says('acme_app', 'SET ROLE app; CREATE FUNCTION detour() RETURNS text LANGUAGE sql SECURITY DEFINER AS $$' . ($look =~ s/TENANT/globex/r) . '$$');
like(says('acme_app', 'SELECT detour()'), $refused, 'a function that was made as the unbound role is no way out');
for my $call ("idem_complete('globex', 'key-leased-000000001', 200)", "idem_release('globex', 'key-leased-000000001')", "idem_complete('globex', 'key-nothing-00000001', 200)",
	"idem_complete('globex', 'key-leased-000000001', 200, token => gen_random_uuid())")
{
	like(says('acme_app', "SELECT $call"), $refused, "$call says nothing of the key");
}
like(says('postgres', "BEGIN; SELECT outcome FROM idem_claim('globex', 'key-handed-000000001', 'POST', '/p'); SET LOCAL ROLE acme_app; SELECT idem_complete('globex', 'key-handed-000000001', 201); COMMIT"),
	qr/^claimed\n.*$refused/ms, 'nor does it complete what another role has claimed');

# code of the unbound role that ANALYZE or REFRESH runs for others, who are not bound
says('acme_app', q{SET ROLE app;
	CREATE FUNCTION spy(int) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
		IF session_user = 'acme_app' THEN RETURN 'x'; END IF;
		RETURN 'seen: ' || (SELECT response_body::text FROM public.idem_lookup('globex', 'key-globex-000000001'));
	EXCEPTION WHEN insufficient_privilege THEN RETURN 'refused: ' || SQLERRM;
	END $$;
	CREATE TABLE bait (i int); CREATE INDEX bait_index ON bait (spy(i)); INSERT INTO bait SELECT generate_series(1, 50);
	CREATE MATERIALIZED VIEW trap AS SELECT public.spy(1) AS seen WITH NO DATA});
my $restricted = 'refused: cannot act for tenant "globex" within a security-restricted operation';
is(says('postgres', 'ANALYZE bait; SELECT most_common_vals::text::text[] FROM pg_stats WHERE tablename = \'bait_index\''), '{"' . ($restricted =~ s/"/\\"/gr) . '"}', 'ANALYZE of an index that asks');
is(says('postgres', 'REFRESH MATERIALIZED VIEW trap; SELECT seen FROM trap'), $restricted, 'REFRESH of a view that does');

# whoever has made a role is, since 16, a member of it that has none of its rights: not bound by that
is(says('postgres', q{CREATE ROLE maker LOGIN CREATEROLE; GRANT EXECUTE ON FUNCTION idem_lookup TO maker; SET SESSION AUTHORIZATION maker; CREATE ROLE made;
	RESET SESSION AUTHORIZATION; SELECT idem_bind_tenant('made', 'acme')}), '', 'a role is made and bound');
is(says('maker', $look =~ s/TENANT/globex/r), '"theirs"', 'its maker is not');
$node->safe_psql('postgres', 'GRANT made TO maker' . ($node->pg_version >= 16 ? ' WITH INHERIT TRUE' : ''));
like(says('maker', $look =~ s/TENANT/globex/r), $refused, 'until he may act as it');

# a handler that makes its answer the answer to another request
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION swap(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	PERFORM idem_release('acme', 'key-swapped-00000001', undone => true);
	PERFORM idem_claim('acme', 'key-swapped-00000001', 'POST', '/other', '{"x": 1}');
	RETURN '{}';
END $$;
SQL
like(says('postgres', "SELECT outcome FROM idem_execute('acme', 'key-swapped-00000001', 'POST', '/p', '{}', 'swap(jsonb)')"),
	qr/^ERROR:  ID003: idempotency key "key-swapped-00000001" of tenant "acme" is already released\nDETAIL:  The handler has released it and claimed it again\.\nHINT:  /m, 'is an error');
is($node->safe_psql('postgres', "SELECT count(*) FROM idempotency_keys WHERE key = 'key-swapped-00000001'"), 0, 'and stores nothing');

# an update takes back what is new, whatever the schema is called
$node->safe_psql('postgres', "CREATE DATABASE odd");
$node->safe_psql('odd', q{CREATE SCHEMA idempotency_limits; CREATE EXTENSION idempotency SCHEMA idempotency_limits VERSION '0.9.0';
	GRANT EXECUTE ON FUNCTION idempotency_limits.idem_lookup TO maker WITH GRANT OPTION; ALTER EXTENSION idempotency UPDATE});
is($node->safe_psql('odd', "SELECT has_function_privilege('maker', 'idempotency_limits.idem_lookup(text, text)', 'EXECUTE')"), 't', 'nothing of what was given');

# the secret: a connection's options, a role's or a database's settings can't take it away
append_to_file($secrets, "the-first-secret-0123456789abcdef01\n");
chmod 0600, $secrets;
my $setting = 'idempotency.fingerprint_secret_file';
my $hidden = qr/55P02: parameter "$setting" cannot be set for a connection, a role or a database\nDETAIL:  Fingerprints would be made without the secret of the server's configuration\.\nHINT:  Set it in postgresql\.conf or with ALTER SYSTEM only\./;
my $run = "DO \$\$ BEGIN PERFORM idem_claim('acme', 'key-secret-NNNNNNNNN', 'POST', '/p'); PERFORM idem_complete('acme', 'key-secret-NNNNNNNNN', 201); END \$\$;
	SELECT fingerprint_version FROM idempotency_keys WHERE key = 'key-secret-NNNNNNNNN'";
sub run { my ($n, %with) = @_; return says('postgres', $run =~ s/NNNNNNNNN/sprintf('%09d', $n)/ger, %with); }
$node->append_conf('postgresql.conf', "$setting = '$secrets'");
$node->restart;
is(run(1), '2', 'with the secret');
like(run(2, options => "-c $setting="), $hidden, 'a connection that takes it away is refused');
like(run(2, options => "-c $setting=/dev/null"), $hidden, 'or gives another');
like(run(2, options => '-c idempotency.Fingerprint_Secret_File='), $hidden, 'however it is spelt');
$node->safe_psql('postgres', "ALTER ROLE postgres SET $setting = ''");
like(run(2), $hidden, 'a role\'s setting');
$node->safe_psql('postgres', "ALTER ROLE postgres RESET $setting; ALTER DATABASE postgres SET $setting = ''");
like(run(2), $hidden, 'a database\'s');
$node->safe_psql('postgres', "ALTER DATABASE postgres RESET $setting");
is(run(3), '2', 'and without these it is there again');
is($node->safe_psql('postgres', "SELECT count(*) FROM idempotency_keys WHERE key = 'key-secret-000000002'"), 0, 'nothing was stored without it');

$node->append_conf('postgresql.conf', "$setting = ''\nidempotency.Fingerprint_SECRET_File = '$secrets'");
$node->restart;
is(run(5), '2', 'configured in another spelling');
like(run(6, options => "-c $setting="), $hidden, 'and hidden');

# a session that has read the file before, where nothing tells it that the file has changed
my $session = $node->background_psql('postgres');
$session->query("SELECT outcome FROM idem_claim('acme', 'key-secret-000000003', 'POST', '/p')");
append_to_file("$secrets.new", "another-secret-0123456789abcdef0123\nthe-first-secret-0123456789abcdef01\n");
chmod 0600, "$secrets.new";
rename "$secrets.new", $secrets;
is(run(4), '2', 'a new session uses the new secret');
is($session->query("SELECT outcome FROM idem_claim('acme', 'key-secret-000000004', 'POST', '/p')"), 'replay', 'the old one reads it when it meets it');
is($session->query("SELECT outcome FROM idem_claim('acme', 'key-secret-000000003', 'POST', '/p')"), 'replay', 'and has the old one still');
$session->quit;

done_testing();
