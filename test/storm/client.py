"""Clients of the storm: each sends requests, loses answers, dies in the middle, and retries until it has a final answer.

client.py HISTORY CLIENTS SECONDS    writes one line of JSON for each attempt into HISTORY. The server is PGHOST's.

A key belongs to one to three requests of different clients, now and then with another payload; its name says how it is claimed:
tx (BEGIN, claim, work, complete, COMMIT), savepoint (the work is undone and 402 stored), execute (one statement) or lease.
"""
import json
import random
import sys
import threading
import time
import uuid

import psycopg
from psycopg.types.json import Jsonb

FINAL = {201, 402, 422}
WAYS = ("tx", "tx", "savepoint", "execute", "execute", "lease")
CLAIM = "SELECT outcome, status, body, token FROM idem_claim('storm', %s, 'POST', %s, %s, lease => %s::interval)"
LOOKUP_BODY = "INSERT INTO effects VALUES (%s, %s, %s)"


class Died(Exception):
    """The client goes away without waiting for what it sent."""


class Client(threading.Thread):
    def __init__(self, number, history, until, hot):
        super().__init__()
        self.number, self.history, self.until, self.hot = number, history, until, hot
        self.random = random.Random(number * 1009 + int(time.time()))
        self.session = None

    def connect(self):
        while True:
            try:
                # a database of encoding SQL_ASCII would hand out bytes
                self.session = psycopg.connect(autocommit=True, connect_timeout=5, application_name="storm", client_encoding="utf8")
                if self.random.random() < 0.3:
                    self.session.execute("SET default_transaction_isolation = %s" % self.random.choice(("'repeatable read'", "serializable")))
                return
            except psycopg.OperationalError:
                time.sleep(0.05)

    def drop(self):
        try:
            self.session.close()
        except Exception:
            pass
        self.session = None

    def maybe_die(self, chance=0.02):
        if self.random.random() < chance:
            raise Died

    def finish(self, statement):
        """COMMIT, whose answer may be lost."""
        if self.random.random() < 0.05:
            self.session.pgconn.send_query(statement.encode())
            self.session.pgconn.flush()
            raise Died
        self.session.execute(statement)

    def work(self, key, payload):
        run = str(uuid.uuid4())
        self.session.execute(LOOKUP_BODY, (key, payload, run))
        return {"payload": payload, "run": run}

    def complete(self, key, status, body, token=None):
        self.session.execute("SELECT idem_complete('storm', %s, %s::int, %s, token => %s::uuid)", (key, status, Jsonb(body), token))

    def attempt(self, way, key, payload):
        """(status, body, replayed)"""
        body = {"key": key, "payload": payload}
        if way == "execute":
            if self.random.random() < 0.05:
                self.session.pgconn.send_query(
                    ("SELECT idem_execute('storm', '%s', 'POST', '/execute', '%s', 'handle(jsonb)')" % (key, json.dumps(body))).encode())
                self.session.pgconn.flush()
                raise Died
            outcome, status, answer = self.session.execute(
                "SELECT outcome, status, body FROM idem_execute('storm', %s, 'POST', '/execute', %s, 'handle(jsonb)')", (key, Jsonb(body))).fetchone()
            return status, answer, outcome == "replay"
        if way == "lease":
            outcome, status, answer, token = self.session.execute(CLAIM, (key, "/lease", Jsonb(body), "1 s")).fetchone()
            if outcome != "claimed":
                return status, answer, outcome == "replay"
            self.maybe_die(0.05)
            time.sleep(self.random.choice((0, 0, 0, 0.02, 1.1)))
            self.session.execute("BEGIN")
            answer = self.work(key, payload)
            self.complete(key, 201, answer, token)
            self.maybe_die()
            self.finish("COMMIT")
            return 201, answer, False
        self.session.execute("BEGIN")
        outcome, status, answer, _ = self.session.execute(CLAIM, (key, "/" + way, Jsonb(body), None)).fetchone()
        if outcome != "claimed":
            self.session.execute("ROLLBACK")
            return status, answer, outcome == "replay"
        self.maybe_die()
        if way == "savepoint":
            self.session.execute("SAVEPOINT work")
            self.work(key, payload)
            self.session.execute("ROLLBACK TO work")
            answer = {"payload": payload, "declined": str(uuid.uuid4())}
            self.complete(key, 402, answer)
        else:
            answer = self.work(key, payload)
            self.complete(key, 201, answer)
        self.maybe_die()
        self.finish("COMMIT")
        return (402 if way == "savepoint" else 201), answer, False

    def request(self, way, key, payload):
        for _ in range(2000):
            if self.session is None:
                self.connect()
            record = {"client": self.number, "key": key, "payload": payload, "way": way, "began": time.time()}
            wait = 0
            try:
                record["status"], record["body"], record["replayed"] = self.attempt(way, key, payload)
                wait = 0.005 if record["status"] == 409 else 0
            except Died:
                record["lost"] = "died"
                self.drop()
            except psycopg.Error as error:
                record["lost" if error.sqlstate is None else "sqlstate"] = error.sqlstate or "connection"
                record["message"] = str(error).split("\n", maxsplit=1)[0]
                try:
                    self.session.execute("ROLLBACK")
                except psycopg.Error:
                    self.drop()
                wait = 0.01
            self.history.write(json.dumps(record) + "\n")
            if record.get("status") in FINAL:
                return
            time.sleep(wait * self.random.random())
        raise RuntimeError(f"no final answer for {key}")

    def run(self):
        serial = 0
        while time.time() < self.until:
            if self.hot and self.random.random() < 0.4:
                key = self.random.choice(self.hot[-200:])  # a key that another client is at, or was
            else:
                way = self.random.choice(WAYS)
                key = f"{way}-{self.number:02d}-{serial:010d}"
                serial += 1
                self.hot.append(key)
            self.request(key.split("-")[0], key, "other" if self.random.random() < 0.05 else "usual")


def main():
    path, clients, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    hot = []
    until = time.time() + seconds
    with open(path, "w", buffering=1, encoding="utf-8") as history:
        threads = [Client(number, history, until, hot) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"storm: {len(hot)} keys")


if __name__ == "__main__":
    main()
