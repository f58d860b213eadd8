/*
 * The end of a claim: what may be stored or given up, and when. Each refusal is an error before anything is written.
 */
#pragma once

#include "pg/claims.hpp"
#include "pg/key_store.hpp"
#include "pg/response.hpp"

namespace idem::pg {

// The open claim that this transaction has to settle. Raises ID002, ID003, or ID010 where the key is leased.
Claim *require_open_claim(const KeyTable &table, const KeyName &name);

// Raises ID005: a token belongs to a leased claim, and this transaction holds the key without one.
void require_no_claim(const KeyName &name);

// A transaction that says "try again" and commits its writes has paid, and the next run pays again (ID006). Status 0
// is a release.
void require_nothing_written(const KeyName &name, bool undone, int status);

// The steps before the checkpoint are committed, and the next run would begin with the first (ID006).
void require_no_checkpoint(const KeyName &name, const StoredKey &row, bool undone);

// What a response, and a checkpoint's state, may have, in bytes.
std::size_t max_stored_size();

// The response as a row keeps it, completed now; its headers have passed storable_headers(). Raises ID007.
StoredKey finished_run(const KeyName &name, const Response &response);

void complete_claim(const KeyTable &table, const KeyName &name, Claim *claim, StoredKey run);
void release_claim(Claim *claim);

} // namespace idem::pg
