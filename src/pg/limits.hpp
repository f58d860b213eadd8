/*
 * What one tenant may take up: keys stored, and keys in flight, so that it can fill neither the table nor the lock table
 * for the others.
 *
 * In flight is exact and counts nothing: of as many slots as the limit says each claim takes one, which is a lock of the
 * server and goes with the transaction or savepoint as the key's own lock does. Stored keys are counted in the table; a session goes
 * by what it found for a second at least, so that a limit costs a claim a fraction of a millisecond at worst. What other
 * sessions store meanwhile may pass it.
 */
#pragma once

#include "pg/statements.hpp"

namespace idem::pg {

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
