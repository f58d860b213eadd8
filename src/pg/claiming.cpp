#include "pg/claiming.hpp"

#include "pg/arguments.hpp"
#include "pg/claims.hpp"
#include "pg/counters.hpp"
#include "pg/key_lock.hpp"
#include "pg/leases.hpp"
#include "pg/limits.hpp"
#include "pg/settings.hpp"

namespace idem::pg {

namespace {

Answer problem_answer(core::Outcome outcome, const core::Problem &problem, std::string_view detail,
                      std::string_view header = {}, std::string_view value = {})
{
    Answer answer{};
    answer.outcome = outcome;
    answer.response.status = problem.status;
    answer.response.headers = problem_headers(header, value);
    answer.response.body = problem_body(problem, detail);
    return answer;
}

// A lease that is alive says when it ends; but not later than a whole lease from now, should the clock have been
// set back since it was granted.
std::int64_t retry_after(const StoredKey &row, TimestampTz now)
{
    if (row.status == core::RowStatus::in_progress && row.lease_expires_at > now) {
        return Min(row.lease_expires_at - now, row.lease);
    }
    return static_cast<std::int64_t>(settings.retry_after) * 1000;
}

Answer in_progress_answer(const StoredKey &row, TimestampTz now)
{
    const std::int64_t seconds = Max(1, (retry_after(row, now) + USECS_PER_SEC - 1) / USECS_PER_SEC);
    return problem_answer(core::Outcome::in_progress, core::problem_in_progress, core::detail_in_progress,
                          "Retry-After", psprintf("%lld", static_cast<long long>(seconds)));
}

Answer mismatch_answer()
{
    return problem_answer(core::Outcome::mismatch, core::problem_mismatch, core::detail_mismatch,
                          "X-Idempotency-Conflict", "true");
}

Answer limited_answer(std::string_view detail)
{
    const int seconds = Max(1, (settings.retry_after + 999) / 1000);
    return problem_answer(core::Outcome::rejected, core::problem_limited, detail, "Retry-After",
                          psprintf("%d", seconds));
}

Answer replay_answer(const StoredKey &row)
{
    Answer answer{};
    answer.outcome = core::Outcome::replay;
    answer.attempt = row.attempt;
    answer.response.status = row.response_status;
    answer.response.headers = replay_headers(row.headers);
    answer.response.body = row.body;
    answer.response.raw_body = row.raw_body;
    return answer;
}

// The claim that this very transaction holds open, if the lock was ours already.
const Claim *own_open_claim(KeyLock lock, std::uint64_t hash, const KeyName &name)
{
    if (lock != KeyLock::already_ours) {
        return nullptr;
    }
    const Claim *claim = find_claim(hash, name.tenant, name.key);
    return claim != nullptr && claim->state == ClaimState::open ? claim : nullptr;
}

// The run that begins: what its row will say, now or at completion.
StoredKey new_run(const KeyName &name, const Fingerprint &fingerprint, const Policy &policy,
                  const StoredKey &seen, bool continues, TimestampTz now)
{
    StoredKey run{};
    run.status = core::RowStatus::in_progress;
    run.fingerprint = stored_fingerprint(name, fingerprint, policy.ignored.array);
    run.attempt = continues ? seen.attempt + 1 : 1;
    run.created_at = now;
    run.expires_at = now + policy.retention;
    return run;
}

void remember_run(std::uint64_t hash, const KeyName &name, const StoredKey &run, bool replaces_row)
{
    Claim claimed{};
    claimed.lock_hash = hash;
    claimed.tenant = name.tenant;
    claimed.key = name.key;
    claimed.fingerprint = run.fingerprint;
    claimed.attempt = run.attempt;
    claimed.claimed_at = run.created_at;
    claimed.expires_at = run.expires_at;
    claimed.replaces_row = replaces_row;
    remember_claim(claimed);
}

const pg_uuid_t *copy_of(const std::uint8_t (&token)[UUID_LEN])
{
    auto *copy = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
    memcpy(copy->data, token, UUID_LEN);
    return copy;
}

void count_outcome(core::Outcome outcome)
{
    switch (outcome) {
    case core::Outcome::claimed:
        count(Counter::claims);
        break;
    case core::Outcome::replay:
        count(Counter::replays);
        break;
    case core::Outcome::in_progress:
        count(Counter::conflicts);
        break;
    case core::Outcome::mismatch:
        count(Counter::mismatches);
        break;
    case core::Outcome::rejected:
        count(Counter::rejections);
        break;
    case core::Outcome::bypass:
        count(Counter::bypasses);
        break;
    }
}

// Under the lock, or without it where it is busy.
Answer decide_and_begin(const KeyTable &table, const KeyName &name, const Request &request,
                        const Policy &policy, std::int64_t length, std::uint64_t hash, bool lock_held,
                        const Fingerprint &fingerprint)
{
    const TimestampTz now = GetCurrentTimestamp();
    const StoredKey row = look(table, name, Eyes::newest);
    core::Look seen{};
    seen.lock_held = lock_held;
    seen.row = row.status;
    if (row.status != core::RowStatus::none) {
        seen.expired = row.expires_at <= now;
        seen.lease_live = row.status == core::RowStatus::in_progress && row.lease_expires_at > now;
        // of what has expired nothing is compared any more
        seen.same_fingerprint = !(seen.expired && !seen.lease_live) &&
                                same_request(name, request, fingerprint, policy.ignored, row.fingerprint);
    }

    Answer answer{};
    switch (core::decide(seen)) {
    case core::Outcome::claimed:
        break;
    case core::Outcome::replay:
        return replay_answer(row);
    case core::Outcome::mismatch:
        return mismatch_answer();
    default:
        return in_progress_answer(row, now);
    }

    const Limits limits = limits_of(name.tenant);
    if (limits.max_keys != 0 && row.status == core::RowStatus::none &&
        !room_for_key(table, name.tenant, limits.max_keys)) {
        return limited_answer(core::detail_too_many_stored);
    }
    Slot slot{};
    if (limits.max_in_flight != 0) {
        slot = take_slot(name.tenant, limits.max_in_flight);
        if (!slot.taken) {
            return limited_answer(core::detail_too_many_in_flight);
        }
    }

    const bool continues = row.status != core::RowStatus::none && !seen.expired;
    const StoredKey run = new_run(name, fingerprint, policy, row, continues, now);
    if (length == 0) {
        remember_run(hash, name, run, row.status != core::RowStatus::none);
    } else {
        Lease lease{};
        lease.length = length;
        lease.expires_at = now + length;
        if (!begin_lease(table, name, run, row, lease)) {
            release_slot(slot);
            return in_progress_answer(row, now);
        }
        answer.token = copy_of(lease.token);
    }
    answer.outcome = core::Outcome::claimed;
    answer.attempt = run.attempt;
    if (continues) {
        answer.checkpoint = row.checkpoint;
        answer.checkpoint_state = row.checkpoint_state;
        if (row.status == core::RowStatus::in_progress) {
            count(Counter::take_overs);
        }
    }
    return answer;
}

Answer plain_answer(core::Outcome outcome)
{
    count_outcome(outcome);
    Answer answer{};
    answer.outcome = outcome;
    return answer;
}

Answer claim_key(const KeyTable &table, const KeyName &name, const Request &request, const Policy &policy,
                 std::int64_t lease)
{
    const Fingerprint fingerprint = fingerprint_of(request, policy.ignored.list);
    const std::uint64_t hash = key_lock_hash(name.tenant, name.key);
    const KeyLock lock = try_key_lock(hash);

    Answer answer{};
    if (const Claim *mine = own_open_claim(lock, hash, name)) {
        answer = same_request(name, request, fingerprint, policy.ignored, mine->fingerprint)
                     ? in_progress_answer(StoredKey{}, 0)
                     : mismatch_answer();
    } else {
        answer =
            decide_and_begin(table, name, request, policy, lease, hash, lock != KeyLock::busy, fingerprint);
    }
    if (answer.outcome != core::Outcome::claimed && lock != KeyLock::busy) {
        release_key_lock(hash);
    }
    count_outcome(answer.outcome);
    return answer;
}

} // namespace

Answer rejected_answer(std::string_view detail)
{
    count_outcome(core::Outcome::rejected);
    return problem_answer(core::Outcome::rejected, core::problem_rejected, detail);
}

Answer claim(const KeyTable &table, const KeyName &name, const Request &request, const Policy &policy,
             std::int64_t lease, const char *function)
{
    const bool has_key = name.key.data() != nullptr;
    if (!policy.covered || (!has_key && !policy.key_required)) {
        return plain_answer(core::Outcome::bypass);
    }
    if (!has_key) {
        return rejected_answer(core::detail_missing_key);
    }
    std::size_t position = 0;
    const core::KeyFault fault = core::check_key(name.key, position);
    if (fault != core::KeyFault::none) {
        core::Arena arena = current_context_arena();
        return rejected_answer(core::key_fault_detail(fault, name.key.size(), position, arena));
    }
    require_writable(function);
    return claim_key(table, name, request, policy, lease);
}

} // namespace idem::pg
