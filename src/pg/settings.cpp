#include "pg/settings.hpp"

#include "pg/fingerprint_secret.hpp"

namespace idem::pg {

Settings settings;

namespace {

// What the setting's text was parsed into, in one block that guc.c frees.
struct ParsedFields {
    core::IgnoreList list;
    bool built_in;
};
static_assert(std::is_trivially_destructible_v<ParsedFields>);

const ParsedFields *parsed_fields;
core::IgnoreList built_in_list;

constexpr const char *default_dropped_headers =
    "Set-Cookie, WWW-Authenticate, Authorization, Date, Connection, Keep-Alive, Proxy-Authenticate, "
    "Proxy-Authorization, Proxy-Connection, TE, Trailer, Transfer-Encoding, Upgrade";

struct Block {
    char *next;
    char *end;
};

void *allocate_from_block(void *context, std::size_t size)
{
    auto *block = static_cast<Block *>(context);
    char *start = block->next;
    block->next += MAXALIGN(size);
    // the block is sized for the longest parse of its text
    return block->next <= block->end ? start : nullptr;
}

bool check_ignored_fields(char **value, void **extra, GucSource)
{
    const std::string_view text{*value};
    const std::size_t size = MAXALIGN(sizeof(ParsedFields)) + core::ignore_list_room(text);
    char *memory = static_cast<char *>(guc_allocate(size));
    if (memory == nullptr) {
        return false;
    }

    Block block{memory + MAXALIGN(sizeof(ParsedFields)), memory + size};
    core::Arena arena{&block, allocate_from_block};
    auto *parsed = reinterpret_cast<ParsedFields *>(memory);
    std::string_view offender;
    const core::PointerError error = core::parse_ignore_list(text, arena, parsed->list, offender);
    parsed->built_in = text == built_in_ignored_fields;

    switch (error) {
    case core::PointerError::none:
        *extra = memory;
        return true;
    case core::PointerError::too_many:
        GUC_check_errdetail("The list has more than %zu JSON pointers.", core::max_ignored_each);
        break;
    default:
        GUC_check_errdetail("\"%.*s\" is not a JSON pointer to a member (RFC 6901).",
                            static_cast<int>(offender.size()), offender.data());
        GUC_check_errhint("Write a top-level member as \"/name\", several as \"/name,/other/nested\".");
        break;
    }
    guc_release(memory);
    return false;
}

// A reload assigns every setting of the configuration file, changed or not.
constexpr const char *secret_file_setting = "idempotency.fingerprint_secret_file";

void assign_fingerprint_secret_file(const char *, void *)
{
    forget_fingerprint_secrets();
}

void assign_ignored_fields(const char *, void *extra)
{
    parsed_fields = static_cast<const ParsedFields *>(extra);
}

} // namespace

const core::IgnoreList &ignored_fields_setting()
{
    return parsed_fields->list;
}

const core::IgnoreList &built_in_ignore_list()
{
    return built_in_list;
}

bool ignored_fields_are_built_in()
{
    return parsed_fields->built_in;
}

ArrayType *ignored_fields_setting_as_array()
{
    // the text is stored as it was split, so that a row can be read without knowing the setting's syntax
    Datum pointers[core::max_ignored];
    int count = 0;
    std::string_view rest{settings.ignored_fields};
    std::string_view pointer;
    while (core::next_list_item(rest, pointer)) {
        pointers[count++] = PointerGetDatum(text_of(pointer));
    }
    return construct_array(pointers, count, TEXTOID, -1, false, TYPALIGN_INT);
}

ArrayType *ignored_fields_as_array()
{
    return ignored_fields_are_built_in() ? nullptr : ignored_fields_setting_as_array();
}

void require_secret_setting_unhidden()
{
    const config_generic *placeholder = setting_named(secret_file_setting);
    if (placeholder != nullptr && (placeholder->flags & GUC_CUSTOM_PLACEHOLDER) != 0 &&
        placeholder->reset_source > PGC_S_ARGV) {
        ereport(ERROR,
                (errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM),
                 errmsg("parameter \"%s\" cannot be set for a connection, a role or a database",
                        secret_file_setting),
                 errdetail("Fingerprints would be made without the secret of the server's configuration."),
                 errhint("Set it in postgresql.conf or with ALTER SYSTEM only.")));
    }
}

void define_settings()
{
    MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
    core::Arena arena = current_context_arena();
    std::string_view offender;
    (void)core::parse_ignore_list(built_in_ignored_fields, arena, built_in_list, offender);
    MemoryContextSwitchTo(caller);

    DefineCustomIntVariable("idempotency.default_lease", "How long a leased claim is held.",
                            "For claims that ask for a lease without saying how long.",
                            &settings.default_lease, 60 * 1000, 1000, 24 * 60 * 60 * 1000, PGC_USERSET,
                            GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("idempotency.default_retention", "How long a key and its response are kept.",
                            "Frozen in the row when the key is claimed; between 24 hours and 7 days.",
                            &settings.default_retention, 7 * 24 * 60 * 60, 24 * 60 * 60, 7 * 24 * 60 * 60,
                            PGC_USERSET, GUC_UNIT_S, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("idempotency.retry_after", "What Retry-After says while a key is in progress.",
                            "Rounded up to whole seconds.", &settings.retry_after, 1000, 1, 60 * 60 * 1000,
                            PGC_USERSET, GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("idempotency.max_response_size",
                            "The largest response (headers and body) that idem_complete() stores.", nullptr,
                            &settings.max_response_size, 8 * 1024, 1, 512 * 1024, PGC_USERSET, GUC_UNIT_KB,
                            nullptr, nullptr, nullptr);
    DefineCustomStringVariable("idempotency.ignored_fields",
                               "JSON pointers to what a client may change on a retry, separated by commas.",
                               "Left out of the fingerprint of a request with a JSON body.",
                               &settings.ignored_fields, built_in_ignored_fields, PGC_USERSET, 0,
                               check_ignored_fields, assign_ignored_fields, nullptr);
    DefineCustomStringVariable(
        "idempotency.dropped_headers", "Response headers that are never stored, separated by commas.",
        "They belong to one exchange and must not be handed to another request.", &settings.dropped_headers,
        default_dropped_headers, PGC_USERSET, 0, nullptr, nullptr, nullptr);
    DefineCustomStringVariable(
        "idempotency.http_tenant",
        "Where idem_http() finds the tenant: a setting, or a setting and a JSON pointer into it.",
        "Such as request.jwt.claims/tenant_id.", &settings.http_tenant, "", PGC_SUSET, 0, nullptr, nullptr,
        nullptr);
    DefineCustomStringVariable(
        secret_file_setting,
        "A file of secrets, one a line, that fingerprints are made with; empty for fingerprints without one.",
        "The first secret is used, the others still compare. Relative to the data directory.",
        &settings.fingerprint_secret_file, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, nullptr,
        assign_fingerprint_secret_file, nullptr);
    DefineCustomBoolVariable(
        "idempotency.log_handler_errors",
        "Logs the message of an error for which a handler's request was answered with 5xx.",
        "Messages may quote what the request contains; without it the SQLSTATE is logged.",
        &settings.log_handler_errors, false, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomBoolVariable(
        "idempotency.direct_lookup", "Reads a plain local key table without going through the planner.",
        "Turned off, every look goes through the planner, as it does by itself where the "
        "table is distributed.",
        &settings.direct_lookup, true, PGC_USERSET, 0, nullptr, nullptr, nullptr);
    MarkGUCPrefixReserved("idempotency");
}

} // namespace idem::pg
