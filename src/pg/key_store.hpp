/*
 * The table idempotency_keys: looked at once a claim, written once a completion.
 *
 * A look needs eyes that are newer than the transaction's snapshot (REPEATABLE READ, SERIALIZABLE) and newer
 * than the key lock, since the row it looks for may have been committed in between.
 *  - A plain local table is read through its primary key with SnapshotSelf: the latest committed state and our
 *    own rows. All writers of a key hold its lock, so under the lock the row stands still. This takes no SIREAD
 *    lock, so that two serializable transactions with different keys never abort each other over a page of the key
 *    index, and it can't be planned as a sequential scan.
 *  - Any other table (distributed, partitioned) is read by a saved plan on GetLatestSnapshot(), as ri_triggers.c
 *    does. Whether the table is plain is what the planner says: the plan of the look is an ordinary scan.
 * Writes always go through saved plans, so that constraints, triggers and distribution hold. All access runs with
 * the rights of the table's owner: an application's role needs none on the table.
 */
#pragma once

#include "pg/prelude.hpp"

#include "core/decision.hpp"
#include "pg/request.hpp"
#include "pg/statements.hpp"

namespace idem::pg {

struct StoredKey {
    core::RowStatus status; // none: there is no row, and nothing else is set
    StoredFingerprint fingerprint;
    int attempt;
    int response_status; // 0: none
    Jsonb *headers;      // null where SQL has NULL; so are the two bodies
    Jsonb *body;
    bytea *raw_body;
    std::uint8_t token[UUID_LEN]; // in_progress only; so are the next two
    TimestampTz lease_expires_at; // 0: none
    std::int64_t lease;           // us
    TimestampTz created_at;
    TimestampTz completed_at; // 0: none
    TimestampTz expires_at;
    text *checkpoint; // null: none
    Jsonb *checkpoint_state;
};
static_assert(std::is_trivially_destructible_v<StoredKey>);

// Values are copied into the current context. Eyes::newest for a claim, Eyes::snapshot for idem_lookup().
StoredKey look(const KeyTable &table, const KeyName &name, Eyes eyes);

struct KeyCount {
    int count;
    std::string_view last_key; // of as many as were asked for
};
static_assert(std::is_trivially_destructible_v<KeyCount>);

// How many keys beyond `after` the tenant has stored, expired ones included; counts to `most` and no further.
KeyCount count_keys(const KeyTable &table, std::string_view tenant, std::string_view after, int most);

// Stores a finished run; `replaces_row` says that look() found a row that it may take the place of.
void store(const KeyTable &table, const KeyName &name, const StoredKey &run, bool replaces_row);

// Says that the table took another number of rows than one.
[[noreturn]] void refuse_not_stored(const KeyName &name, std::uint64_t stored);

void register_store_callbacks();

} // namespace idem::pg
