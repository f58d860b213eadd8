#include "pg/http_request.hpp"

#include "core/json_pointer.hpp"
#include "pg/attempt.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"

namespace idem::pg {

namespace {

// Null where it is not set; a setting whose transaction has ended is the empty text.
const char *setting_or_null(const char *name)
{
    const char *value = GetConfigOption(name, true, false);
    return value == nullptr || *value == '\0' ? nullptr : value;
}

[[noreturn]] void refuse_setting(const char *name, const char *detail)
{
    ereport(ERROR,
            (errcode(errcode_invalid_argument), errmsg("setting \"%s\" %s", name, detail),
             errhint("idem_http() is for a request that PostgREST, or what sets the same settings, hands on. "
                     "Elsewhere call idem_execute().")));
}

std::string_view required_setting(const char *name)
{
    const char *value = setting_or_null(name);
    if (value == nullptr) {
        refuse_setting(name, "is not set");
    }
    return value;
}

struct JsonText {
    const char *text;
    Jsonb *value;
};
static_assert(std::is_trivially_destructible_v<JsonText>);

bool parse(void *context)
{
    auto *json = static_cast<JsonText *>(context);
    json->value = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json->text)));
    return false; // there is nothing to keep
}

// The server's own message would quote the text.
Jsonb *json_setting(const char *name)
{
    Jsonb *value = parse_json_body(required_setting(name).data());
    if (value == nullptr || !JB_ROOT_IS_OBJECT(value)) {
        refuse_setting(name, "is not a JSON object");
    }
    return value;
}

// One field value, or that it came more than once.
struct Field {
    std::string_view value;
    int count;
};
static_assert(std::is_trivially_destructible_v<Field>);

// Names are compared without case; an array is a header that came several times.
Field find_field(Jsonb *headers, std::string_view wanted)
{
    Field field{};
    JsonbIterator *iterator = JsonbIteratorInit(&headers->root);
    JsonbValue value;
    bool found = false;
    JsonbIteratorToken token;
    while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE) {
        if (token == WJB_KEY) {
            found = core::field_name_equal(string_of(value), wanted);
        } else if ((token == WJB_VALUE || token == WJB_ELEM) && found && value.type == jbvString) {
            field.value = string_of(value);
            field.count++;
        }
    }
    return field;
}

// application/json, or any type that ends in +json (RFC 6839); none is declared: PostgREST takes JSON.
bool declares_json(const Field &content_type)
{
    if (content_type.count == 0) {
        return true;
    }
    const char *end = content_type.value.data();
    const char *last = end + content_type.value.size();
    while (end != last && *end != ';' && *end != ' ') {
        end++;
    }
    const std::string_view type{content_type.value.data(),
                                static_cast<std::size_t>(end - content_type.value.data())};
    constexpr std::string_view suffix = "+json";
    return core::field_name_equal(type, "application/json") ||
           (type.size() > suffix.size() &&
            core::field_name_equal({end - suffix.size(), suffix.size()}, suffix));
}

// A member's text: of a string or a number.
std::string_view text_at(const char *setting, Jsonb *document, const core::Pointer &pointer)
{
    JsonbContainer *container = &document->root;
    for (std::size_t i = 0; i < pointer.count; i++) {
        JsonbValue found;
        const std::string_view token = pointer.tokens[i];
        const JsonbValue *value =
            getKeyJsonValueFromContainer(container, token.data(), static_cast<int>(token.size()), &found);
        if (value == nullptr || value->type == jbvNull) {
            break;
        }
        if (i + 1 == pointer.count && value->type == jbvString) {
            return cstring_of(string_of(*value));
        }
        if (i + 1 == pointer.count && value->type == jbvNumeric) {
            return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
        }
        if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data)) {
            break;
        }
        container = value->val.binary.data;
    }
    ereport(ERROR, (errcode(errcode_invalid_argument), errmsg("setting \"%s\" has no tenant", setting),
                    errdetail("There is no string or number where \"idempotency.http_tenant\" (%s) points.",
                              settings.http_tenant),
                    errhint("Refuse requests of callers without a tenant before idem_http() is called.")));
}

std::string_view current_tenant()
{
    const std::string_view where{settings.http_tenant};
    if (where.empty()) {
        ereport(ERROR,
                (errcode(errcode_invalid_argument), errmsg("setting \"idempotency.http_tenant\" is empty"),
                 errdetail("idem_http() does not know whose the request is."),
                 errhint("Name the setting that has the tenant, such as 'request.jwt.claims/tenant_id'.")));
    }
    const std::size_t slash = where.find('/');
    if (slash == std::string_view::npos) {
        return required_setting(settings.http_tenant);
    }
    const char *setting = cstring_of({where.data(), slash});
    core::Arena arena = current_context_arena();
    core::Pointer pointer{};
    if (core::parse_pointer({where.data() + slash, where.size() - slash}, arena, pointer) !=
        core::PointerError::none) {
        ereport(ERROR, (errcode(errcode_invalid_argument),
                        errmsg("setting \"idempotency.http_tenant\" has no valid JSON pointer: %s",
                               settings.http_tenant),
                        errhint("Write it as 'request.jwt.claims/tenant_id'.")));
    }
    return text_at(setting, json_setting(setting), pointer);
}

void set_local(const char *name, const char *value)
{
    (void)set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

void append_field(JsonbParseState **state, JsonbValue name, JsonbValue value)
{
    pushJsonbValue(state, WJB_BEGIN_OBJECT, nullptr);
    pushJsonbValue(state, WJB_KEY, &name);
    pushJsonbValue(state, WJB_VALUE, &value);
    pushJsonbValue(state, WJB_END_OBJECT, nullptr);
}

// {"A": "1", "B": ["2", "3"]} as [{"A": "1"}, {"B": "2"}, {"B": "3"}].
Jsonb *header_list(Jsonb *headers)
{
    JsonbParseState *state = nullptr;
    pushJsonbValue(&state, WJB_BEGIN_ARRAY, nullptr);
    if (headers != nullptr) {
        JsonbIterator *iterator = JsonbIteratorInit(&headers->root);
        JsonbValue value;
        JsonbValue name{};
        JsonbIteratorToken token;
        while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE) {
            if (token == WJB_KEY) {
                name = value;
            } else if (token == WJB_VALUE || token == WJB_ELEM) {
                append_field(&state, name, value);
            }
        }
    }
    return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, nullptr));
}

} // namespace

Jsonb *parse_json_body(const char *text)
{
    JsonText json{text, nullptr};
    ErrorData *error = attempt(parse, &json);
    if (error == nullptr) {
        return json.value;
    }
    // a data exception, or more than the server takes: nested too deep, too long
    const int category = ERRCODE_TO_CATEGORY(error->sqlerrcode);
    if (category != ERRCODE_DATA_EXCEPTION && category != ERRCODE_PROGRAM_LIMIT_EXCEEDED) {
        ReThrowError(error);
    }
    return nullptr;
}

HttpRequest current_http_request()
{
    HttpRequest request{};
    request.tenant = current_tenant();
    request.method = required_setting("request.method");
    request.path = required_setting("request.path");
    Jsonb *headers = json_setting("request.headers");
    const Field key = find_field(headers, "Idempotency-Key");
    if (key.count > 1) {
        request.key_fault = core::HeaderFault::list;
    } else if (key.count == 1) {
        core::Arena arena = current_context_arena();
        request.key_fault = core::parse_key_header(key.value, arena, request.key);
    }
    request.json = declares_json(find_field(headers, "Content-Type"));
    request.body = setting_or_null("request.body");
    return request;
}

void set_http_response(const Response &response)
{
    set_local("response.status", psprintf("%d", response.status));
    Jsonb *headers = header_list(response.headers);
    set_local("response.headers", JsonbToCString(nullptr, &headers->root, VARSIZE(headers)));
}

} // namespace idem::pg
