#include "pg/leases.hpp"

#include "pg/counters.hpp"
#include "pg/errors.hpp"
#include "pg/key_lock.hpp"
#include "pg/request.hpp"

namespace idem::pg {

namespace {

// An answer to a request that was worked on for days must still be there when the client comes back for it.
constexpr std::int64_t shortest_answer_life = 24 * USECS_PER_HOUR;

// RFC 9562, version 4.
void make_token(std::uint8_t (&token)[UUID_LEN])
{
    if (!pg_strong_random(token, sizeof(token))) {
        ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate a fencing token"),
                        errdetail("The operating system gave no random bytes.")));
    }
    token[6] = (token[6] & 0x0f) | 0x40;
    token[8] = (token[8] & 0x3f) | 0x80;
}

[[noreturn]] void refuse_token(const KeyName &name, const StoredKey &row, const pg_uuid_t *token)
{
    const char *detail = "Another run has taken the key over, or the token belongs to another key.";
    switch (row.status) {
    case core::RowStatus::none:
        detail = "No run of the key is in progress: it was released, erased or purged.";
        break;
    case core::RowStatus::completed:
        detail = "The key is completed.";
        break;
    case core::RowStatus::failed_retryable:
        detail = "The run has ended with an answer that tells the client to try again.";
        break;
    case core::RowStatus::in_progress:
        if (memcmp(row.token, token->data, UUID_LEN) == 0) {
            detail = psprintf("The lease ran out at %s.", timestamptz_to_str(row.lease_expires_at));
        }
        break;
    }
    ereport(ERROR,
            (errcode(errcode_stale_token),
             errmsg("the token for idempotency key \"%s\" of tenant \"%s\" is stale", cstring_of(name.key),
                    cstring_of(name.tenant)),
             errdetail("%s", detail),
             errhint("Roll back and claim the key again: the outcome says where it stands. Choose a lease "
                     "longer than the work, or renew it in time.")));
}

// What this_lease in the statements takes first.
void set_key_and_token(Datum *values, const KeyName &name, const std::uint8_t *token)
{
    values[0] = PointerGetDatum(text_of(name.tenant));
    values[1] = PointerGetDatum(text_of(name.key));
    auto *copy = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
    memcpy(copy->data, token, UUID_LEN);
    values[2] = UUIDPGetDatum(copy);
}

void run_on_lease(const KeyTable &table, const KeyName &name, Statement statement, Datum *values,
                  const char *nulls)
{
    const std::uint64_t stored = execute(table, statement, values, nulls, Eyes::newest, 0);
    if (stored != 1) {
        refuse_not_stored(name, stored);
    }
}

} // namespace

bool begin_lease(const KeyTable &table, const KeyName &name, const StoredKey &claimed, const StoredKey &seen,
                 Lease &lease)
{
    make_token(lease.token);
    const Rights caller = begin_statements(table);

    enum : std::uint8_t {
        p_tenant,
        p_key,
        p_request_hash,
        p_attempt,
        p_token,
        p_lease_expires_at,
        p_lease,
        p_created_at,
        p_expires_at,
        p_fingerprint_version,
        p_ignored_fields,
        p_seen_token,
        parameter_count
    };
    Datum values[parameter_count];
    char nulls[parameter_count];
    memset(nulls, ' ', sizeof(nulls));
    values[p_tenant] = PointerGetDatum(text_of(name.tenant));
    values[p_key] = PointerGetDatum(text_of(name.key));
    values[p_request_hash] =
        PointerGetDatum(bytea_of(claimed.fingerprint.bytes, sizeof(claimed.fingerprint.bytes)));
    values[p_attempt] = Int32GetDatum(claimed.attempt);
    values[p_token] = UUIDPGetDatum(reinterpret_cast<pg_uuid_t *>(lease.token));
    values[p_lease_expires_at] = TimestampTzGetDatum(lease.expires_at);
    values[p_lease] = IntervalPGetDatum(interval_of(lease.length));
    values[p_created_at] = TimestampTzGetDatum(claimed.created_at);
    values[p_expires_at] = TimestampTzGetDatum(claimed.expires_at);
    values[p_fingerprint_version] = Int16GetDatum(claimed.fingerprint.version);
    values[p_ignored_fields] = PointerGetDatum(claimed.fingerprint.ignored_fields);
    nulls[p_ignored_fields] = claimed.fingerprint.ignored_fields == nullptr ? 'n' : ' ';
    auto *seen_token = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
    memcpy(seen_token->data, seen.token, UUID_LEN);
    values[p_seen_token] = UUIDPGetDatum(seen_token);
    nulls[p_seen_token] = seen.status == core::RowStatus::in_progress ? ' ' : 'n';

    bool taken = true;
    if (seen.status == core::RowStatus::none) {
        const std::uint64_t stored =
            execute(table, Statement::lease_insert, values, nulls, Eyes::snapshot, 0);
        if (stored != 1) {
            refuse_not_stored(name, stored);
        }
    } else {
        taken = execute(table, Statement::lease_probe, values, nullptr, Eyes::newest, 1) == 1 &&
                execute(table, Statement::lease_take_over, values, nulls, Eyes::newest, 0) == 1;
    }
    end_statements(caller);
    return taken;
}

StoredKey require_lease(const KeyTable &table, const KeyName &name, const pg_uuid_t *token)
{
    wait_for_key_lock(key_lock_hash(name.tenant, name.key));
    const StoredKey row = look(table, name, Eyes::newest);
    if (row.status != core::RowStatus::in_progress || memcmp(row.token, token->data, UUID_LEN) != 0 ||
        row.lease_expires_at <= GetCurrentTimestamp()) {
        refuse_token(name, row, token);
    }
    return row;
}

void complete_lease(const KeyTable &table, const KeyName &name, const pg_uuid_t *token, const StoredKey &run)
{
    const Rights caller = begin_statements(table);
    enum : std::uint8_t {
        p_status = 3,
        p_response_status,
        p_response_headers,
        p_response_body,
        p_response_raw_body,
        p_completed_at,
        p_shortest_life,
        parameter_count
    };
    Datum values[parameter_count];
    char nulls[parameter_count];
    memset(nulls, ' ', sizeof(nulls));
    const auto set_or_null = [&](int parameter, const void *pointer) {
        values[parameter] = PointerGetDatum(pointer);
        nulls[parameter] = pointer == nullptr ? 'n' : ' ';
    };
    set_key_and_token(values, name, token->data);
    values[p_status] = PointerGetDatum(text_of(core::row_status_name(run.status)));
    values[p_response_status] = Int32GetDatum(run.response_status);
    set_or_null(p_response_headers, run.headers);
    set_or_null(p_response_body, run.body);
    set_or_null(p_response_raw_body, run.raw_body);
    values[p_completed_at] = TimestampTzGetDatum(run.completed_at);
    values[p_shortest_life] = TimestampTzGetDatum(run.completed_at + shortest_answer_life);
    run_on_lease(table, name, Statement::lease_complete, values, nulls);
    end_statements(caller);
    count(Counter::completions);
}

void renew_lease(const KeyTable &table, const KeyName &name, const pg_uuid_t *token, const Lease &lease)
{
    const Rights caller = begin_statements(table);
    Datum values[5];
    set_key_and_token(values, name, token->data);
    values[3] = TimestampTzGetDatum(lease.expires_at);
    values[4] = IntervalPGetDatum(interval_of(lease.length));
    run_on_lease(table, name, Statement::lease_renew, values, nullptr);
    end_statements(caller);
}

void store_checkpoint(const KeyTable &table, const KeyName &name, const pg_uuid_t *token, text *checkpoint,
                      Jsonb *state)
{
    const Rights caller = begin_statements(table);
    Datum values[5];
    char nulls[] = {' ', ' ', ' ', ' ', state == nullptr ? 'n' : ' '};
    set_key_and_token(values, name, token->data);
    values[3] = PointerGetDatum(checkpoint);
    values[4] = PointerGetDatum(state);
    run_on_lease(table, name, Statement::lease_checkpoint, values, nulls);
    end_statements(caller);
}

void release_lease(const KeyTable &table, const KeyName &name, const pg_uuid_t *token)
{
    const Rights caller = begin_statements(table);
    Datum values[3];
    set_key_and_token(values, name, token->data);
    run_on_lease(table, name, Statement::lease_release, values, nullptr);
    end_statements(caller);
    count(Counter::releases);
}

} // namespace idem::pg
