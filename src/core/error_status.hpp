/*
 * The HTTP status that a handler's SQL error becomes: as users of PostgREST know it, or by the operation's own rules.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace idem::core {

constexpr std::size_t sqlstate_size = 5;
constexpr std::size_t sqlstate_class_size = 2;
constexpr std::size_t max_error_rules = 64;

// 3xx to 5xx: what was undone can't be answered as a success.
constexpr int min_error_status = 300;

// A SQLSTATE, or the two characters of its class, and the status that it becomes.
struct ErrorRule {
    char sqlstate[sqlstate_size];
    std::uint8_t size;
    int status;

    constexpr std::string_view pattern() const { return {sqlstate, size}; }
};
static_assert(std::is_trivially_destructible_v<ErrorRule>);

struct ErrorRules {
    const ErrorRule *rules;
    std::size_t count;
};
static_assert(std::is_trivially_destructible_v<ErrorRules>);

// Five digits and capital letters, or two.
bool error_pattern_valid(std::string_view pattern);

// Errors that are never an answer but the caller's to see, of a SQLSTATE or class: a transaction that must be tried
// again (40), a cancel or shutdown (57), a handler that ends the transaction (2D), misuse of this extension (ID).
bool always_raised(std::string_view sqlstate);

// The rule for the SQLSTATE wins over that for its class, and that over the built-in table.
int status_of_error(std::string_view sqlstate, const ErrorRules &rules);

// Whether the handler raised the error itself, in words that are meant for the client.
bool speaks_to_client(std::string_view sqlstate);

// The reason phrase of RFC 9110, section 15; "Error" for a status that has none there.
std::string_view reason_phrase(int status);

// What a client is told of an error that does not speak to it.
std::string_view error_detail(int status);

} // namespace idem::core
