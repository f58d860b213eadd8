/*
 * The purge of expired keys, and erasure.
 *
 * A purge works in batches, each a transaction of its own, oldest first. It makes no claim wait or fail:
 *  - A row that somebody else has locked is passed over, and so is a key whose lock is held: who looks at it, or has
 *    claimed it anew and will write over its row, goes first.
 *  - It takes no key's lock, so a claim is never told 409 because of it. A claim that comes while the row is being
 *    deleted sees the expired row or none, and claims either way.
 *  - The completion of such a claim waits until the batch has ended (wait_for_purge()), before it takes its snapshot:
 *    in REPEATABLE READ, too, it then finds the row gone instead of failing with 40001. Later batches see its key's
 *    lock.
 *  - A batch holds the purge's lock, so that two purges don't get into each other's way.
 */
#pragma once

#include "pg/key_store.hpp"

namespace idem::pg {

constexpr int max_purge_batch = 100000;

struct PurgeBatch {
    bool busy; // another purge is at work; nothing was done
    bool last; // there is no more to purge
    std::uint64_t purged;
    std::uint64_t passed_over;
    TimestampTz reached; // expires_at of the youngest row that was looked at
};
static_assert(std::is_trivially_destructible_v<PurgeBatch>);

// Deletes up to `size` rows that had expired at `now`, beginning with those of `from`.
PurgeBatch purge_batch(const KeyTable &table, int size, TimestampTz from, TimestampTz now);

// Lets a purge that is at work finish its batch.
void wait_for_purge();

std::uint64_t forget_key(const KeyTable &table, const KeyName &name);
std::uint64_t forget_tenant(const KeyTable &table, std::string_view tenant);

} // namespace idem::pg
