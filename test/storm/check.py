"""The checker of the storm: what the clients wrote down and what the tables say, and whether they keep the promises.

check.py HISTORY [tables]    HISTORY has one JSON object a line, the tables are those of PGHOST's server; prints what it finds, exits
with 1 if there is anything. With "tables", the history is only counted: after an asynchronous failover the last answers may be lost,
but never an effect without its key.
"""
import collections
import json
import sys

import psycopg
from psycopg.rows import dict_row

# errors that a client may see of a server that is cancelled, terminated, restarted or busy; the first two digits or all five
KNOWN_ERRORS = {"08", "57014", "57P01", "57P02", "57P03", "40001", "40P01"}
STALE_TOKEN = "ID004"


def known_error(way, sqlstate):
    return sqlstate in KNOWN_ERRORS or sqlstate[:2] in KNOWN_ERRORS or (way == "lease" and sqlstate == STALE_TOKEN)


def check(history, effects, keys):
    """The findings, as sentences."""
    findings = []
    by_key = collections.defaultdict(list)
    for effect in effects:
        by_key[effect["key"]].append(effect)
    stored = {}
    for row in keys:
        if row["key"] in stored:
            findings.append(f"{row['key']}: stored twice")
        stored[row["key"]] = row

    for key, found in by_key.items():
        if len(found) > 1:
            findings.append(f"{key}: {len(found)} effects")
        row = stored.get(key)
        if row is None or row["status"] != "completed":
            findings.append(f"{key}: an effect without a completed key")
        elif row["response_status"] != 201 or row["response_body"].get("run") not in [effect["run"] for effect in found]:
            findings.append(f"{key}: its effect is not the one of the stored answer")
    for key, row in stored.items():
        if row["status"] == "completed" and row["response_status"] == 201 and key not in by_key:
            findings.append(f"{key}: a completed key without its effect")
        if row["status"] not in ("completed", "in_progress"):
            findings.append(f"{key}: is {row['status']}")

    told = {}
    for entry in history:
        key, status = entry["key"], entry.get("status")
        if "lost" in entry:
            continue
        if "sqlstate" in entry:
            if not known_error(entry["way"], entry["sqlstate"]):
                findings.append(f"{key}: error {entry['sqlstate']}: {entry.get('message')}")
            continue
        if status in (201, 402):
            answer = (status, json.dumps(entry["body"], sort_keys=True))
            if entry["body"].get("payload") != entry["payload"]:
                findings.append(f"{key}: the answer of another request")
            if told.setdefault(key, answer) != answer:
                findings.append(f"{key}: two different answers")
            row = stored.get(key)
            if row is None or row["status"] != "completed":
                findings.append(f"{key}: an answer was given and is not stored")
            elif (row["response_status"], json.dumps(row["response_body"], sort_keys=True)) != answer:
                findings.append(f"{key}: the stored answer is not the one that was given")
        elif status == 422:
            # nothing is completed without an effect or an answer; who is refused must have come with another payload
            row = stored.get(key)
            payload = row and row["response_body"] and row["response_body"].get("payload")
            if payload == entry["payload"]:
                findings.append(f"{key}: an honest retry was refused")
        elif status != 409:
            findings.append(f"{key}: the contract does not know the answer {status}")
    return findings


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        history = [json.loads(line) for line in file]
    with psycopg.connect(row_factory=dict_row, client_encoding="utf8") as session:
        effects = session.execute("SELECT * FROM effects").fetchall()
        keys = session.execute("SELECT key, status, response_status, response_body FROM idempotency_keys").fetchall()
    findings = check([] if sys.argv[2:] == ["tables"] else history, effects, keys)
    for finding in findings[:50]:
        print("FINDING:", finding)
    counts = collections.Counter(str(entry.get("status") or entry.get("sqlstate") or "lost") for entry in history)
    replays = sum(1 for entry in history if entry.get("replayed"))
    print(f"checked {len(history)} attempts on {len({entry['key'] for entry in history})} keys, {replays} replays, {len(effects)} effects; "
          + ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())) + f"; {len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
