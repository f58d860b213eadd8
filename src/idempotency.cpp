/*
 * The SQL-callable functions: check the arguments, call, form the row. Nothing else.
 *
 * A claim walks one way: arguments, bypass, key syntax (core), fingerprint (core over the jsonb reader),
 * lock, look with eyes newer than the lock, decision (core), answer. It writes nothing: what is claimed is
 * remembered in this backend (pg/claims.hpp) until idem_complete() stores the one row (pg/key_store.hpp).
 */
#include "pg/prelude.hpp"

#include "core/decision.hpp"
#include "core/digest.hpp"
#include "core/fingerprint.hpp"
#include "core/header.hpp"
#include "core/key.hpp"
#include "core/method.hpp"
#include "core/problem.hpp"
#include "core/status.hpp"
#include "pg/claims.hpp"
#include "pg/errors.hpp"
#include "pg/key_lock.hpp"
#include "pg/key_store.hpp"
#include "pg/request.hpp"
#include "pg/response.hpp"
#include "pg/settings.hpp"

extern "C" {
PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

// 15 exports a function only where its own declaration says so
PGDLLEXPORT Datum idem_claim(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_complete(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_release(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_lookup(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_canonical(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_fingerprint(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_key_from_header(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(idem_claim);
PG_FUNCTION_INFO_V1(idem_complete);
PG_FUNCTION_INFO_V1(idem_release);
PG_FUNCTION_INFO_V1(idem_lookup);
PG_FUNCTION_INFO_V1(idem_canonical);
PG_FUNCTION_INFO_V1(idem_fingerprint);
PG_FUNCTION_INFO_V1(idem_key_from_header);
}

namespace {

using namespace idem;
using namespace idem::pg;

constexpr std::size_t max_tenant_size = 256;

// ---------------------------------------------------------------------------
// Arguments
// ---------------------------------------------------------------------------

[[noreturn]] void refuse_null(const char *argument)
{
    ereport(ERROR, (errcode(errcode_invalid_argument), errmsg("argument \"%s\" must not be null", argument)));
}

void require_not_null(FunctionCallInfo fcinfo, int index, const char *argument)
{
    if (PG_ARGISNULL(index)) {
        refuse_null(argument);
    }
}

std::string_view text_argument(FunctionCallInfo fcinfo, int index, const char *argument)
{
    require_not_null(fcinfo, index, argument);
    return bytes_of(PG_GETARG_TEXT_PP(index));
}

std::string_view tenant_argument(FunctionCallInfo fcinfo, int index)
{
    const std::string_view tenant = text_argument(fcinfo, index, "tenant");
    bool blank = true;
    for (const char byte : tenant) {
        blank = blank && (byte == ' ' || (byte >= '\t' && byte <= '\r'));
    }
    if (blank) {
        ereport(ERROR, (errcode(errcode_invalid_argument), errmsg("argument \"tenant\" must not be blank"),
                        errdetail("Requests without a tenant would share their keys and answers."),
                        errhint("Give the account, customer or merchant that the key belongs to.")));
    }
    if (tenant.size() > max_tenant_size) {
        ereport(ERROR, (errcode(errcode_invalid_argument), errmsg("argument \"tenant\" is too long"),
                        errdetail("It has %zu bytes; the limit is %zu.", tenant.size(), max_tenant_size)));
    }
    return tenant;
}

std::string_view method_argument(FunctionCallInfo fcinfo, int index)
{
    const std::string_view method = text_argument(fcinfo, index, "method");
    if (!core::method_valid(method)) {
        ereport(ERROR,
                (errcode(errcode_invalid_argument), errmsg("argument \"method\" is not an HTTP method"),
                 errdetail("A method is an RFC 9110 token of 1 to %zu characters.", core::max_method_size),
                 errhint("Give the request's method, such as 'POST'.")));
    }
    return method;
}

// As UTF-8, since the fingerprint is the same whatever the database's encoding.
std::string_view path_argument(FunctionCallInfo fcinfo, int index)
{
    const std::string_view path = text_argument(fcinfo, index, "path");
    if (path.empty()) {
        ereport(ERROR, (errcode(errcode_invalid_argument), errmsg("argument \"path\" must not be empty"),
                        errhint("Give the request's path, such as '/payments'.")));
    }
    const std::size_t control = core::first_control(path);
    if (control != std::string_view::npos) {
        ereport(ERROR,
                (errcode(errcode_invalid_argument), errmsg("argument \"path\" has a control character"),
                 errdetail("Byte %zu is 0x%02x.", control + 1,
                           static_cast<unsigned int>(static_cast<unsigned char>(path[control]))),
                 errhint("Give the path as it stands in the request line, percent-encoded.")));
    }
    return utf8_of(path);
}

[[noreturn]] void refuse_two_bodies()
{
    ereport(ERROR, (errcode(errcode_invalid_argument),
                    errmsg("arguments \"body\" and \"raw_body\" must not both be given"),
                    errhint("Give the body as jsonb in \"body\" or as bytes in \"raw_body\".")));
}

Request request_arguments(FunctionCallInfo fcinfo, int method, int path, int body, int raw_body)
{
    if (!PG_ARGISNULL(body) && !PG_ARGISNULL(raw_body)) {
        refuse_two_bodies();
    }
    Request request;
    request.method = method_argument(fcinfo, method);
    request.path = path_argument(fcinfo, path);
    request.body = PG_ARGISNULL(body) ? nullptr : PG_GETARG_JSONB_P(body);
    request.raw_body = PG_ARGISNULL(raw_body) ? nullptr : PG_GETARG_BYTEA_PP(raw_body);
    return request;
}

core::IgnoreList ignore_argument(FunctionCallInfo fcinfo, int index)
{
    require_not_null(fcinfo, index, "ignore");
    return ignore_list_of(PG_GETARG_ARRAYTYPE_P(index));
}

// A standby would grant the very lock that the primary holds, and its rows lag behind.
void require_writable(const char *function)
{
    if (IsInParallelMode()) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_TRANSACTION_STATE),
                        errmsg("cannot execute %s() during a parallel operation", function),
                        errhint("Mark functions that call it as PARALLEL UNSAFE.")));
    }
    if (RecoveryInProgress()) {
        ereport(ERROR, (errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
                        errmsg("cannot execute %s() on a standby server", function),
                        errdetail("Only the primary knows which keys are in progress."),
                        errhint("Send requests that change data to the primary.")));
    }
    if (XactReadOnly) {
        ereport(ERROR,
                (errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
                 errmsg("cannot execute %s() in a read-only transaction", function),
                 errhint("Start the transaction with READ WRITE, or don't claim a key for requests that "
                         "only read.")));
    }
}

// ---------------------------------------------------------------------------
// idem_claim
// ---------------------------------------------------------------------------

struct Answer {
    core::Outcome outcome;
    int attempt; // 0: none
    int status;  // 0: none
    Jsonb *headers;
    Jsonb *body;
    bytea *raw_body;
};
static_assert(std::is_trivially_destructible_v<Answer>);

Datum form_answer(FunctionCallInfo fcinfo, const Answer &answer)
{
    TupleDesc descriptor;
    if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE) {
        elog(ERROR, "return type must be a row type");
    }
    enum Column : std::uint8_t { outcome, attempt, token, status, headers, body, raw_body, column_count };
    Datum values[column_count] = {};
    bool nulls[column_count] = {};

    values[outcome] = PointerGetDatum(text_of(core::outcome_name(answer.outcome)));
    values[attempt] = Int32GetDatum(answer.attempt);
    nulls[attempt] = answer.attempt == 0;
    nulls[token] = true;
    values[status] = Int32GetDatum(answer.status);
    nulls[status] = answer.status == 0;
    values[headers] = PointerGetDatum(answer.headers);
    nulls[headers] = answer.headers == nullptr;
    values[body] = PointerGetDatum(answer.body);
    nulls[body] = answer.body == nullptr;
    values[raw_body] = PointerGetDatum(answer.raw_body);
    nulls[raw_body] = answer.raw_body == nullptr;
    return HeapTupleGetDatum(heap_form_tuple(descriptor, values, nulls));
}

Answer problem_answer(core::Outcome outcome, const core::Problem &problem, std::string_view detail,
                      std::string_view header = {}, std::string_view value = {})
{
    return Answer{outcome, 0, problem.status, problem_headers(header, value), problem_body(problem, detail),
                  nullptr};
}

Answer in_progress_answer(int retry_after_ms)
{
    const int seconds = Max(1, (retry_after_ms + 999) / 1000);
    return problem_answer(core::Outcome::in_progress, core::problem_in_progress, core::detail_in_progress,
                          "Retry-After", psprintf("%d", seconds));
}

Answer mismatch_answer()
{
    return problem_answer(core::Outcome::mismatch, core::problem_mismatch, core::detail_mismatch,
                          "X-Idempotency-Conflict", "true");
}

Answer replay_answer(const StoredKey &row)
{
    return Answer{core::Outcome::replay,       row.attempt, row.response_status,
                  replay_headers(row.headers), row.body,    row.raw_body};
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

Answer claim(const KeyTable &table, const KeyName &name, const Request &request)
{
    const Fingerprint fingerprint = fingerprint_of(request, current_ignore_list());
    const std::uint64_t hash = key_lock_hash(name.tenant, name.key);

    const KeyLock lock = try_key_lock(hash);
    Answer answer{};
    if (const Claim *mine = own_open_claim(lock, hash, name)) {
        answer = same_request(request, fingerprint, mine->fingerprint, core::fingerprint_version,
                              mine->ignored_fields)
                     ? in_progress_answer(settings.retry_after)
                     : mismatch_answer();
        release_key_lock(hash);
        return answer;
    }

    const TimestampTz now = GetCurrentTimestamp();
    const StoredKey row = look(table, name, Eyes::newest);
    core::Look seen{};
    seen.lock_held = lock != KeyLock::busy;
    seen.row = row.status;
    if (row.status != core::RowStatus::none) {
        seen.expired = row.expires_at <= now;
        seen.lease_live = row.status == core::RowStatus::in_progress && row.lease_expires_at > now;
        seen.same_fingerprint =
            same_request(request, fingerprint, row.request_hash, row.fingerprint_version, row.ignored_fields);
    }

    switch (const core::Outcome outcome = core::decide(seen)) {
    case core::Outcome::claimed: {
        Claim claimed{};
        claimed.lock_hash = hash;
        claimed.tenant = name.tenant;
        claimed.key = name.key;
        memcpy(claimed.fingerprint, fingerprint.bytes, sizeof(claimed.fingerprint));
        claimed.ignored_fields = ignored_fields_as_array();
        claimed.attempt = row.status == core::RowStatus::none || seen.expired ? 1 : row.attempt + 1;
        claimed.claimed_at = now;
        claimed.expires_at = now + static_cast<TimestampTz>(settings.default_retention) * USECS_PER_SEC;
        claimed.replaces_row = row.status != core::RowStatus::none;
        remember_claim(claimed);
        answer.outcome = outcome;
        answer.attempt = claimed.attempt;
        return answer; // and keep the lock
    }
    case core::Outcome::replay:
        answer = replay_answer(row);
        break;
    case core::Outcome::mismatch:
        answer = mismatch_answer();
        break;
    default:
        answer = in_progress_answer(settings.retry_after);
        break;
    }
    if (seen.lock_held) {
        release_key_lock(hash);
    }
    return answer;
}

// ---------------------------------------------------------------------------
// idem_complete, idem_release
// ---------------------------------------------------------------------------

// The open claim that this transaction has to settle.
Claim *require_open_claim(const KeyName &name)
{
    Claim *claim = find_claim(key_lock_hash(name.tenant, name.key), name.tenant, name.key);
    if (claim == nullptr) {
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

void refuse_token(FunctionCallInfo fcinfo, int index, const KeyName &name)
{
    if (!PG_ARGISNULL(index)) {
        ereport(ERROR, (errcode(errcode_unexpected_token),
                        errmsg("idempotency key \"%s\" of tenant \"%s\" is not claimed with a lease",
                               cstring_of(name.key), cstring_of(name.tenant)),
                        errdetail("Only a leased claim has a token."),
                        errhint("Leave out the argument \"token\".")));
    }
}

bool undone_argument(FunctionCallInfo fcinfo, int index)
{
    require_not_null(fcinfo, index, "undone");
    return PG_GETARG_BOOL(index);
}

// A transaction that says "try again" and commits its writes has paid, and the next run pays again.
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

void require_size(const KeyName &name, const StoredKey &run)
{
    const auto size_of = [](const void *value) -> std::size_t {
        return value == nullptr ? 0 : toast_raw_datum_size(PointerGetDatum(value)) - VARHDRSZ;
    };
    const std::size_t size = size_of(run.headers) + size_of(run.body) + size_of(run.raw_body);
    const std::size_t limit = static_cast<std::size_t>(settings.max_response_size) * 1024;
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

void _PG_init(void)
{
    define_settings();
    register_claim_callbacks();
    register_store_callbacks();
}

/*
 * idem_claim(tenant, key, method, path, body, raw_body, lease) -> idem_claim_result
 *
 * Errors: ID009 for an argument, 0A000 for a lease, 25006 where nothing can be written, 25000 in a parallel
 * operation, 53200 when the lock table is full.
 */
Datum idem_claim(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key, arg_method, arg_path, arg_body, arg_raw_body, arg_lease };

    const std::string_view tenant = tenant_argument(fcinfo, arg_tenant);
    const Request request = request_arguments(fcinfo, arg_method, arg_path, arg_body, arg_raw_body);
    if (!PG_ARGISNULL(arg_lease)) {
        ereport(ERROR,
                (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("leased claims are not supported yet"),
                 errdetail("Argument \"lease\" is kept for a later version."),
                 errhint("Leave out the lease and do the work in the transaction that claims the key.")));
    }

    if (core::idempotent_by_nature(request.method)) {
        PG_RETURN_DATUM(form_answer(fcinfo, Answer{core::Outcome::bypass, 0, 0, nullptr, nullptr, nullptr}));
    }

    if (PG_ARGISNULL(arg_key)) {
        PG_RETURN_DATUM(form_answer(fcinfo, problem_answer(core::Outcome::rejected, core::problem_rejected,
                                                           core::detail_missing_key)));
    }
    const std::string_view key = bytes_of(PG_GETARG_TEXT_PP(arg_key));
    std::size_t position = 0;
    const core::KeyFault fault = core::check_key(key, position);
    if (fault != core::KeyFault::none) {
        core::Arena arena = current_context_arena();
        PG_RETURN_DATUM(
            form_answer(fcinfo, problem_answer(core::Outcome::rejected, core::problem_rejected,
                                               core::key_fault_detail(fault, key.size(), position, arena))));
    }

    require_writable("idem_claim");
    const KeyTable table = key_table_beside(fcinfo->flinfo->fn_oid);
    PG_RETURN_DATUM(form_answer(fcinfo, claim(table, KeyName{tenant, key}, request)));
}

/*
 * idem_complete(tenant, key, status, body, headers, raw_body, token, undone) -> text
 *
 * Errors: ID002 not claimed, ID003 settled before, ID005 a token, ID006 "try again" after writes, ID007 too
 * large, ID008 not stored, ID009 for an argument.
 */
Datum idem_complete(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t {
        arg_tenant,
        arg_key,
        arg_status,
        arg_body,
        arg_headers,
        arg_raw_body,
        arg_token,
        arg_undone
    };

    const KeyName name{tenant_argument(fcinfo, arg_tenant), text_argument(fcinfo, arg_key, "key")};
    require_not_null(fcinfo, arg_status, "status");
    const int status = PG_GETARG_INT32(arg_status);
    if (!core::status_valid(status)) {
        ereport(ERROR,
                (errcode(errcode_invalid_argument), errmsg("argument \"status\" is out of range: %d", status),
                 errdetail("A final HTTP status is %d to %d.", core::min_status, core::max_status)));
    }
    if (!PG_ARGISNULL(arg_body) && !PG_ARGISNULL(arg_raw_body)) {
        refuse_two_bodies();
    }
    const bool undone = undone_argument(fcinfo, arg_undone);

    require_writable("idem_complete");
    Claim *claim = require_open_claim(name);
    refuse_token(fcinfo, arg_token, name);
    const bool retryable = core::status_retryable(status);
    if (retryable) {
        require_nothing_written(name, undone, status);
    }

    StoredKey run{};
    run.status = retryable ? core::RowStatus::failed_retryable : core::RowStatus::completed;
    memcpy(run.request_hash, claim->fingerprint, sizeof(run.request_hash));
    run.fingerprint_version = core::fingerprint_version;
    run.ignored_fields = claim->ignored_fields;
    run.attempt = claim->attempt;
    run.response_status = status;
    run.headers = PG_ARGISNULL(arg_headers) ? nullptr : storable_headers(PG_GETARG_JSONB_P(arg_headers));
    run.body = PG_ARGISNULL(arg_body) ? nullptr : PG_GETARG_JSONB_P(arg_body);
    run.raw_body = PG_ARGISNULL(arg_raw_body) ? nullptr : PG_GETARG_BYTEA_PP(arg_raw_body);
    run.created_at = claim->claimed_at;
    run.completed_at = GetCurrentTimestamp();
    run.expires_at = claim->expires_at;
    require_size(name, run);

    store(key_table_beside(fcinfo->flinfo->fn_oid), name, run, claim->replaces_row);
    settle_claim(claim, ClaimState::completed);
    PG_RETURN_TEXT_P(cstring_to_text(retryable ? "failed_retryable" : "completed"));
}

/*
 * idem_release(tenant, key, token, undone) -> void
 *
 * Errors: ID002 not claimed, ID003 settled before, ID005 a token, ID006 after writes, ID009 for an argument.
 */
Datum idem_release(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key, arg_token, arg_undone };

    const KeyName name{tenant_argument(fcinfo, arg_tenant), text_argument(fcinfo, arg_key, "key")};
    const bool undone = undone_argument(fcinfo, arg_undone);

    require_writable("idem_release");
    Claim *claim = require_open_claim(name);
    refuse_token(fcinfo, arg_token, name);
    require_nothing_written(name, undone, 0);
    settle_claim(claim, ClaimState::released);
    PG_RETURN_VOID();
}

/*
 * idem_lookup(tenant, key) -> setof idem_key_info: no row for an unknown key, else one.
 *
 * Reads with the statement's snapshot, on a standby too. Errors: ID009 for an argument.
 */
Datum idem_lookup(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key };
    const KeyName name{tenant_argument(fcinfo, arg_tenant), text_argument(fcinfo, arg_key, "key")};

    InitMaterializedSRF(fcinfo, 0);
    auto *result = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);

    const StoredKey row = look(key_table_beside(fcinfo->flinfo->fn_oid), name, Eyes::snapshot);
    const std::uint64_t hash = key_lock_hash(name.tenant, name.key);
    const Claim *mine = find_claim(hash, name.tenant, name.key);
    const bool known = row.status != core::RowStatus::none;
    const bool held = (mine != nullptr && mine->state == ClaimState::open) || key_lock_held_elsewhere(hash);
    if (!known && !held) {
        return Datum{0};
    }

    const TimestampTz now = GetCurrentTimestamp();
    const bool expired = known && row.expires_at <= now;
    const char *state_name = "in_progress";
    if (known && row.status == core::RowStatus::completed && !expired) {
        state_name = "completed";
    } else if (known && !held && expired) {
        state_name = "expired";
    } else if (known && !held && row.status == core::RowStatus::failed_retryable) {
        state_name = "failed_retryable";
    }

    enum Column : std::uint8_t {
        state,
        attempt,
        response_status,
        response_headers,
        response_body,
        response_raw_body,
        lease_expires_at,
        created_at,
        completed_at,
        expires_at,
        column_count
    };
    Datum values[column_count] = {};
    bool nulls[column_count];
    memset(nulls, true, sizeof(nulls));
    const auto set = [&](Column column, Datum value, bool present) {
        values[column] = value;
        nulls[column] = !present;
    };
    set(state, CStringGetTextDatum(state_name), true);
    if (known) {
        set(attempt, Int32GetDatum(row.attempt), true);
        set(response_status, Int32GetDatum(row.response_status), row.response_status != 0);
        set(response_headers, PointerGetDatum(row.headers), row.headers != nullptr);
        set(response_body, PointerGetDatum(row.body), row.body != nullptr);
        set(response_raw_body, PointerGetDatum(row.raw_body), row.raw_body != nullptr);
        set(lease_expires_at, TimestampTzGetDatum(row.lease_expires_at), row.lease_expires_at != 0);
        set(created_at, TimestampTzGetDatum(row.created_at), true);
        set(completed_at, TimestampTzGetDatum(row.completed_at), row.completed_at != 0);
        set(expires_at, TimestampTzGetDatum(row.expires_at), true);
    }
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    return Datum{0};
}

/*
 * idem_canonical(body, ignore, strict) -> text: RFC 8785, lossless unless strict.
 *
 * Errors: ID009 for a pointer, 22003 for a number that strict can't hold, 22021 for bytes that are no UTF-8.
 */
Datum idem_canonical(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_body, arg_ignore, arg_strict };
    const core::IgnoreList ignored = ignore_argument(fcinfo, arg_ignore);
    require_not_null(fcinfo, arg_strict, "strict");
    if (PG_ARGISNULL(arg_body)) {
        PG_RETURN_NULL();
    }

    StringInfoData canonical;
    initStringInfo(&canonical);
    core::Writer writer{core::Sink{&canonical, [](void *out, const char *data, std::size_t size) {
                                       appendBinaryStringInfo(static_cast<StringInfo>(out), data,
                                                              static_cast<int>(size));
                                       CHECK_FOR_INTERRUPTS();
                                   }}};
    write_canonical(PG_GETARG_JSONB_P(arg_body), ignored,
                    PG_GETARG_BOOL(arg_strict) ? core::Numbers::strict : core::Numbers::lossless, writer);
    writer.flush();

    // the text is UTF-8; a result of type text is in the database's encoding
    char *converted = pg_any_to_server(canonical.data, canonical.len, PG_UTF8);
    const std::string_view result{
        converted, converted == canonical.data ? static_cast<std::size_t>(canonical.len) : strlen(converted)};
    PG_RETURN_TEXT_P(text_of(result));
}

/*
 * idem_fingerprint(method, path, body, raw_body, ignore) -> bytea: SHA-256, 32 bytes.
 *
 * Errors: ID009 for an argument, 22021 for bytes that are no UTF-8.
 */
Datum idem_fingerprint(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_method, arg_path, arg_body, arg_raw_body, arg_ignore };
    const Request request = request_arguments(fcinfo, arg_method, arg_path, arg_body, arg_raw_body);
    const Fingerprint fingerprint = fingerprint_of(request, ignore_argument(fcinfo, arg_ignore));

    PG_RETURN_BYTEA_P(bytea_of(fingerprint.bytes, sizeof(fingerprint.bytes)));
}

/*
 * idem_key_from_header(header) -> text: the key of an Idempotency-Key field value, an RFC 9651 string or
 * bare.
 *
 * Errors: 22P02 for a value that is neither.
 */
Datum idem_key_from_header(PG_FUNCTION_ARGS)
{
    const std::string_view header = bytes_of(PG_GETARG_TEXT_PP(0));
    core::Arena arena = current_context_arena();
    std::string_view key;
    const core::HeaderFault fault = core::parse_key_header(header, arena, key);
    if (fault != core::HeaderFault::none) {
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_TEXT_REPRESENTATION), errmsg("malformed Idempotency-Key header"),
                 errdetail("%s", core::header_fault_detail(fault)),
                 errhint("Answer the request with status 400.")));
    }
    PG_RETURN_TEXT_P(text_of(key));
}
