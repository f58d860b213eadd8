/*
 * What the SQL-callable functions are given: each argument checked once, with an error (ID009) that names it and the
 * limit.
 */
#pragma once

#include "pg/prelude.hpp"

#include "pg/request.hpp"

namespace idem::pg {

void require_not_null(FunctionCallInfo fcinfo, int index, const char *argument);

std::string_view text_argument(FunctionCallInfo fcinfo, int index, const char *argument);
// Not blank, and at most 256 bytes.
std::string_view name_argument(FunctionCallInfo fcinfo, int index, const char *argument);

// The value itself; the path as UTF-8, since the fingerprint is the same whatever the database's encoding.
std::string_view checked_tenant(std::string_view tenant);
std::string_view checked_method(std::string_view method);
std::string_view checked_path(std::string_view path);

std::string_view tenant_argument(FunctionCallInfo fcinfo, int index);
// Without data where it is null.
std::string_view key_argument(FunctionCallInfo fcinfo, int index);
std::string_view pattern_argument(FunctionCallInfo fcinfo, int index);
std::string_view method_argument(FunctionCallInfo fcinfo, int index);
Request request_arguments(FunctionCallInfo fcinfo, int method, int path, int body, int raw_body);
// Each null where it is not given; both at once are refused.
void body_arguments(FunctionCallInfo fcinfo, int body_index, int raw_body_index, Jsonb *&body,
                    bytea *&raw_body);
core::IgnoreList ignore_argument(FunctionCallInfo fcinfo, int index);
const pg_uuid_t *token_argument(FunctionCallInfo fcinfo, int index);
bool bool_argument(FunctionCallInfo fcinfo, int index, const char *argument);

int count_argument(FunctionCallInfo fcinfo, int index, const char *argument, int most);

// Microseconds; 0 where it is null.
std::int64_t lease_argument(FunctionCallInfo fcinfo, int index);
std::int64_t retention_argument(FunctionCallInfo fcinfo, int index);

// A standby would grant the very lock that the primary holds, and its rows lag behind.
void require_writable(const char *function);

} // namespace idem::pg
