/*
 * A claim from the lock to the answer: lock without waiting, look with eyes newer than the lock, decide (core), and
 * remember what is claimed, in this backend (claims.hpp) or, with a lease, in a row (leases.hpp).
 */
#pragma once

#include "core/decision.hpp"
#include "core/problem.hpp"
#include "pg/key_store.hpp"
#include "pg/registry.hpp"
#include "pg/request.hpp"

namespace idem::pg {

struct Answer {
    core::Outcome outcome;
    int attempt; // 0: none
    int status;  // 0: none
    Jsonb *headers;
    Jsonb *body;
    bytea *raw_body;
    const pg_uuid_t *token; // null: none
    text *checkpoint;       // null: none; so is its state
    Jsonb *checkpoint_state;
};
static_assert(std::is_trivially_destructible_v<Answer>);

Answer plain_answer(core::Outcome outcome);
Answer rejected_answer(std::string_view detail);

// `lease` in us; 0: the claim holds for its transaction.
Answer claim_key(const KeyTable &table, const KeyName &name, const Request &request, const Policy &policy,
                 std::int64_t lease);

} // namespace idem::pg
