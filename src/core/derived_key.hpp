/*
 * Keys for the calls that a request makes to other systems: the same in each run, so that the other side drops the
 * second call as this side drops the second request.
 *
 * UUIDv5 (RFC 9562, section 5.5) in a namespace of its own, of the canonical JSON text of [tenant, key, step]: any
 * language computes it. Fixed for ever.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/arena.hpp"

namespace idem::core {

constexpr const char *derived_key_namespace = "75385ef7-73fc-47a5-8fc5-631217e69aca";
constexpr std::size_t derived_key_size = 36;

enum class DeriveError : std::uint8_t { none, invalid_utf8, digest_failed };

// All in UTF-8; writes the 36 characters of a UUID.
DeriveError derive_key(std::string_view tenant, std::string_view key, std::string_view step, Arena &arena,
                       char (&out)[derived_key_size]);

} // namespace idem::core
