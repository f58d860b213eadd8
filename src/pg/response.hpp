/*
 * The HTTP answers of idem_claim() as jsonb, and the check of the headers that idem_complete() is given.
 */
#pragma once

#include "pg/prelude.hpp"

#include "core/problem.hpp"

namespace idem::pg {

struct Response {
    int status;     // 0: none
    Jsonb *headers; // null where there are none; so are the two bodies
    Jsonb *body;
    bytea *raw_body;
};
static_assert(std::is_trivially_destructible_v<Response>);

// What may be stored of the given headers: an object of strings and arrays of strings, without those that
// belong to one exchange only (idempotency.dropped_headers) and without Idempotent-Replayed, which a replay
// adds. Raises ID009 for anything else.
Jsonb *storable_headers(Jsonb *headers);

// The stored headers (null: none) and Idempotent-Replayed: true.
Jsonb *replay_headers(Jsonb *stored);

// Content-Type of a problem, and one more header unless its name is empty.
Jsonb *problem_headers(std::string_view name, std::string_view value);

// RFC 9457.
Jsonb *problem_body(const core::Problem &problem, std::string_view detail);

// A problem of no type but its status.
Response error_response(int status, std::string_view detail);

} // namespace idem::pg
