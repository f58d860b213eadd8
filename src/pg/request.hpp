/*
 * A request as the fingerprint sees it: method LF path LF canonical body, hashed as it is read.
 */
#pragma once

#include "pg/prelude.hpp"

#include "core/canonical.hpp"
#include "core/digest.hpp"
#include "core/json_pointer.hpp"
#include "pg/key_name.hpp"

namespace idem::pg {

struct Request {
    std::string_view method;
    std::string_view path; // UTF-8
    Jsonb *body;           // at most one of the two is not null
    bytea *raw_body;
};

// The plain one, which is computed from the request alone.
struct Fingerprint {
    std::uint8_t bytes[core::digest_size];
};

// As a row keeps it, with what it was made with.
struct StoredFingerprint {
    std::uint8_t bytes[core::digest_size];
    std::int16_t version;      // core/fingerprint.hpp
    ArrayType *ignored_fields; // null: the built-in list
};
static_assert(std::is_trivially_destructible_v<StoredFingerprint>);

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

// What a row keeps of a fingerprint: under the secret, where there is one.
StoredFingerprint stored_fingerprint(const KeyName &name, const Fingerprint &fingerprint,
                                     ArrayType *ignored_fields);

// Is this the request that the stored fingerprint was made of? Raises F0000 where that can't be told: "another request" would
// send an honest client away, who would then pay again with a new key.
bool same_request(const KeyName &name, const Request &request, const Fingerprint &current,
                  const IgnoredFields &current_ignored, const StoredFingerprint &stored);

[[noreturn]] void digest_failed(const char *algorithm);

// The hash of tenant and key that is locked, see core/digest.hpp.
std::uint64_t key_lock_hash(std::string_view tenant, std::string_view key);

} // namespace idem::pg
