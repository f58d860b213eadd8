/*
 * A request as the fingerprint sees it: method LF path LF canonical body, hashed as it is read.
 */
#pragma once

#include "pg/prelude.hpp"

#include "core/canonical.hpp"
#include "core/json_pointer.hpp"

namespace idem::pg {

struct Request {
    std::string_view method;
    std::string_view path; // UTF-8
    Jsonb *body;           // at most one of the two is not null
    bytea *raw_body;
};

struct Fingerprint {
    std::uint8_t bytes[32];
};

Fingerprint fingerprint_of(const Request &request, const core::IgnoreList &ignored);

// The pointers of idempotency.ignored_fields, in UTF-8 as the documents that they point into.
core::IgnoreList current_ignore_list();

// The pointers of a text[] argument or column; raises ID009 that names the argument.
core::IgnoreList ignore_list_of(ArrayType *pointers);

// Streams the canonical text of `body`; raises what the core reports as an SQL error.
void write_canonical(Jsonb *body, const core::IgnoreList &ignored, core::Numbers numbers,
                     core::Writer &writer);

// Is this the request whose fingerprint is given, made with these ignored fields (null: the built-in list)?
bool same_request(const Request &request, const Fingerprint &current, const std::uint8_t *stored_hash,
                  std::int16_t stored_version, ArrayType *stored_ignored);

// The hash of tenant and key that is locked, see core/digest.hpp.
std::uint64_t key_lock_hash(std::string_view tenant, std::string_view key);

} // namespace idem::pg
