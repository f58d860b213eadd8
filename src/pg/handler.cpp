#include "pg/handler.hpp"

#include "core/status.hpp"
#include "pg/attempt.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"

namespace idem::pg {

namespace {

constexpr const char *response_type_name = "idem_response";

Oid response_type(Oid schema)
{
    return GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum(response_type_name),
                           ObjectIdGetDatum(schema));
}

[[noreturn]] void refuse_handler(Oid function, const char *detail)
{
    ereport(ERROR,
            (errcode(errcode_invalid_argument),
             errmsg("argument \"handler\" is not a handler: %s", format_procedure(function)),
             errdetail("%s", detail),
             errhint("A handler is a function (body jsonb), or (raw_body bytea), that returns jsonb or "
                     "%s.",
                     response_type_name)));
}

[[noreturn]] void refuse_answer(Oid function, const char *detail)
{
    ereport(ERROR, (errcode(errcode_bad_answer),
                    errmsg("handler %s returned no valid answer", format_procedure(function)),
                    errdetail("%s", detail)));
}

// An oid can be had from pg_proc, so the schema is asked too, as it is where a function is called by name.
void require_execute_right(Oid function, Oid schema)
{
#if PG_VERSION_NUM >= 160000
    const AclResult usage = object_aclcheck(NamespaceRelationId, schema, GetUserId(), ACL_USAGE);
    const AclResult execute = object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE);
#else
    const AclResult usage = pg_namespace_aclcheck(schema, GetUserId(), ACL_USAGE);
    const AclResult execute = pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE);
#endif
    if (usage != ACLCHECK_OK) {
        aclcheck_error(usage, OBJECT_SCHEMA, get_namespace_name(schema));
    }
    if (execute != ACLCHECK_OK) {
        aclcheck_error(execute, OBJECT_FUNCTION, get_func_name(function));
    }
    InvokeFunctionExecuteHook(function);
}

struct Run {
    const Handler *handler;
    const Request *request;
    Response response;
};
static_assert(std::is_trivially_destructible_v<Run>);

Datum column_of(HeapTupleHeader row, int column, bool &null)
{
    return GetAttributeByNum(row, static_cast<AttrNumber>(column), &null);
}

Response response_of(Oid function, HeapTupleHeader row)
{
    enum : std::uint8_t { status = 1, headers, body, raw_body };
    Response response{};
    bool null;
    const Datum code = column_of(row, status, null);
    if (null) {
        refuse_answer(function, "Its status is null.");
    }
    response.status = DatumGetInt32(code);
    if (!core::status_valid(response.status)) {
        refuse_answer(function, psprintf("Its status is %d; a final HTTP status is %d to %d.",
                                         response.status, core::min_status, core::max_status));
    }
    Datum value = column_of(row, headers, null);
    response.headers = null ? nullptr : DatumGetJsonbPCopy(value);
    value = column_of(row, body, null);
    response.body = null ? nullptr : DatumGetJsonbPCopy(value);
    value = column_of(row, raw_body, null);
    response.raw_body = null ? nullptr : DatumGetByteaPCopy(value);
    if (response.body != nullptr && response.raw_body != nullptr) {
        refuse_answer(function, "It has both body and raw_body.");
    }
    return response;
}

Response call(const Handler &handler, const Request &request)
{
    FmgrInfo function;
    fmgr_info(handler.function, &function);
    LOCAL_FCINFO(arguments, 1);
    InitFunctionCallInfoData(*arguments, &function, 1, DEFAULT_COLLATION_OID, nullptr, nullptr);
    const void *body = handler.takes_bytes ? static_cast<const void *>(request.raw_body) : request.body;
    arguments->args[0].value = PointerGetDatum(body);
    arguments->args[0].isnull = body == nullptr;
    if (body == nullptr && handler.strict) {
        refuse_answer(handler.function, "It is STRICT, and the request has no body.");
    }

    const Datum result = FunctionCallInvoke(arguments);
    if (arguments->isnull) {
        refuse_answer(handler.function, "It returned null.");
    }
    if (handler.returns_response) {
        return response_of(handler.function, DatumGetHeapTupleHeader(result));
    }
    Response response{};
    response.status = 200;
    response.body = DatumGetJsonbPCopy(result);
    return response;
}

[[noreturn]] void refuse_statuses(const char *detail, std::string_view pattern)
{
    ereport(ERROR,
            (errcode(errcode_invalid_argument),
             errmsg("argument \"statuses\" does not map SQLSTATEs to HTTP statuses"),
             pattern.data() == nullptr ? errdetail("%s", detail) : errdetail(detail, cstring_of(pattern)),
             errhint("Give a JSON object such as '{\"23514\": 422, \"22\": 400}': five characters for a "
                     "SQLSTATE, two for its class.")));
}

int rule_status(const JsonbValue &value, std::string_view pattern)
{
    if (value.type == jbvNumeric) {
        const Datum number = NumericGetDatum(value.val.numeric);
        const Datum least = NumericGetDatum(int64_to_numeric(core::min_error_status));
        const Datum most = NumericGetDatum(int64_to_numeric(core::max_status));
        if (DatumGetBool(DirectFunctionCall2(numeric_ge, number, least)) &&
            DatumGetBool(DirectFunctionCall2(numeric_le, number, most))) {
            const int status = DatumGetInt32(DirectFunctionCall1(numeric_int4, number));
            if (DatumGetBool(
                    DirectFunctionCall2(numeric_eq, number, NumericGetDatum(int64_to_numeric(status))))) {
                return status;
            }
        }
    }
    refuse_statuses("The status for \"%s\" is not a whole number from 300 to 599.", pattern);
}

bool keep_effects(int status)
{
    return !core::status_retryable(status) && !core::status_unstored(status);
}

// Of a failure, the log gets what finds its cause and no value: messages quote what they complain about.
void log_failure(const Handler &handler, const KeyName &name, const ErrorData *error)
{
    const char *object = error->constraint_name != nullptr ? error->constraint_name : error->table_name;
    ereport(LOG, (errcode(error->sqlerrcode),
                  errmsg("handler %s failed with SQLSTATE %s", format_procedure(handler.function),
                         unpack_sql_state(error->sqlerrcode)),
                  object == nullptr ? 0 : errdetail("It concerns \"%s\".", object),
                  settings.log_handler_errors ? errdetail_log("%s%s%s%s%s", error->message,
                                                              error->detail != nullptr ? " DETAIL: " : "",
                                                              error->detail != nullptr ? error->detail : "",
                                                              error->context != nullptr ? " CONTEXT: " : "",
                                                              error->context != nullptr ? error->context : "")
                                              : 0,
                  name.key.data() == nullptr ? 0
                                             : errcontext("idempotency key \"%s\" of tenant \"%s\"",
                                                          cstring_of(name.key), cstring_of(name.tenant)),
                  errhidestmt(true)));
}

Response answer_to(const ErrorData *error, const core::ErrorRules &rules)
{
    const char *sqlstate = unpack_sql_state(error->sqlerrcode);
    const int status = core::status_of_error(sqlstate, rules);
    return error_response(status, core::speaks_to_client(sqlstate) && error->message != nullptr
                                      ? std::string_view{error->message}
                                      : core::error_detail(status));
}

} // namespace

Handler check_handler(Oid function, Oid schema)
{
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(tuple)) {
        ereport(ERROR, (errcode(errcode_invalid_argument),
                        errmsg("argument \"handler\" is not a function: %u", function),
                        errhint("Give it as 'schema.function(jsonb)'::regprocedure.")));
    }
    const FormData_pg_proc procedure = *reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));
    const int count = procedure.pronargs;
    const Oid argument =
        count == 1 ? reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple))->proargtypes.values[0] : InvalidOid;
    ReleaseSysCache(tuple);

    if (procedure.prokind != PROKIND_FUNCTION) {
        refuse_handler(function, "It is not a plain function.");
    }
    if (procedure.proretset) {
        refuse_handler(function, "It returns a set.");
    }
    if (argument != JSONBOID && argument != BYTEAOID) {
        refuse_handler(function, "It does not take one argument of type jsonb or bytea.");
    }
    if (procedure.prorettype != JSONBOID && procedure.prorettype != response_type(schema)) {
        refuse_handler(function, "It returns another type.");
    }
    require_execute_right(function, procedure.pronamespace);

    Handler handler{};
    handler.function = function;
    handler.takes_bytes = argument == BYTEAOID;
    handler.returns_response = procedure.prorettype != JSONBOID;
    handler.strict = procedure.proisstrict;
    return handler;
}

void require_body_kind(const Handler &handler, const Request &request)
{
    if (handler.takes_bytes && request.body != nullptr) {
        refuse_handler(handler.function, "It takes bytea, and the request's body is jsonb.");
    }
    if (!handler.takes_bytes && request.raw_body != nullptr) {
        refuse_handler(handler.function, "It takes jsonb, and the request's body is bytes.");
    }
}

core::ErrorRules error_rules_of(Jsonb *statuses)
{
    core::ErrorRules parsed{};
    if (statuses == nullptr) {
        return parsed;
    }
    if (!JB_ROOT_IS_OBJECT(statuses)) {
        refuse_statuses("It is not a JSON object.", {});
    }
    if (JsonContainerSize(&statuses->root) > core::max_error_rules) {
        refuse_statuses("It has more members than an operation may have, which is 64.", {});
    }
    core::Arena arena = current_context_arena();
    auto *rules = core::allocate<core::ErrorRule>(arena, core::max_error_rules);
    JsonbIterator *iterator = JsonbIteratorInit(&statuses->root);
    JsonbValue value;
    JsonbIteratorToken token;
    while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE) {
        core::ErrorRule &rule = rules[parsed.count];
        if (token == WJB_KEY) {
            const std::string_view pattern = string_of(value);
            if (!core::error_pattern_valid(pattern)) {
                refuse_statuses("\"%s\" is neither a SQLSTATE nor a class of them.", pattern);
            }
            if (core::always_raised(pattern)) {
                refuse_statuses("Errors of \"%s\" are always raised and never become an answer.", pattern);
            }
            memcpy(rule.sqlstate, pattern.data(), pattern.size());
            rule.size = static_cast<std::uint8_t>(pattern.size());
        } else if (token == WJB_VALUE) {
            rule.status = rule_status(value, rule.pattern());
            parsed.count++;
        }
    }
    parsed.rules = rules;
    return parsed;
}

Response run_handler(const Handler &handler, const Request &request, const core::ErrorRules &rules,
                     const KeyName &name)
{
    auto *run = static_cast<Run *>(palloc0(sizeof(Run)));
    run->handler = &handler;
    run->request = &request;
    ErrorData *error = attempt(
        [](void *context) {
            auto *run = static_cast<Run *>(context);
            run->response = call(*run->handler, *run->request);
            return keep_effects(run->response.status);
        },
        run);
    if (error == nullptr) {
        return run->response;
    }
    if (core::always_raised(unpack_sql_state(error->sqlerrcode))) {
        ReThrowError(error);
    }
    const Response response = answer_to(error, rules);
    if (core::status_retryable(response.status)) {
        log_failure(handler, name, error);
    }
    return response;
}

} // namespace idem::pg
