/*
 * Leased claims: for work that can't be one transaction.
 *
 * The claim is a row, in progress, with a random fencing token and the time when the lease runs out by the server's
 * clock. The caller commits it before it calls the bank. From then on:
 *  - Who settles, renews or notes a checkpoint takes the key's lock, waiting, and then looks with eyes newer than the
 *    lock. The token must be the row's, and the lease must not have run out: then it is this worker's, and stays so
 *    until the transaction ends, since nobody takes over without the lock.
 *  - A claim that finds a lease run out takes over: it holds the lock, so one of any number does. It never waits:
 *    where somebody has the row itself (an open DELETE), it says in_progress.
 *  - Columns that an index knows don't change while a key is in progress, so that updates are heap-only.
 */
#pragma once

#include "pg/key_store.hpp"

namespace idem::pg {

constexpr std::int64_t min_lease = USECS_PER_SEC;
constexpr std::int64_t max_lease = 24 * USECS_PER_HOUR;

struct Lease {
    std::uint8_t token[UUID_LEN];
    std::int64_t length; // us
    TimestampTz expires_at;
};
static_assert(std::is_trivially_destructible_v<Lease>);

// Writes the row of `run` (its request, attempt and times) with a new token, over `seen` if that is a row. The key's
// lock must be held. False: the row is being changed or deleted by somebody else.
bool begin_lease(const KeyTable &table, const KeyName &name, const StoredKey &run, const StoredKey &seen,
                 Lease &lease);

// The row whose lease `token` holds, with the key's lock, which stays. Raises ID004 if the token is stale.
StoredKey require_lease(const KeyTable &table, const KeyName &name, const pg_uuid_t *token);

// All four: after require_lease().
void complete_lease(const KeyTable &table, const KeyName &name, const pg_uuid_t *token, const StoredKey &run);
void renew_lease(const KeyTable &table, const KeyName &name, const pg_uuid_t *token, const Lease &lease);
void store_checkpoint(const KeyTable &table, const KeyName &name, const pg_uuid_t *token, text *checkpoint,
                      Jsonb *state);
void release_lease(const KeyTable &table, const KeyName &name, const pg_uuid_t *token);

} // namespace idem::pg
