/*
 * Fingerprints under a secret, so that who has the table can't search it for guesses of a body: HMAC-SHA-256 (RFC 2104) over the
 * plain fingerprint, the tenant, a zero byte and the key.
 *
 * With tenant and key in it, two equal requests can't be told to be equal, nor can a client try bodies of his own against a
 * row that he reads. What is stored is 32 bytes: 4 that say which secret it was, and the leftmost 28 of the code (RFC 2104,
 * section 5, permits to cut it). Secrets are changed by adding one: the first of a list is used, the others still compare.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/digest.hpp"

namespace idem::core {

constexpr std::size_t min_secret_size = 32; // bytes
constexpr std::size_t max_secret_size = 1024;
constexpr std::size_t max_secrets = 8;

struct SecretList {
    std::string_view secrets[max_secrets]; // in the text that was parsed
    std::size_t count;
    bool retired; // none of them is used any more, all of them compare
};
static_assert(std::is_trivially_destructible_v<SecretList>);

enum class SecretFault : std::uint8_t { none, no_secret, too_short, too_long, blank, too_many };

// In the first line: new fingerprints are made without a secret.
constexpr std::string_view plain_line = "plain";

// One secret a line; empty lines are skipped, a line's end may be CR LF. A blank is a fault: it is a comment, or was not seen by who
// wrote it. `line` is where the fault is, from 1.
SecretFault parse_secrets(std::string_view text, SecretList &list, std::size_t &line);

// What is stored for a request whose plain fingerprint is given. False means that OpenSSL failed.
bool keyed_fingerprint(std::string_view secret, const std::uint8_t (&plain)[digest_size],
                       std::string_view tenant, std::string_view key, std::uint8_t (&out)[digest_size]);

// The secret that new fingerprints are made with; null: none.
const std::string_view *secret_in_use(const SecretList &list);

// The secret that a stored fingerprint was made with; `found` is null if it is not in the list. False means that OpenSSL failed.
bool secret_of(const SecretList &list, const std::uint8_t (&stored)[digest_size],
               const std::string_view *&found);

} // namespace idem::core
