#include "pg/response.hpp"

#include "core/error_status.hpp"
#include "core/header.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"

namespace idem::pg {

namespace {

constexpr std::string_view replayed_name = "Idempotent-Replayed";

// Builds one flat JSON object.
class ObjectBuilder {
public:
    ObjectBuilder() : state_(nullptr) { pushJsonbValue(&state_, WJB_BEGIN_OBJECT, nullptr); }

    void add(std::string_view name, JsonbValue *value)
    {
        JsonbValue key = string_value(name);
        pushJsonbValue(&state_, WJB_KEY, &key);
        pushJsonbValue(&state_, WJB_VALUE, value);
    }

    void add(std::string_view name, std::string_view value)
    {
        JsonbValue string = string_value(value);
        add(name, &string);
    }

    void add_number(std::string_view name, int value)
    {
        JsonbValue number;
        number.type = jbvNumeric;
        number.val.numeric = int64_to_numeric(value);
        add(name, &number);
    }

    Jsonb *finish() { return JsonbValueToJsonb(pushJsonbValue(&state_, WJB_END_OBJECT, nullptr)); }

private:
    static JsonbValue string_value(std::string_view value)
    {
        JsonbValue string;
        string.type = jbvString;
        string.val.string.val = const_cast<char *>(value.data());
        string.val.string.len = static_cast<int>(value.size());
        return string;
    }

    JsonbParseState *state_;
};
static_assert(std::is_trivially_destructible_v<ObjectBuilder>);

[[noreturn]] void refuse_headers(const char *detail, std::string_view name)
{
    ereport(ERROR,
            (errcode(errcode_invalid_argument), errmsg("\"headers\" is not a set of HTTP header fields"),
             name.data() == nullptr ? errdetail("%s", detail) : errdetail(detail, cstring_of(name)),
             errhint("Give a JSON object whose values are strings or arrays of strings, such as "
                     "'{\"Location\": \"/payments/1\"}'.")));
}

void check_field_name(std::string_view name)
{
    if (!core::field_name_valid(name)) {
        refuse_headers("A header name is not an RFC 9110 token.", {});
    }
}

// A string that may stand in a field line, or a flat array of such.
void check_field_value(const JsonbValue &value, std::string_view name)
{
    if (value.type == jbvBinary && JsonContainerIsArray(value.val.binary.data)) {
        JsonbIterator *iterator = JsonbIteratorInit(value.val.binary.data);
        JsonbValue element;
        JsonbIteratorToken token;
        while ((token = JsonbIteratorNext(&iterator, &element, true)) != WJB_DONE) {
            if (token == WJB_ELEM && element.type != jbvString) {
                refuse_headers("The array of header \"%s\" has something other than strings.", name);
            }
            if (token == WJB_ELEM && !core::field_value_valid(string_of(element))) {
                refuse_headers("The value of header \"%s\" has a control character.", name);
            }
        }
        return;
    }
    if (value.type != jbvString) {
        refuse_headers("The value of header \"%s\" is neither a string nor an array of strings.", name);
    }
    if (!core::field_value_valid(string_of(value))) {
        refuse_headers("The value of header \"%s\" has a control character.", name);
    }
}

// Calls visit(name, value) for each member.
template <class Visit> void each_header(Jsonb *headers, Visit visit)
{
    JsonbIterator *iterator = JsonbIteratorInit(&headers->root);
    JsonbValue value;
    std::string_view name;
    JsonbIteratorToken token;
    while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE) {
        if (token == WJB_KEY) {
            name = string_of(value);
        } else if (token == WJB_VALUE) {
            visit(name, value);
        }
    }
}

// Header names are one whatever their case, jsonb's are not.
void check_no_name_twice(Jsonb *headers)
{
    const uint32 count = JsonContainerSize(&headers->root);
    auto *names = static_cast<std::string_view *>(palloc(Max(count, 1) * sizeof(std::string_view)));
    uint32 seen = 0;
    each_header(headers, [&](std::string_view name, const JsonbValue &) {
        for (uint32 i = 0; i < seen; i++) {
            if (core::field_name_equal(names[i], name)) {
                refuse_headers("Header \"%s\" is given twice.", name);
            }
        }
        names[seen++] = name;
    });
    pfree(names);
}

} // namespace

Jsonb *storable_headers(Jsonb *headers)
{
    if (!JB_ROOT_IS_OBJECT(headers)) {
        refuse_headers("It is not a JSON object.", {});
    }
    each_header(headers, [](std::string_view name, const JsonbValue &value) {
        check_field_name(name);
        check_field_value(value, name);
    });
    check_no_name_twice(headers);

    const std::string_view dropped{settings.dropped_headers};
    ObjectBuilder out;
    each_header(headers, [&](std::string_view name, JsonbValue &value) {
        if (!core::field_name_equal(name, replayed_name) && !core::in_list(dropped, name)) {
            out.add(name, &value);
        }
    });
    return out.finish();
}

Jsonb *replay_headers(Jsonb *stored)
{
    ObjectBuilder out;
    if (stored != nullptr) {
        each_header(stored, [&](std::string_view name, JsonbValue &value) { out.add(name, &value); });
    }
    out.add(replayed_name, "true");
    return out.finish();
}

Jsonb *problem_headers(std::string_view name, std::string_view value)
{
    ObjectBuilder out;
    out.add("Content-Type", "application/problem+json");
    if (!name.empty()) {
        out.add(name, value);
    }
    return out.finish();
}

Jsonb *problem_body(const core::Problem &problem, std::string_view detail)
{
    ObjectBuilder out;
    out.add("type", problem.type);
    out.add("title", problem.title);
    out.add_number("status", problem.status);
    out.add("detail", detail);
    return out.finish();
}

Response error_response(int status, std::string_view detail)
{
    const core::Problem problem{status, "about:blank", core::reason_phrase(status)};
    Response response{};
    response.status = status;
    response.headers = problem_headers({}, {});
    response.body = problem_body(problem, detail);
    return response;
}

} // namespace idem::pg
