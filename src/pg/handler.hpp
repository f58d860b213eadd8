/*
 * A handler: the caller's function that does the work of a request and returns its answer.
 *
 * It is given by oid, never by a name that came with the request, and runs with the caller's rights, which are checked,
 * in a subtransaction. What it did is kept if its answer is: an answer that asks the client to try again, or to show who
 * it is, undoes it, and so does an exception, which becomes an answer.
 */
#pragma once

#include "pg/prelude.hpp"

#include "core/error_status.hpp"
#include "pg/key_store.hpp"
#include "pg/request.hpp"
#include "pg/response.hpp"

namespace idem::pg {

struct Handler {
    Oid function;
    bool takes_bytes;      // (bytea), else (jsonb)
    bool returns_response; // idem_response, else jsonb
    bool strict;
};
static_assert(std::is_trivially_destructible_v<Handler>);

// Raises ID009 for what is no handler, 42501 where the caller may not execute it. `schema`: of idem_response.
Handler check_handler(Oid function, Oid schema);

// Raises ID009 where the handler doesn't take the kind of body that the request has.
void require_body_kind(const Handler &handler, const Request &request);

// {"SQLSTATE or class": status, ...}; null: none. Raises ID009 that names the argument "statuses".
core::ErrorRules error_rules_of(Jsonb *statuses);

// Runs it; `name` is for the log, its key without data where there is none. Raises ID011 for an answer that is none, and the errors that are never an answer (core/error_status.hpp).
Response run_handler(const Handler &handler, const Request &request, const core::ErrorRules &rules,
                     const KeyName &name);

} // namespace idem::pg
