/*
 * The SQL-callable functions: check the arguments, call, form the row. Nothing else.
 *
 * A claim walks one way: arguments, policy (pg/registry.hpp), key syntax (core), fingerprint (core over the jsonb reader),
 * lock, look with eyes newer than the lock, decision (core), answer (pg/claiming.hpp). It writes nothing: what is
 * claimed is remembered in this backend (pg/claims.hpp) until idem_complete() stores the one row (pg/key_store.hpp).
 * A leased claim writes its row at once (pg/leases.hpp).
 */
#include "pg/prelude.hpp"

#include "core/derived_key.hpp"
#include "core/fingerprint.hpp"
#include "core/header.hpp"
#include "core/key.hpp"
#include "core/method.hpp"
#include "core/path_pattern.hpp"
#include "core/status.hpp"
#include "pg/arguments.hpp"
#include "pg/claiming.hpp"
#include "pg/claims.hpp"
#include "pg/counters.hpp"
#include "pg/errors.hpp"
#include "pg/execution.hpp"
#include "pg/http_request.hpp"
#include "pg/key_lock.hpp"
#include "pg/leases.hpp"
#include "pg/limits.hpp"
#include "pg/purge.hpp"
#include "pg/registry.hpp"
#include "pg/response.hpp"
#include "pg/settings.hpp"
#include "pg/settling.hpp"
#include "pg/shared_memory.hpp"

extern "C" {
PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

// 15 exports a function only where its own declaration says so
PGDLLEXPORT Datum idem_claim(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_complete(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_release(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_renew(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_checkpoint(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_execute(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_http(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_lookup(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_canonical(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_fingerprint(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_key_from_header(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_derive_key(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_allow(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_disallow(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_bind_tenant(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_unbind_tenant(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_limit_tenant(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_unlimit_tenant(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_registry_changed(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_purge(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_forget(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_key_lock(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum idem_counters(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(idem_claim);
PG_FUNCTION_INFO_V1(idem_complete);
PG_FUNCTION_INFO_V1(idem_release);
PG_FUNCTION_INFO_V1(idem_renew);
PG_FUNCTION_INFO_V1(idem_checkpoint);
PG_FUNCTION_INFO_V1(idem_execute);
PG_FUNCTION_INFO_V1(idem_http);
PG_FUNCTION_INFO_V1(idem_lookup);
PG_FUNCTION_INFO_V1(idem_canonical);
PG_FUNCTION_INFO_V1(idem_fingerprint);
PG_FUNCTION_INFO_V1(idem_key_from_header);
PG_FUNCTION_INFO_V1(idem_derive_key);
PG_FUNCTION_INFO_V1(idem_allow);
PG_FUNCTION_INFO_V1(idem_disallow);
PG_FUNCTION_INFO_V1(idem_bind_tenant);
PG_FUNCTION_INFO_V1(idem_unbind_tenant);
PG_FUNCTION_INFO_V1(idem_limit_tenant);
PG_FUNCTION_INFO_V1(idem_unlimit_tenant);
PG_FUNCTION_INFO_V1(idem_registry_changed);
PG_FUNCTION_INFO_V1(idem_purge);
PG_FUNCTION_INFO_V1(idem_forget);
PG_FUNCTION_INFO_V1(idem_key_lock);
PG_FUNCTION_INFO_V1(idem_counters);
}

namespace {

using namespace idem;
using namespace idem::pg;

TupleDesc result_row_type(FunctionCallInfo fcinfo)
{
    TupleDesc descriptor;
    if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE) {
        elog(ERROR, "return type must be a row type");
    }
    return descriptor;
}

Datum form_answer(FunctionCallInfo fcinfo, const Answer &answer)
{
    enum Column : std::uint8_t {
        outcome,
        attempt,
        token,
        status,
        headers,
        body,
        raw_body,
        checkpoint,
        checkpoint_state,
        column_count
    };
    Datum values[column_count] = {};
    bool nulls[column_count] = {};
    const auto set_number = [&](Column column, int number) {
        values[column] = Int32GetDatum(number);
        nulls[column] = number == 0;
    };
    const auto set_pointer = [&](Column column, const void *pointer) {
        values[column] = PointerGetDatum(pointer);
        nulls[column] = pointer == nullptr;
    };
    set_pointer(outcome, text_of(core::outcome_name(answer.outcome)));
    set_number(attempt, answer.attempt);
    set_pointer(token, answer.token);
    set_number(status, answer.response.status);
    set_pointer(headers, answer.response.headers);
    set_pointer(body, answer.response.body);
    set_pointer(raw_body, answer.response.raw_body);
    set_pointer(checkpoint, answer.checkpoint);
    set_pointer(checkpoint_state, answer.checkpoint_state);
    return HeapTupleGetDatum(heap_form_tuple(result_row_type(fcinfo), values, nulls));
}

Datum form_execution(FunctionCallInfo fcinfo, const Execution &execution)
{
    enum Column : std::uint8_t { outcome, attempt, status, headers, body, raw_body, column_count };
    const Response &response = execution.response;
    Datum values[column_count] = {
        PointerGetDatum(text_of(execution.outcome)),
        Int32GetDatum(execution.attempt),
        Int32GetDatum(response.status),
        PointerGetDatum(response.headers),
        PointerGetDatum(response.body),
        PointerGetDatum(response.raw_body),
    };
    const bool nulls[column_count] = {
        false,
        execution.attempt == 0,
        false,
        response.headers == nullptr,
        response.body == nullptr,
        response.raw_body == nullptr,
    };
    return HeapTupleGetDatum(heap_form_tuple(result_row_type(fcinfo), values, const_cast<bool *>(nulls)));
}

Oid handler_argument(FunctionCallInfo fcinfo, int index)
{
    require_not_null(fcinfo, index, "handler");
    return PG_GETARG_OID(index);
}

// The body of an HTTP request: given as an argument, or in a setting, as JSON or bytes as its type says. False: it is
// declared to be JSON and is not.
bool take_http_body(FunctionCallInfo fcinfo, int body, int raw_body, const HttpRequest &http,
                    Request &request)
{
    body_arguments(fcinfo, body, raw_body, request.body, request.raw_body);
    if (http.body == nullptr || request.body != nullptr || request.raw_body != nullptr) {
        return true;
    }
    if (http.json) {
        request.body = parse_json_body(http.body);
        return request.body != nullptr;
    }
    request.raw_body = bytea_of(http.body, strlen(http.body));
    return true;
}

// A new transaction in which a row that somebody changes is looked at again, instead of failing with 40001. Its commit
// need not wait for the disk: a purge that a crash undoes is done again.
void begin_short_transaction()
{
    SPI_commit();
    XactIsoLevel = XACT_READ_COMMITTED;
    (void)set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true,
                            0, false);
}

// Leaves the machine to the claims for twice as long as a batch took, and 30 ms at least: on a server that has no
// processor to spare, this is what keeps a claim's p99 (bench/purge).
void rest(std::int64_t worked)
{
    constexpr std::int64_t least = 30;
    const std::int64_t milliseconds = Max(least, Min(worked * 2, USECS_PER_SEC) / 1000);
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, static_cast<long>(milliseconds),
                    PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
}

} // namespace

void _PG_init(void)
{
    require_secret_setting_unhidden();
    define_settings();
    prepare_counters();
    prepare_limits();
    prepare_shared_memory();
    register_claim_callbacks();
    register_store_callbacks();
    register_registry_callbacks();
}

/*
 * idem_claim(tenant, key, method, path, body, raw_body, lease) -> idem_claim_result
 *
 * The lease is 1 second to 24 hours; null: the operation's, if it is registered as leased, else the claim holds for
 * the transaction. Errors: ID009 for an argument, 25006 where nothing can be written, 25000 in a parallel operation,
 * 42501 for a tenant that the role is not bound to, 53200 when the lock table is full.
 */
Datum idem_claim(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key, arg_method, arg_path, arg_body, arg_raw_body, arg_lease };

    const std::string_view tenant = tenant_argument(fcinfo, arg_tenant);
    const Request request = request_arguments(fcinfo, arg_method, arg_path, arg_body, arg_raw_body);
    const std::int64_t lease = lease_argument(fcinfo, arg_lease);

    if (IsInParallelMode()) {
        require_writable("idem_claim");
    }
    const KeyTable table = key_table_beside(fcinfo->flinfo->fn_oid);
    require_tenant(table, tenant);
    const Policy policy = policy_of(table, request.method, request.path);
    const Answer answer = claim(table, KeyName{tenant, key_argument(fcinfo, arg_key)}, request, policy,
                                lease != 0 ? lease : policy.lease, "idem_claim");
    PG_RETURN_DATUM(form_answer(fcinfo, answer));
}

/*
 * idem_complete(tenant, key, status, body, headers, raw_body, token, undone) -> text
 *
 * Errors: ID002 not claimed, ID003 settled before, ID004 a stale token, ID005 a token where none belongs, ID006 "try
 * again" after writes, ID007 too large, ID008 not stored, ID009 for an argument, ID010 no token for a lease, 42501.
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
    Response response{};
    response.status = status;
    body_arguments(fcinfo, arg_body, arg_raw_body, response.body, response.raw_body);
    const bool undone = bool_argument(fcinfo, arg_undone, "undone");

    require_writable("idem_complete");
    const KeyTable table = key_table_beside(fcinfo->flinfo->fn_oid);
    require_tenant(table, name.tenant);
    const bool leased = !PG_ARGISNULL(arg_token);
    Claim *claim = nullptr;
    if (leased) {
        require_no_claim(name);
        (void)require_lease(table, name, PG_GETARG_UUID_P(arg_token));
    } else {
        claim = require_open_claim(table, name);
    }
    if (core::status_retryable(status)) {
        require_nothing_written(name, undone, status);
    }

    response.headers = PG_ARGISNULL(arg_headers) ? nullptr : storable_headers(PG_GETARG_JSONB_P(arg_headers));
    const StoredKey run = finished_run(name, response);
    if (leased) {
        complete_lease(table, name, PG_GETARG_UUID_P(arg_token), run);
    } else {
        complete_claim(table, name, claim, run);
    }
    PG_RETURN_TEXT_P(text_of(core::row_status_name(run.status)));
}

/*
 * idem_release(tenant, key, token, undone) -> void
 *
 * Errors: ID002 not claimed, ID003 settled before, ID004 a stale token, ID005 a token where none belongs, ID006 after
 * writes or a checkpoint, ID009 for an argument, ID010 no token for a lease, 42501.
 */
Datum idem_release(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key, arg_token, arg_undone };

    const KeyName name{tenant_argument(fcinfo, arg_tenant), text_argument(fcinfo, arg_key, "key")};
    const bool undone = bool_argument(fcinfo, arg_undone, "undone");

    require_writable("idem_release");
    const KeyTable table = key_table_beside(fcinfo->flinfo->fn_oid);
    require_tenant(table, name.tenant);
    if (!PG_ARGISNULL(arg_token)) {
        require_no_claim(name);
        const pg_uuid_t *token = PG_GETARG_UUID_P(arg_token);
        const StoredKey row = require_lease(table, name, token);
        require_nothing_written(name, undone, 0);
        require_no_checkpoint(name, row, undone);
        release_lease(table, name, token);
    } else {
        Claim *claim = require_open_claim(table, name);
        require_nothing_written(name, undone, 0);
        release_claim(claim);
    }
    PG_RETURN_VOID();
}

/*
 * idem_renew(tenant, key, token, lease) -> timestamptz: when the lease runs out now.
 *
 * The lease is 1 second to 24 hours from now, idempotency.default_lease if it is null; it never ends earlier than
 * before. Errors: ID004 a stale token, ID009 for an argument, 25006, 25000, 42501.
 */
Datum idem_renew(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key, arg_token, arg_lease };

    const KeyName name{tenant_argument(fcinfo, arg_tenant), text_argument(fcinfo, arg_key, "key")};
    const pg_uuid_t *token = token_argument(fcinfo, arg_token);
    Lease lease{};
    lease.length = lease_argument(fcinfo, arg_lease);
    if (lease.length == 0) {
        lease.length = static_cast<std::int64_t>(settings.default_lease) * 1000;
    }

    require_writable("idem_renew");
    const KeyTable table = key_table_beside(fcinfo->flinfo->fn_oid);
    require_tenant(table, name.tenant);
    const StoredKey row = require_lease(table, name, token);
    lease.expires_at = GetCurrentTimestamp() + lease.length;
    if (lease.expires_at > row.lease_expires_at) {
        renew_lease(table, name, token, lease);
    } else {
        lease.expires_at = row.lease_expires_at;
    }
    PG_RETURN_TIMESTAMPTZ(lease.expires_at);
}

/*
 * idem_checkpoint(tenant, key, token, name, state) -> void
 *
 * The name has 1 to 256 bytes, the state at most idempotency.max_response_size. Errors: ID004 a stale token, ID007 too
 * large, ID009 for an argument, 25006, 25000, 42501.
 */
Datum idem_checkpoint(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key, arg_token, arg_name, arg_state };

    const KeyName name{tenant_argument(fcinfo, arg_tenant), text_argument(fcinfo, arg_key, "key")};
    const pg_uuid_t *token = token_argument(fcinfo, arg_token);
    const std::string_view checkpoint = name_argument(fcinfo, arg_name, "name");
    Jsonb *state = PG_ARGISNULL(arg_state) ? nullptr : PG_GETARG_JSONB_P(arg_state);
    if (state != nullptr && VARSIZE(state) > max_stored_size()) {
        ereport(ERROR,
                (errcode(errcode_response_too_large), errmsg("argument \"state\" is too large"),
                 errdetail("It has %zu bytes; the limit is %zu.", static_cast<std::size_t>(VARSIZE(state)),
                           max_stored_size()),
                 errhint("Keep a reference to the data, or raise \"idempotency.max_response_size\".")));
    }

    require_writable("idem_checkpoint");
    const KeyTable table = key_table_beside(fcinfo->flinfo->fn_oid);
    require_tenant(table, name.tenant);
    (void)require_lease(table, name, token);
    store_checkpoint(table, name, token, text_of(checkpoint), state);
    PG_RETURN_VOID();
}

/*
 * idem_execute(tenant, key, method, path, body, handler, raw_body) -> idem_execute_result
 *
 * Claims, runs the handler with the caller's rights in a subtransaction, and completes. An exception of the handler
 * undoes its effects and becomes an answer (core/error_status.hpp), except for those that ask for the whole transaction
 * to be tried again. Errors: those of idem_claim(); ID009 for a handler that is none, 42501 where the caller may not
 * execute it, ID011 for an answer that is none, ID012 for a leased operation, ID007 too large.
 */
Datum idem_execute(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key, arg_method, arg_path, arg_body, arg_handler, arg_raw_body };
    const KeyName name{tenant_argument(fcinfo, arg_tenant), key_argument(fcinfo, arg_key)};
    const Request request = request_arguments(fcinfo, arg_method, arg_path, arg_body, arg_raw_body);
    const Oid handler = handler_argument(fcinfo, arg_handler);
    const KeyTable table = key_table_beside(fcinfo->flinfo->fn_oid);
    const Execution execution = execute_request(table, name, request, handler, "idem_execute");
    PG_RETURN_DATUM(form_execution(fcinfo, execution));
}

/*
 * idem_http(handler, body, raw_body) -> jsonb: idem_execute() of the request that PostgREST has put into settings
 * (pg/http_request.hpp). Returns the answer's body; its status and headers go into settings.
 *
 * Errors: those of idem_execute(); ID009 for a setting that is missing; ID011 for an answer that is bytes.
 */
Datum idem_http(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_handler, arg_body, arg_raw_body };
    const Oid handler = handler_argument(fcinfo, arg_handler);
    const HttpRequest http = current_http_request();
    const KeyName name{checked_tenant(http.tenant), http.key};
    Request request{};
    request.method = checked_method(http.method);
    request.path = checked_path(http.path);

    Response response{};
    if (!take_http_body(fcinfo, arg_body, arg_raw_body, http, request)) {
        response = error_response(400, "The body of the request is not valid JSON.");
    } else if (http.key_fault != core::HeaderFault::none) {
        response = rejected_answer(core::header_fault_detail(http.key_fault)).response;
    } else {
        response =
            execute_request(key_table_beside(fcinfo->flinfo->fn_oid), name, request, handler, "idem_http")
                .response;
    }
    if (response.raw_body != nullptr) {
        ereport(ERROR, (errcode(errcode_bad_answer), errmsg("idem_http() cannot answer with bytes"),
                        errdetail("Its result is jsonb, and the response is a raw_body."),
                        errhint("Answer with a body, or call idem_execute().")));
    }
    set_http_response(response);
    if (response.body == nullptr) {
        PG_RETURN_NULL();
    }
    PG_RETURN_JSONB_P(response.body);
}

/*
 * idem_lookup(tenant, key) -> setof idem_key_info: no row for an unknown key, else one.
 *
 * Reads with the statement's snapshot, on a standby too. Errors: ID009 for an argument, 42501.
 */
Datum idem_lookup(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key };
    const KeyName name{tenant_argument(fcinfo, arg_tenant), text_argument(fcinfo, arg_key, "key")};

    InitMaterializedSRF(fcinfo, 0);
    auto *result = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);

    const KeyTable table = key_table_beside(fcinfo->flinfo->fn_oid);
    require_tenant(table, name.tenant);
    const StoredKey row = look(table, name, Eyes::snapshot);
    const std::uint64_t hash = key_lock_hash(name.tenant, name.key);
    const Claim *mine = find_claim(hash, name.tenant, name.key);
    const bool known = row.status != core::RowStatus::none;
    const bool held = (mine != nullptr && mine->state == ClaimState::open) || key_lock_held_elsewhere(hash);
    if (!known && !held) {
        return Datum{0};
    }

    const TimestampTz now = GetCurrentTimestamp();
    const bool leased = known && row.status == core::RowStatus::in_progress && row.lease_expires_at > now;
    const bool expired = known && row.expires_at <= now && !leased;
    const char *state_name = "in_progress";
    if (known && row.status == core::RowStatus::completed && !expired) {
        state_name = "completed";
    } else if (known && !held && expired) {
        state_name = "expired";
    } else if (known && !held && row.status == core::RowStatus::failed_retryable) {
        state_name = "failed_retryable";
    } else if (known && !held && !leased) {
        state_name = "lease_expired";
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
        checkpoint,
        checkpoint_state,
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
        set(checkpoint, PointerGetDatum(row.checkpoint), row.checkpoint != nullptr);
        set(checkpoint_state, PointerGetDatum(row.checkpoint_state), row.checkpoint_state != nullptr);
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

/*
 * idem_derive_key(tenant, key, step) -> text: UUIDv5 (RFC 9562) of the canonical JSON text of [tenant, key, step].
 *
 * The step has 1 to 256 bytes. Errors: ID009 for an argument, 22021 for bytes that are no UTF-8.
 */
Datum idem_derive_key(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key, arg_step };
    const std::string_view tenant = tenant_argument(fcinfo, arg_tenant);
    const std::string_view key = name_argument(fcinfo, arg_key, "key");
    const std::string_view step = name_argument(fcinfo, arg_step, "step");

    core::Arena arena = current_context_arena();
    char derived[core::derived_key_size];
    switch (core::derive_key(utf8_of(tenant), utf8_of(key), utf8_of(step), arena, derived)) {
    case core::DeriveError::none:
        break;
    case core::DeriveError::invalid_utf8:
        ereport(ERROR, (errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE),
                        errmsg("tenant, key and step must be valid UTF-8")));
        break;
    case core::DeriveError::digest_failed:
        digest_failed("SHA-1");
        break;
    }
    PG_RETURN_TEXT_P(text_of({derived, sizeof(derived)}));
}

/*
 * idem_allow(method, path_pattern, key_required, retention, lease, ignore, leased, statuses) -> void
 *
 * Errors: ID009 for an argument.
 */
Datum idem_allow(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t {
        arg_method,
        arg_path_pattern,
        arg_key_required,
        arg_retention,
        arg_lease,
        arg_ignore,
        arg_leased,
        arg_statuses
    };
    Operation operation{};
    operation.method = method_argument(fcinfo, arg_method);
    operation.path_pattern = pattern_argument(fcinfo, arg_path_pattern);
    operation.key_required = bool_argument(fcinfo, arg_key_required, "key_required");
    (void)retention_argument(fcinfo, arg_retention);
    operation.retention = PG_ARGISNULL(arg_retention) ? nullptr : PG_GETARG_INTERVAL_P(arg_retention);
    (void)lease_argument(fcinfo, arg_lease);
    operation.lease = PG_ARGISNULL(arg_lease) ? nullptr : PG_GETARG_INTERVAL_P(arg_lease);
    if (ignore_argument(fcinfo, arg_ignore).count > core::max_ignored_each) {
        ereport(ERROR,
                (errcode(errcode_invalid_argument), errmsg("argument \"ignore\" is too long"),
                 errdetail("An operation ignores at most %zu JSON pointers.", core::max_ignored_each)));
    }
    operation.ignore = PG_GETARG_ARRAYTYPE_P(arg_ignore);
    operation.statuses = PG_ARGISNULL(arg_statuses) ? nullptr : PG_GETARG_JSONB_P(arg_statuses);
    (void)error_rules_of(operation.statuses);
    operation.leased = PG_ARGISNULL(arg_leased) ? operation.lease != nullptr : PG_GETARG_BOOL(arg_leased);
    if (operation.lease != nullptr && !operation.leased) {
        ereport(ERROR, (errcode(errcode_invalid_argument),
                        errmsg("argument \"lease\" must be null where \"leased\" is false"),
                        errhint("Leave out \"leased\": an operation with a lease is leased.")));
    }

    require_writable("idem_allow");
    store_operation(key_table_beside(fcinfo->flinfo->fn_oid), operation);
    PG_RETURN_VOID();
}

/*
 * idem_disallow(method, path_pattern) -> boolean: whether it was registered.
 *
 * Errors: ID009 for an argument.
 */
Datum idem_disallow(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_method, arg_path_pattern };
    const std::string_view method = method_argument(fcinfo, arg_method);
    const std::string_view pattern = pattern_argument(fcinfo, arg_path_pattern);
    require_writable("idem_disallow");
    PG_RETURN_BOOL(remove_operation(key_table_beside(fcinfo->flinfo->fn_oid), method, pattern));
}

/*
 * idem_bind_tenant(role, tenant) -> void, idem_unbind_tenant(role, tenant) -> boolean: whether it was bound.
 *
 * Errors: ID009 for an argument.
 */
Datum idem_bind_tenant(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_role, arg_tenant };
    require_not_null(fcinfo, arg_role, "role");
    const std::string_view tenant = tenant_argument(fcinfo, arg_tenant);
    require_writable("idem_bind_tenant");
    bind_tenant(key_table_beside(fcinfo->flinfo->fn_oid), PG_GETARG_OID(arg_role), tenant);
    PG_RETURN_VOID();
}

Datum idem_unbind_tenant(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_role, arg_tenant };
    require_not_null(fcinfo, arg_role, "role");
    const std::string_view tenant = tenant_argument(fcinfo, arg_tenant);
    require_writable("idem_unbind_tenant");
    PG_RETURN_BOOL(unbind_tenant(key_table_beside(fcinfo->flinfo->fn_oid), PG_GETARG_OID(arg_role), tenant));
}

/*
 * idem_limit_tenant(tenant, max_keys, max_in_flight) -> void, idem_unlimit_tenant(tenant) -> boolean: whether it had limits.
 *
 * A null tenant stands for all that have no limits of their own; a null limit is none. max_in_flight: 1 to 10,000. Errors:
 * ID009 for an argument.
 */
Datum idem_limit_tenant(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_max_keys, arg_max_in_flight };
    const std::string_view tenant =
        PG_ARGISNULL(arg_tenant) ? std::string_view{} : tenant_argument(fcinfo, arg_tenant);
    Limits limits{};
    if (!PG_ARGISNULL(arg_max_keys)) {
        limits.max_keys = count_argument(fcinfo, arg_max_keys, "max_keys", PG_INT32_MAX);
    }
    if (!PG_ARGISNULL(arg_max_in_flight)) {
        limits.max_in_flight =
            count_argument(fcinfo, arg_max_in_flight, "max_in_flight", max_limit_in_flight);
    }
    require_writable("idem_limit_tenant");
    store_limits(key_table_beside(fcinfo->flinfo->fn_oid), tenant, limits);
    PG_RETURN_VOID();
}

Datum idem_unlimit_tenant(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant };
    const std::string_view tenant =
        PG_ARGISNULL(arg_tenant) ? std::string_view{} : tenant_argument(fcinfo, arg_tenant);
    require_writable("idem_unlimit_tenant");
    PG_RETURN_BOOL(remove_limits(key_table_beside(fcinfo->flinfo->fn_oid), tenant));
}

/*
 * idem_registry_changed() -> trigger: tells every backend that the table's contents have changed.
 */
Datum idem_registry_changed(PG_FUNCTION_ARGS)
{
    if (!CALLED_AS_TRIGGER(fcinfo)) {
        ereport(ERROR,
                (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                 errmsg("function \"%s\" was not called by trigger manager", "idem_registry_changed")));
    }
    CacheInvalidateRelcache(reinterpret_cast<TriggerData *>(fcinfo->context)->tg_relation);
    PG_RETURN_POINTER(nullptr);
}

/*
 * CALL idem_purge(batch, max_batches): deletes expired keys, each batch in a transaction of its own.
 *
 * batch: rows, 1 to 100,000; max_batches: null for no limit. Between two batches it rests for twice as long as the
 * last one took, and 30 ms at least. Says in a NOTICE what it did. Errors: ID009 for an argument, 2D000 where it
 * can't commit, 25006, 25000.
 */
Datum idem_purge(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_batch, arg_max_batches };
    const int size = count_argument(fcinfo, arg_batch, "batch", max_purge_batch);
    const int most = PG_ARGISNULL(arg_max_batches)
                         ? PG_INT32_MAX
                         : count_argument(fcinfo, arg_max_batches, "max_batches", PG_INT32_MAX);
    require_writable("idem_purge");
    if (fcinfo->context == nullptr || !IsA(fcinfo->context, CallContext) ||
        castNode(CallContext, fcinfo->context)->atomic) {
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
                 errmsg("cannot run idem_purge() in a transaction block or in a function"),
                 errdetail("Each batch is a transaction of its own."),
                 errhint("Write CALL idem_purge() as a command of its own, outside BEGIN and COMMIT.")));
    }

    if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT) {
        elog(ERROR, "SPI_connect_ext failed");
    }
    const TimestampTz started = GetCurrentTimestamp();
    std::uint64_t purged = 0;
    std::uint64_t passed_over = 0;
    int batches = 0;
    std::int64_t worked = 0; // us
    PurgeBatch batch{};
    batch.reached = DT_NOBEGIN;
    while (batches < most && !batch.last && !batch.busy) {
        begin_short_transaction();
        if (batches > 0) {
            rest(worked);
        }
        const TimestampTz batch_started = GetCurrentTimestamp();
        batch = purge_batch(key_table_beside(fcinfo->flinfo->fn_oid), size, batch.reached, started);
        worked = GetCurrentTimestamp() - batch_started;
        batches += batch.busy ? 0 : 1;
        purged += batch.purged;
        passed_over += batch.passed_over;
        count(Counter::purged, batch.purged);
        if (batch.purged == 0) {
            batch.reached++; // all of it is in use
        }
    }
    SPI_finish();

    const double seconds = static_cast<double>(GetCurrentTimestamp() - started) / USECS_PER_SEC;
    if (batch.busy) {
        ereport(NOTICE, (errmsg("another purge is at work"),
                         errdetail("This one has purged %llu idempotency keys and leaves the rest to it.",
                                   static_cast<unsigned long long>(purged))));
    } else {
        ereport(NOTICE, (errmsg("purged %llu expired idempotency keys in %d batches, %.1f s",
                                static_cast<unsigned long long>(purged), batches, seconds),
                         passed_over == 0 ? 0
                                          : errdetail("%llu keys are in use and left for the next purge.",
                                                      static_cast<unsigned long long>(passed_over))));
    }
    PG_RETURN_VOID();
}

/*
 * idem_forget(tenant, key), idem_forget(tenant) -> bigint: how many keys were erased.
 *
 * Waits for a transaction that holds the key. A lease is erased with its key: its worker can't complete any more.
 * Errors: ID009 for an argument (a null key is no way to erase a whole tenant), 42501, 25006, 25000.
 */
Datum idem_forget(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key };
    const std::string_view tenant = tenant_argument(fcinfo, arg_tenant);
    require_writable("idem_forget");
    const KeyTable table = key_table_beside(fcinfo->flinfo->fn_oid);
    require_tenant(table, tenant);
    if (PG_NARGS() == 1) {
        PG_RETURN_INT64(static_cast<std::int64_t>(forget_tenant(table, tenant)));
    }
    if (PG_ARGISNULL(arg_key)) {
        ereport(ERROR, (errcode(errcode_invalid_argument), errmsg("argument \"key\" must not be null"),
                        errhint("To erase all keys of the tenant, call idem_forget(tenant).")));
    }
    const KeyName name{tenant, bytes_of(PG_GETARG_TEXT_PP(arg_key))};
    PG_RETURN_INT64(static_cast<std::int64_t>(forget_key(table, name)));
}

/*
 * idem_key_lock(tenant, key) -> text: the lock that stands for the key, 16 hexadecimal digits, as
 * idempotency_in_flight shows it.
 *
 * Errors: ID009 for an argument.
 */
Datum idem_key_lock(PG_FUNCTION_ARGS)
{
    enum : std::uint8_t { arg_tenant, arg_key };
    const std::uint64_t hash =
        key_lock_hash(tenant_argument(fcinfo, arg_tenant), text_argument(fcinfo, arg_key, "key"));
    PG_RETURN_TEXT_P(cstring_to_text(psprintf("%016llx", static_cast<unsigned long long>(hash))));
}

/*
 * idem_counters() -> one row: what happened since the server started, or in this session where the library is not
 * preloaded.
 */
Datum idem_counters(PG_FUNCTION_ARGS)
{
    const Counts counts = current_counts();
    Datum values[counter_count + 2];
    bool nulls[counter_count + 2] = {};
    values[0] = PointerGetDatum(text_of(counts.whole_server ? "server" : "session"));
    values[1] = TimestampTzGetDatum(counts.since);
    for (std::size_t i = 0; i < counter_count; i++) {
        values[i + 2] = Int64GetDatum(static_cast<std::int64_t>(counts.values[i]));
    }
    PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(result_row_type(fcinfo), values, nulls)));
}
