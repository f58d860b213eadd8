/*
 * The answers to a client's mistakes, as problem details (RFC 9457). Types and titles are stable: clients
 * match them.
 */
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "core/arena.hpp"
#include "core/key.hpp"

namespace idem::core {

struct Problem {
    int status;
    std::string_view type;
    std::string_view title;
};
static_assert(std::is_trivially_destructible_v<Problem>);

constexpr Problem problem_rejected{400, "urn:idempotency:problem:key-rejected",
                                   "Idempotency-Key is missing or malformed"};
constexpr Problem problem_in_progress{409, "urn:idempotency:problem:request-in-progress",
                                      "A request with this Idempotency-Key is still in progress"};
constexpr Problem problem_mismatch{422, "urn:idempotency:problem:key-reused",
                                   "Idempotency-Key was already used with a different request"};

constexpr Problem problem_limited{429, "urn:idempotency:problem:too-many-keys", "Too many idempotency keys"};

constexpr std::string_view detail_missing_key = "This operation needs an Idempotency-Key header: 16 to 256 "
                                                "visible ASCII characters, the same when a request is "
                                                "retried and new for a new request.";
constexpr std::string_view detail_in_progress =
    "The first request with this Idempotency-Key has not ended yet. Retry later with the same key.";
constexpr std::string_view detail_mismatch = "This Idempotency-Key belongs to a request with another method, "
                                             "path or body. Use a new key for a new request.";

constexpr std::string_view detail_too_many_stored =
    "The limit of stored idempotency keys is reached. Retry later with the same key.";
constexpr std::string_view detail_too_many_in_flight =
    "The limit of requests in progress is reached. Retry later with the same key.";

// What is wrong with a key, without quoting it: `position` is the index of a bad character.
std::string_view key_fault_detail(KeyFault fault, std::size_t key_size, std::size_t position, Arena &arena);

} // namespace idem::core
