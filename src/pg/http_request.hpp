/*
 * The request that PostgREST, and gateways that do as it does, put into settings of the transaction: request.method,
 * request.path, request.headers (a JSON object) and request.body; and the answer that they take out of others:
 * response.status and response.headers (a JSON array of objects).
 */
#pragma once

#include "pg/prelude.hpp"

#include "core/header.hpp"
#include "pg/response.hpp"

namespace idem::pg {

struct HttpRequest {
    std::string_view tenant;
    std::string_view method;
    std::string_view path;
    std::string_view key;        // without data: no such header
    core::HeaderFault key_fault; // of the header
    bool json;                   // the body is declared to be JSON, or nothing else
    const char *body;            // null: none was set
};
static_assert(std::is_trivially_destructible_v<HttpRequest>);

// Raises ID009 that names the setting for what a gateway leaves out, and for a tenant that can't be found.
HttpRequest current_http_request();

// The text as jsonb; null for what is none.
Jsonb *parse_json_body(const char *text);

// Says what the gateway is to answer with. The body is the function's own result.
void set_http_response(const Response &response);

} // namespace idem::pg
