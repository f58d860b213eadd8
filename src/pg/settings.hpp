/*
 * The settings, all with the prefix `idempotency.`; docs/reference.md has their units and ranges.
 */
#pragma once

#include "pg/prelude.hpp"

#include "core/json_pointer.hpp"

namespace idem::pg {

struct Settings {
    int default_lease;     // ms
    int default_retention; // s
    int retry_after;       // ms
    int max_response_size; // kB
    bool direct_lookup;
    char *ignored_fields;
    char *dropped_headers;
    char *http_tenant;
    char *fingerprint_secret_file;
    bool log_handler_errors;
};
static_assert(std::is_trivially_destructible_v<Settings>);

extern Settings settings;

void define_settings();

// An error if something other than the server's configuration, a client's PGOPTIONS say, has given the file of secrets before the
// library was loaded: the value can't count, and hides the configured one. First thing when the library is loaded.
void require_secret_setting_unhidden();

// idempotency.ignored_fields, parsed when it was set, in the encoding that it was set in.
const core::IgnoreList &ignored_fields_setting();

// The list that a row means by ignored_fields IS NULL; never changes for a fingerprint version.
constexpr const char *built_in_ignored_fields = "/timestamp,/request_id,/trace_id";
const core::IgnoreList &built_in_ignore_list();

bool ignored_fields_are_built_in();

// idempotency.ignored_fields as text[]; the second: null where it is the built-in list.
ArrayType *ignored_fields_setting_as_array();
ArrayType *ignored_fields_as_array();

} // namespace idem::pg
