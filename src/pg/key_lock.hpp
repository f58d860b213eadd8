/*
 * The lock that stands for a key in flight.
 *
 * A transaction-level heavyweight lock, taken without waiting, on the 64-bit hash of tenant and key. The
 * server frees it when the transaction or savepoint that took it ends, however it ends, carries it over to a
 * prepared transaction, and shows it in pg_locks (locktype advisory, objsubid 26980). Two keys with one hash
 * only delay each other: what is answered is always decided by the row, which is compared by tenant and key.
 */
#pragma once

#include "pg/prelude.hpp"

namespace idem::pg {

// The tag's field4. The server's advisory locks use 1 and 2, Citus 4 to 15, others stay below 64. Fixed for
// ever: two servers or library versions that disagree would let two runs in.
constexpr std::uint16_t key_lock_class = 26980; // "id" in ASCII
// Held by a purge for the length of a batch.
constexpr std::uint16_t purge_lock_class = 26981;
// One of a tenant's slots (pg/limits.hpp).
constexpr std::uint16_t slot_lock_class = 26982;

enum class KeyLock : std::uint8_t {
    busy,         // somebody else's
    acquired,     // ours since now
    already_ours, // ours before as well: by an earlier claim of this transaction, or one with the same hash
};

KeyLock try_key_lock(std::uint64_t hash);

// Takes the lock, waiting for a retry that is just looking, or for a transaction that settles the key. For the holder
// of a lease; a claim never waits. Can end in lock_timeout, a cancel or a deadlock error.
void wait_for_key_lock(std::uint64_t hash);

// Undoes one try_key_lock() or wait_for_key_lock() of the same savepoint level.
void release_key_lock(std::uint64_t hash);

// False if it is anybody's, ours included: a claim has a slot of its own.
bool try_slot_lock(std::uint64_t hash);
void release_slot_lock(std::uint64_t hash);

// Does another transaction, a prepared one included, hold it? Looks without touching the lock.
bool key_lock_held_elsewhere(std::uint64_t hash);

} // namespace idem::pg
