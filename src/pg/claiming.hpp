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
#include "pg/response.hpp"

namespace idem::pg {

struct Answer {
    core::Outcome outcome;
    int attempt;            // 0: none
    Response response;      // of status 0: none
    const pg_uuid_t *token; // null: none
    text *checkpoint;       // null: none; so is its state
    Jsonb *checkpoint_state;
};
static_assert(std::is_trivially_destructible_v<Answer>);

// The whole of a claim; a key without data was not given. `lease` in us; 0: the claim holds for its transaction.
// `function` is who claims, for the error where nothing can be written.
Answer claim(const KeyTable &table, const KeyName &name, const Request &request, const Policy &policy,
             std::int64_t lease, const char *function);

// 400: for a key that can't even be read.
Answer rejected_answer(std::string_view detail);

} // namespace idem::pg
