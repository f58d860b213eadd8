"""The scenario through psycopg 3: bound parameters, prepared statements, the simple protocol, a pipeline."""
import json
import sys

import psycopg
from psycopg.types.json import Jsonb

BODY = {"amount": 15, "key": "k"}


def check(what, condition, detail=""):
    print(f"{'ok' if condition else 'not ok'} - psycopg {mode}: {what} {detail if not condition else ''}".rstrip())


def claim(connection, key, body):
    # Jsonb() sends the document itself; a str would arrive as text and need ::jsonb
    return connection.execute(
        "SELECT outcome, status, headers, body, raw_body FROM idem_claim(%s, %s, 'POST', '/payments', %s)", ("acme", key, Jsonb(body))
    ).fetchone()


def complete(connection, key, status, raw):
    return connection.execute(
        "SELECT idem_complete(%s, %s, %s::int, headers => %s, raw_body => %s)",
        ("acme", key, status, Jsonb({"Content-Type": "application/json"}), raw),
    ).fetchone()[0]


def scenario(connection, prefix):
    key = prefix + "-0123456789abcdef"
    raw = b'{"paid" : 15}\x00\xff'
    with connection.transaction():
        check("claimed", claim(connection, key, BODY)[0] == "claimed")
        connection.execute("INSERT INTO paid VALUES (%s, 15)", (key,))
        check("completed", complete(connection, key, 201, raw) == "completed")
    outcome, status, headers, body, bytes_back = claim(connection, key, {"key": "k", "amount": 15.0})
    check("replayed to the byte", (outcome, status, bytes(bytes_back), body) == ("replay", 201, raw, None), (outcome, status, bytes_back))
    check("headers", headers == {"Content-Type": "application/json", "Idempotent-Replayed": "true"}, headers)
    connection.commit()
    check("another body", claim(connection, key, {"amount": 16})[:2] == ("mismatch", 422))
    connection.commit()

    free = prefix + "-rolled-back-0001"
    try:
        with connection.transaction():
            claim(connection, free, BODY)
            connection.execute("INSERT INTO paid VALUES (%s, 15)", (free,))
            raise KeyError("the application fails")
    except KeyError:
        pass
    with connection.transaction(force_rollback=True):
        check("a rollback frees the key", claim(connection, free, BODY)[0] == "claimed")
    try:
        with connection.transaction():
            claim(connection, free, BODY)
        check("a commit without completion is refused", False)
    except psycopg.Error as error:
        check("a commit without completion is refused", error.sqlstate == "ID001", error)

    paid = connection.execute("SELECT count(*) FROM paid WHERE key = %s", (key,)).fetchone()[0]
    check("paid once", paid == 1, paid)
    connection.commit()
    connection.autocommit = True
    try:
        claim(connection, free, BODY)
        check("a claim alone in autocommit is refused", False)
    except psycopg.Error as error:
        check("a claim alone in autocommit is refused", error.sqlstate == "ID001", error)
    sql = "SELECT outcome, status, body FROM idem_execute(%s, %s, 'POST', '/payments', %s, 'pay(jsonb)')"
    execute = lambda k, body: connection.execute(sql, ("acme", k, Jsonb(body))).fetchone()
    each = [execute(prefix + "-executed-000001", BODY) for _ in range(2)]
    check("idem_execute in autocommit", each == [("completed", 200, {"paid": 15}), ("replay", 200, {"paid": 15})], each)
    each = [execute(prefix + "-declined-000001", {"amount": 1001})[:2] for _ in range(2)]
    check("an exception is an answer", each == [("completed", 402), ("replay", 402)], each)


for mode, options in {
    "bound": {"prepare_threshold": None},
    "prepared": {"prepare_threshold": 0},
    "simple": {"cursor_factory": psycopg.ClientCursor},
}.items():
    with psycopg.connect(**options) as session:
        scenario(session, "psycopg-" + mode)

# claim, work and completion are sent at once; what the claim says decides on the commit
mode = "pipeline"
key = "psycopg-pipeline-0001"
for outcome, payments in ("claimed", 1), ("replay", 1):
    with psycopg.connect() as session:
        try:
            with session.pipeline():
                cursors = [
                    session.execute("SELECT outcome FROM idem_claim('acme', %s, 'POST', '/payments', %s)", (key, Jsonb(BODY))),
                    session.execute("INSERT INTO paid VALUES (%s, 15)", (key,)),
                    session.execute("SELECT idem_complete('acme', %s, 201)", (key,)),
                ]
                said = cursors[0].fetchone()[0]
                check(outcome, said == outcome, said)
                cursors[2].fetchone()
                session.commit()
            check("the pipeline is committed", outcome == "claimed")
        except psycopg.Error as error:
            session.rollback()
            check("the completion of what is not claimed fails, and the work with it", outcome == "replay" and error.sqlstate == "ID002", error)
    with psycopg.connect(autocommit=True) as session:
        paid = session.execute("SELECT count(*) FROM paid WHERE key = %s", (key,)).fetchone()[0]
        check(f"paid once after {outcome}", paid == payments, paid)

# a string of JSON text is not the document: the driver's str goes to text, and a cast of it is the document again
mode = "bodies"
with psycopg.connect(autocommit=True) as session:
    fingerprints = [
        session.execute(f"SELECT idem_fingerprint('POST', '/p', {expression})", (value,)).fetchone()[0]
        for expression, value in (("%s", Jsonb(BODY)), ("%s::text::jsonb", json.dumps(BODY)), ("to_jsonb(%s::text)", json.dumps(BODY)))
    ]
    check("a document is one whichever way it is sent", fingerprints[0] == fingerprints[1])
    check("a string of JSON is another", fingerprints[0] != fingerprints[2])
sys.stdout.flush()
