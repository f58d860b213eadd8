/*
 * The claims of this transaction.
 *
 * One record a claim, in TopTransactionContext, so that it goes with the transaction. A record follows its
 * savepoint: rolled back to before the claim, it is dropped (the server drops the lock at the same moment);
 * rolled back to before the completion, the claim is open again; released, both pass to the parent.
 * At PRE_COMMIT and PRE_PREPARE, where an error is still a clean abort, an open claim refuses the commit.
 * The abort callbacks allocate nothing, look nothing up and raise nothing.
 */
#pragma once

#include "pg/prelude.hpp"

#include "pg/request.hpp"

namespace idem::pg {

enum class ClaimState : std::uint8_t { open, completed, released };

struct Claim {
    std::uint64_t lock_hash;
    std::string_view tenant;
    std::string_view key;
    StoredFingerprint fingerprint;
    std::uint64_t serial; // tells this claim from a later one of the same key
    int attempt;
    TimestampTz claimed_at;
    TimestampTz expires_at;
    bool replaces_row; // an expired or failed_retryable row of this key exists
    ClaimState state;
    SubTransactionId claimed_in;
    SubTransactionId settled_in;
    Claim *older;        // the claim made before this one
    Claim *next_in_slot; // in the hash table's slot
};
static_assert(std::is_trivially_destructible_v<Claim>);

// Hooks this file into the end of transactions and savepoints; once a backend.
void register_claim_callbacks();

// The latest claim of this key that this transaction made, settled or not; null if none.
Claim *find_claim(std::uint64_t lock_hash, std::string_view tenant, std::string_view key);

// How many claims of this transaction are open, of all keys of the tenant.
int open_claims_of(std::string_view tenant);

// Remembers an open claim; copies all that `claim` points to.
void remember_claim(const Claim &claim);

void settle_claim(Claim *claim, ClaimState state);

} // namespace idem::pg
