# idem_execute(): what the log says of a handler that fails; a handler that is killed; RLS of the business tables; many
# subtransactions and another session's speed.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init;
$node->append_conf('postgresql.conf', "log_statement = none\nlog_min_error_statement = panic\nlog_duration = off\nlog_min_duration_statement = -1");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION idempotency;
CREATE TABLE cards (number text CONSTRAINT one_card UNIQUE);
INSERT INTO cards VALUES ('4111111111111111');
CREATE FUNCTION store_card(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF body ? 'cast' THEN
		PERFORM (body ->> 'number')::uuid;
	END IF;
	INSERT INTO cards VALUES (body ->> 'number');
	RETURN '{}';
END $$;
SQL
my $execute = sub { my ($key, $body) = @_; return "SELECT outcome, status FROM idem_execute('acme', '$key', 'POST', '/cards', '$body', 'store_card(jsonb)')"; };
my $logged = sub { my $from = shift; return substr(slurp_file($node->logfile), $from); };

# an internal error: the log finds its cause, and no value
my $from = -s $node->logfile;
is($node->safe_psql('postgres', $execute->('key-log-000000000001', '{"number": "4222222222222222", "cast": 1}')), 'failed_retryable|500', 'an internal error is 500');
like($logged->($from), qr/LOG:  handler store_card\(jsonb\) failed with SQLSTATE 22P02\n.*CONTEXT:  idempotency key "key-log-000000000001" of tenant "acme"/s, 'logged with handler, SQLSTATE and key');
unlike($logged->($from), qr/4222222222222222/, 'without a value');
# the client's own errors are not worth a line
$from = -s $node->logfile;
is($node->safe_psql('postgres', $execute->('key-log-000000000002', '{"number": "4111111111111111"}')), 'completed|409', 'a double');
unlike($logged->($from), qr/failed with SQLSTATE|4111111111111111/, 'nothing is logged of it');
# an operator may want the message
$from = -s $node->logfile;
$node->safe_psql('postgres', "SET idempotency.log_handler_errors = on; " . $execute->('key-log-000000000001', '{"number": "4222222222222222", "cast": 1}'));
like($logged->($from), qr/DETAIL:  invalid input syntax for type uuid: "4222222222222222" CONTEXT: .*PL\/pgSQL function store_card\(jsonb\) line 4/s, 'with the setting: message and context');
# at every level of the log, no body
$from = -s $node->logfile;
$node->safe_psql('postgres', 'SET log_min_messages = debug5; ' . $execute->('key-log-000000000003', '{"number": "4333333333333333"}') . ';' . $execute->('key-log-000000000004', '{"number": "4333333333333333", "cast": 1}'));
unlike($logged->($from), qr/4333333333333333/, 'no value at debug5');

# a backend that is killed in its handler: nothing is kept, the key is free
$node->safe_psql('postgres', q(CREATE FUNCTION sleep(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN INSERT INTO cards VALUES ('slept'); PERFORM pg_sleep(600); RETURN '{}'; END $$));
my $sleeper = $node->background_psql('postgres', on_error_stop => 0);
$sleeper->query_until(qr/started/, "\\echo started\nSELECT idem_execute('acme', 'key-kill-00000000001', 'POST', '/sleep', NULL, 'sleep(jsonb)');\n");
ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep')), 'the handler runs');
is($node->safe_psql('postgres', q(SELECT outcome, status FROM idem_execute('acme', 'key-kill-00000000001', 'POST', '/sleep', NULL, 'sleep(jsonb)'))), 'in_progress|409', 'in progress meanwhile');
$node->safe_psql('postgres', q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'));
ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep')), 'killed');
is($node->safe_psql('postgres', q(SELECT (SELECT count(*) FROM cards WHERE number = 'slept'), (SELECT count(*) FROM idem_lookup('acme', 'key-kill-00000000001')))), '0|0', 'nothing is kept');
eval { $sleeper->quit; };

# row security of the business tables holds for the handler as for its caller
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE web LOGIN;
GRANT EXECUTE ON FUNCTION idem_execute TO web;
GRANT SELECT, INSERT ON cards TO web;
ALTER TABLE cards ENABLE ROW LEVEL SECURITY;
CREATE POLICY web ON cards TO web USING (number LIKE '5%') WITH CHECK (number LIKE '5%');
CREATE FUNCTION count_cards(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT to_jsonb(count(*)) FROM cards';
SQL
my $as_web = sub { return $node->safe_psql('postgres', shift, extra_params => [ '-U', 'web' ]); };
is($as_web->(q(SELECT body FROM idem_execute('acme', 'key-rls-000000000001', 'POST', '/count', NULL, 'count_cards(jsonb)'))), '0', 'sees only what its role sees');
is($as_web->($execute->('key-rls-000000000002', '{"number": "4444"}')), 'released|403', 'writes only what its role may');
is($as_web->($execute->('key-rls-000000000003', '{"number": "5555"}')), 'completed|200', 'which works');

# 1,000 in one transaction: other sessions go on
my $many = $node->background_psql('postgres');
$many->query_safe(q(BEGIN; DO $$ BEGIN FOR i IN 1..1000 LOOP PERFORM idem_execute('acme', 'key-many-' || lpad(i::text, 12, '0'), 'POST', '/cards', jsonb_build_object('number', i), 'store_card(jsonb)'); END LOOP; END $$;));
my $began = time;
$node->safe_psql('postgres', q(DO $$ BEGIN FOR i IN 1..1000 LOOP PERFORM idem_claim('acme', 'key-many-' || lpad(i::text, 12, '0'), 'POST', '/cards'); END LOOP; END $$));
cmp_ok(time - $began, '<', 10, '1,000 claims beside 1,000 open subtransactions');
is($node->safe_psql('postgres', q(SELECT outcome FROM idem_claim('acme', 'key-many-000000000500', 'POST', '/cards'))), 'in_progress', 'each is in progress');
$many->query_safe('COMMIT');
$many->quit;
is($node->safe_psql('postgres', q(SELECT count(*) FROM idempotency_keys WHERE key LIKE 'key-many%')), 1000, 'and committed as one');
done_testing();
