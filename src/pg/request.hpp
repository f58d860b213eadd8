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

// What a fingerprint leaves out.
struct IgnoredFields {
    core::IgnoreList list;
    ArrayType *array; // the same as a row keeps it; null: the built-in list
};
static_assert(std::is_trivially_destructible_v<IgnoredFields>);

Fingerprint fingerprint_of(const Request &request, const core::IgnoreList &ignored);

// The pointers of idempotency.ignored_fields, in UTF-8 as the documents that they point into, and those that an
// operation adds to them.
IgnoredFields current_ignored_fields();
IgnoredFields ignored_fields_with(const core::IgnoreList &more, ArrayType *more_array);

// The pointers of a text[] argument or column; raises ID009 that names the argument.
core::IgnoreList ignore_list_of(ArrayType *pointers);

// Streams the canonical text of `body`; raises what the core reports as an SQL error.
void write_canonical(Jsonb *body, const core::IgnoreList &ignored, core::Numbers numbers,
                     core::Writer &writer);

// Is this the request whose fingerprint is given, made with these ignored fields (null: the built-in list)?
bool same_request(const Request &request, const Fingerprint &current, const IgnoredFields &current_ignored,
                  const std::uint8_t *stored_hash, std::int16_t stored_version, ArrayType *stored_ignored);

[[noreturn]] void digest_failed(const char *algorithm);

// The hash of tenant and key that is locked, see core/digest.hpp.
std::uint64_t key_lock_hash(std::string_view tenant, std::string_view key);

} // namespace idem::pg
