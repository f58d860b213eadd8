#include "pg/arguments.hpp"

#include "core/method.hpp"
#include "core/path_pattern.hpp"
#include "pg/errors.hpp"
#include "pg/leases.hpp"
#include "pg/registry.hpp"

namespace idem::pg {

namespace {

constexpr std::size_t max_name_size = 256;

[[noreturn]] void refuse_null(const char *argument)
{
    ereport(ERROR, (errcode(errcode_invalid_argument), errmsg("argument \"%s\" must not be null", argument)));
}

void require_size(std::string_view value, const char *argument)
{
    if (value.size() > max_name_size) {
        ereport(ERROR, (errcode(errcode_invalid_argument), errmsg("argument \"%s\" is too long", argument),
                        errdetail("It has %zu bytes; the limit is %zu.", value.size(), max_name_size)));
    }
}

bool is_blank(std::string_view value)
{
    for (const char byte : value) {
        if (byte != ' ' && (byte < '\t' || byte > '\r')) {
            return false;
        }
    }
    return true;
}

std::int64_t interval_argument(FunctionCallInfo fcinfo, int index, const char *argument, std::int64_t least,
                               std::int64_t most, const char *detail)
{
    if (PG_ARGISNULL(index)) {
        return 0;
    }
    const std::int64_t value = microseconds_of(PG_GETARG_INTERVAL_P(index));
    if (value < least || value > most) {
        ereport(ERROR, (errcode(errcode_invalid_argument),
                        errmsg("argument \"%s\" is out of range: %s", argument,
                               DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(index)))),
                        errdetail("%s", detail)));
    }
    return value;
}

} // namespace

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

std::string_view name_argument(FunctionCallInfo fcinfo, int index, const char *argument)
{
    const std::string_view name = text_argument(fcinfo, index, argument);
    if (is_blank(name)) {
        ereport(ERROR,
                (errcode(errcode_invalid_argument), errmsg("argument \"%s\" must not be blank", argument)));
    }
    require_size(name, argument);
    return name;
}

std::string_view checked_tenant(std::string_view tenant)
{
    if (is_blank(tenant)) {
        ereport(ERROR, (errcode(errcode_invalid_argument), errmsg("argument \"tenant\" must not be blank"),
                        errdetail("Requests without a tenant would share their keys and answers."),
                        errhint("Give the account, customer or merchant that the key belongs to.")));
    }
    require_size(tenant, "tenant");
    return tenant;
}

std::string_view checked_path(std::string_view path)
{
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

std::string_view tenant_argument(FunctionCallInfo fcinfo, int index)
{
    return checked_tenant(text_argument(fcinfo, index, "tenant"));
}

std::string_view key_argument(FunctionCallInfo fcinfo, int index)
{
    return PG_ARGISNULL(index) ? std::string_view{} : bytes_of(PG_GETARG_TEXT_PP(index));
}

std::string_view pattern_argument(FunctionCallInfo fcinfo, int index)
{
    const std::string_view pattern = text_argument(fcinfo, index, "path_pattern");
    const core::PatternFault fault = core::check_pattern(pattern);
    if (fault != core::PatternFault::none) {
        ereport(ERROR,
                (errcode(errcode_invalid_argument), errmsg("argument \"path_pattern\" is not a path pattern"),
                 errdetail("%s", core::pattern_fault_detail(fault)),
                 errhint("Write a pattern such as '/payments', '/payments/{id}/refunds' or '/admin/**'.")));
    }
    return pattern;
}

std::string_view checked_method(std::string_view method)
{
    if (!core::method_valid(method)) {
        ereport(ERROR,
                (errcode(errcode_invalid_argument), errmsg("argument \"method\" is not an HTTP method"),
                 errdetail("A method is an RFC 9110 token of 1 to %zu characters.", core::max_method_size),
                 errhint("Give the request's method, such as 'POST'.")));
    }
    return method;
}

std::string_view method_argument(FunctionCallInfo fcinfo, int index)
{
    return checked_method(text_argument(fcinfo, index, "method"));
}

void body_arguments(FunctionCallInfo fcinfo, int body_index, int raw_body_index, Jsonb *&body,
                    bytea *&raw_body)
{
    if (!PG_ARGISNULL(body_index) && !PG_ARGISNULL(raw_body_index)) {
        ereport(ERROR, (errcode(errcode_invalid_argument),
                        errmsg("arguments \"body\" and \"raw_body\" must not both be given"),
                        errhint("Give the body as jsonb in \"body\" or as bytes in \"raw_body\".")));
    }
    body = PG_ARGISNULL(body_index) ? nullptr : PG_GETARG_JSONB_P(body_index);
    raw_body = PG_ARGISNULL(raw_body_index) ? nullptr : PG_GETARG_BYTEA_PP(raw_body_index);
}

Request request_arguments(FunctionCallInfo fcinfo, int method, int path, int body, int raw_body)
{
    Request request;
    body_arguments(fcinfo, body, raw_body, request.body, request.raw_body);
    request.method = method_argument(fcinfo, method);
    request.path = checked_path(text_argument(fcinfo, path, "path"));
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

const pg_uuid_t *token_argument(FunctionCallInfo fcinfo, int index)
{
    require_not_null(fcinfo, index, "token");
    return PG_GETARG_UUID_P(index);
}

bool bool_argument(FunctionCallInfo fcinfo, int index, const char *argument)
{
    require_not_null(fcinfo, index, argument);
    return PG_GETARG_BOOL(index);
}

int count_argument(FunctionCallInfo fcinfo, int index, const char *argument, int most)
{
    require_not_null(fcinfo, index, argument);
    const int value = PG_GETARG_INT32(index);
    if (value < 1 || value > most) {
        ereport(ERROR, (errcode(errcode_invalid_argument),
                        errmsg("argument \"%s\" is out of range: %d", argument, value),
                        errdetail("It is 1 to %d.", most)));
    }
    return value;
}

std::int64_t lease_argument(FunctionCallInfo fcinfo, int index)
{
    return interval_argument(fcinfo, index, "lease", min_lease, max_lease,
                             "A lease is 1 second to 24 hours.");
}

std::int64_t retention_argument(FunctionCallInfo fcinfo, int index)
{
    return interval_argument(fcinfo, index, "retention", min_retention, max_retention,
                             "A key is kept for 24 hours to 7 days.");
}

} // namespace idem::pg
