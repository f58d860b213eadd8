/*
 * Claim, handler and completion in one call: the one-line way, which works in autocommit.
 */
#pragma once

#include "pg/handler.hpp"
#include "pg/key_store.hpp"
#include "pg/request.hpp"
#include "pg/response.hpp"

namespace idem::pg {

struct Execution {
    std::string_view
        outcome; // completed, failed_retryable or released where the handler ran under the key; else claim's
    int attempt; // 0: none
    Response response;
};
static_assert(std::is_trivially_destructible_v<Execution>);

// A key without data was not given. `caller` is the SQL function, for messages. Raises ID012 for an operation that is
// registered as leased, or whose leased run has left a checkpoint.
Execution execute_request(const KeyTable &table, const KeyName &name, const Request &request, Oid handler,
                          const char *caller);

} // namespace idem::pg
