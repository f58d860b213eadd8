/*
 * What one tenant may take up: keys stored, and keys in flight, so that it can fill neither the table nor the lock table
 * for the others.
 *
 * In flight is exact and counts nothing: of as many slots as the limit says each claim takes one, which is a lock of the
 * server and goes with the transaction or savepoint as the key's own lock does.
 *
 * Stored keys are counted in the table. Where the library is preloaded, what was found is shared, one session counts at a time, and no
 * claim counts more than a slice: a few milliseconds, of which the next claim goes on. Else each session counts for itself, all at
 * once. What was found is good for a second at least, and for a hundred times as long as it took. What is in flight meanwhile may pass
 * the limit.
 */
#pragma once

#include "pg/statements.hpp"

namespace idem::pg {

// In _PG_init().
void prepare_limits();

// Their place in shared memory (pg/shared_memory.hpp).
std::size_t shared_limits_size();
void share_limits(void *memory, bool fresh);

// May the tenant store another key?
bool room_for_key(const KeyTable &table, std::string_view tenant, int max_keys);

struct Slot {
    bool taken;
    std::uint64_t hash;
};
static_assert(std::is_trivially_destructible_v<Slot>);

// Not taken: as many keys of the tenant are in flight as may be.
Slot take_slot(std::string_view tenant, int max_in_flight);
void release_slot(const Slot &slot);

} // namespace idem::pg
