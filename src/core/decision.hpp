/*
 * What a claim ends in, once the lock was tried and the row was looked for.
 */
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace idem::core {

enum class Outcome : std::uint8_t { claimed, replay, in_progress, mismatch, rejected, bypass };

constexpr std::string_view outcome_name(Outcome outcome)
{
    switch (outcome) {
    case Outcome::claimed:
        return "claimed";
    case Outcome::replay:
        return "replay";
    case Outcome::in_progress:
        return "in_progress";
    case Outcome::mismatch:
        return "mismatch";
    case Outcome::rejected:
        return "rejected";
    case Outcome::bypass:
        break;
    }
    return "bypass";
}

enum class RowStatus : std::uint8_t { none, in_progress, completed, failed_retryable };

constexpr std::string_view row_status_name(RowStatus status)
{
    switch (status) {
    case RowStatus::in_progress:
        return "in_progress";
    case RowStatus::completed:
        return "completed";
    case RowStatus::failed_retryable:
        return "failed_retryable";
    case RowStatus::none:
        break;
    }
    return {};
}

struct Look {
    RowStatus row;
    bool expired; // of a row; so are the next two
    bool same_fingerprint;
    bool lease_live; // a lease that is renewed may outlive the key's own term
    bool lock_held;  // by this transaction
};
static_assert(std::is_trivially_destructible_v<Look>);

// A stored fingerprint that differs comes before a live holder, a live holder before a replay. A completed
// key never answers in_progress: its row is enough, whoever holds the lock to look at it.
constexpr Outcome decide(const Look &look)
{
    const Outcome claim = look.lock_held ? Outcome::claimed : Outcome::in_progress;
    if (look.row == RowStatus::none || (look.expired && !look.lease_live)) {
        return claim;
    }
    if (!look.same_fingerprint) {
        return Outcome::mismatch;
    }
    switch (look.row) {
    case RowStatus::completed:
        return Outcome::replay;
    case RowStatus::in_progress:
        return look.lease_live ? Outcome::in_progress : claim;
    case RowStatus::failed_retryable:
    case RowStatus::none:
        break;
    }
    return claim;
}

} // namespace idem::core
