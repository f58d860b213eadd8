/*
 * SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104) by OpenSSL's EVP interface: each algorithm is fetched once a process
 * and one context is reused.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace idem::core {

constexpr std::size_t digest_size = 32;

// One digest at a time: start() drops what was begun and not finished. False means that OpenSSL failed.
class Sha256 {
public:
    bool start();
    bool update(const void *data, std::size_t size);
    bool finish(std::uint8_t out[digest_size]);
};
static_assert(std::is_trivially_destructible_v<Sha256>);

// The same for a code under a secret.
class HmacSha256 {
public:
    bool start(std::string_view secret);
    bool update(const void *data, std::size_t size);
    bool finish(std::uint8_t out[digest_size]);
};
static_assert(std::is_trivially_destructible_v<HmacSha256>);

// What is locked for a key: the first 8 bytes, big-endian, of SHA-256 over the tenant's length (4 bytes,
// big-endian), the tenant and the key. Fixed for ever: versions that disagreed would let two runs in.
bool lock_hash(std::string_view tenant, std::string_view key, std::uint64_t &out);

} // namespace idem::core
