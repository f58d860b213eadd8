#include "pg/settling.hpp"

#include "core/status.hpp"
#include "pg/counters.hpp"
#include "pg/errors.hpp"
#include "pg/request.hpp"
#include "pg/settings.hpp"

namespace idem::pg {

namespace {

[[noreturn]] void refuse_token(const KeyName &name)
{
    ereport(ERROR,
            (errcode(errcode_unexpected_token),
             errmsg("idempotency key \"%s\" of tenant \"%s\" is not claimed with a lease",
                    cstring_of(name.key), cstring_of(name.tenant)),
             errdetail("Only a leased claim has a token."), errhint("Leave out the argument \"token\".")));
}

void require_storable_size(const KeyName &name, const StoredKey &run)
{
    const auto size_of = [](const void *value) -> std::size_t {
        return value == nullptr ? 0 : toast_raw_datum_size(PointerGetDatum(value)) - VARHDRSZ;
    };
    const std::size_t size = size_of(run.headers) + size_of(run.body) + size_of(run.raw_body);
    const std::size_t limit = max_stored_size();
    if (size > limit) {
        ereport(
            ERROR,
            (errcode(errcode_response_too_large),
             errmsg("the response for idempotency key \"%s\" of tenant \"%s\" is too large",
                    cstring_of(name.key), cstring_of(name.tenant)),
             errdetail("It has %zu bytes; the limit is %zu.", size, limit),
             errhint("Answer with a reference to the result, or raise \"idempotency.max_response_size\".")));
    }
}

} // namespace

Claim *require_open_claim(const KeyTable &table, const KeyName &name)
{
    Claim *claim = find_claim(key_lock_hash(name.tenant, name.key), name.tenant, name.key);
    if (claim == nullptr) {
        if (look(table, name, Eyes::newest).status == core::RowStatus::in_progress) {
            ereport(ERROR, (errcode(errcode_missing_token),
                            errmsg("idempotency key \"%s\" of tenant \"%s\" is claimed with a lease",
                                   cstring_of(name.key), cstring_of(name.tenant)),
                            errdetail("Who holds the lease shows it by its token."),
                            errhint("Give the token that idem_claim() returned as the argument \"token\".")));
        }
        ereport(
            ERROR,
            (errcode(errcode_not_claimed),
             errmsg("idempotency key \"%s\" of tenant \"%s\" is not claimed by this transaction",
                    cstring_of(name.key), cstring_of(name.tenant)),
             errdetail("A claim lives and dies with its transaction, and with the savepoint it was made in."),
             errhint("Call idem_claim() first, in the same transaction, and go on only if its outcome is "
                     "'claimed'.")));
    }
    if (claim->state != ClaimState::open) {
        ereport(ERROR, (errcode(errcode_already_settled),
                        claim->state == ClaimState::completed
                            ? errmsg("idempotency key \"%s\" of tenant \"%s\" is already completed",
                                     cstring_of(name.key), cstring_of(name.tenant))
                            : errmsg("idempotency key \"%s\" of tenant \"%s\" is already released",
                                     cstring_of(name.key), cstring_of(name.tenant)),
                        errdetail("This transaction has settled its claim before."),
                        errhint("Complete or release a claim once.")));
    }
    return claim;
}

void require_no_claim(const KeyName &name)
{
    const Claim *claim = find_claim(key_lock_hash(name.tenant, name.key), name.tenant, name.key);
    if (claim != nullptr && claim->state == ClaimState::open) {
        refuse_token(name);
    }
}

void require_nothing_written(const KeyName &name, bool undone, int status)
{
    if (undone || !TransactionIdIsValid(GetTopTransactionIdIfAny())) {
        return;
    }
    ereport(
        ERROR,
        (errcode(errcode_retryable_after_writes),
         status == 0
             ? errmsg(
                   "cannot release idempotency key \"%s\" of tenant \"%s\" after the transaction has written",
                   cstring_of(name.key), cstring_of(name.tenant))
             : errmsg("cannot complete idempotency key \"%s\" of tenant \"%s\" with status %d after the "
                      "transaction has written",
                      cstring_of(name.key), cstring_of(name.tenant), status),
         errdetail("The next request with this key would run again, while the writes of this run are "
                   "committed."),
         errhint(
             "Roll the transaction back: the claim goes with it and the retry runs. Or roll the work back "
             "to a savepoint and say undone => true.")));
}

void require_no_checkpoint(const KeyName &name, const StoredKey &row, bool undone)
{
    if (row.checkpoint == nullptr || undone) {
        return;
    }
    ereport(ERROR,
            (errcode(errcode_retryable_after_writes),
             errmsg("cannot release idempotency key \"%s\" of tenant \"%s\" after a checkpoint",
                    cstring_of(name.key), cstring_of(name.tenant)),
             errdetail("The next request with this key would repeat the steps before checkpoint \"%s\".",
                       cstring_of(bytes_of(row.checkpoint))),
             errhint("Complete it, let the lease run out, or undo the steps and say undone => true.")));
}

std::size_t max_stored_size()
{
    return static_cast<std::size_t>(settings.max_response_size) * 1024;
}

StoredKey finished_run(const KeyName &name, const Response &response)
{
    StoredKey run{};
    run.status = core::status_retryable(response.status) ? core::RowStatus::failed_retryable
                                                         : core::RowStatus::completed;
    run.response_status = response.status;
    run.headers = response.headers;
    run.body = response.body;
    run.raw_body = response.raw_body;
    run.completed_at = GetCurrentTimestamp();
    require_storable_size(name, run);
    return run;
}

void complete_claim(const KeyTable &table, const KeyName &name, Claim *claim, StoredKey run)
{
    run.fingerprint = claim->fingerprint;
    run.attempt = claim->attempt;
    run.created_at = claim->claimed_at;
    run.expires_at = claim->expires_at;
    store(table, name, run, claim->replaces_row);
    settle_claim(claim, ClaimState::completed);
    count(Counter::completions);
}

void release_claim(Claim *claim)
{
    settle_claim(claim, ClaimState::released);
    count(Counter::releases);
}

} // namespace idem::pg
