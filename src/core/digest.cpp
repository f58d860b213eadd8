#include "core/digest.hpp"

#include <openssl/evp.h>

namespace idem::core {

namespace {

EVP_MD *algorithm;
EVP_MD_CTX *context;

} // namespace

bool Sha256::start()
{
    if (algorithm == nullptr) {
        algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    }
    if (context == nullptr) {
        context = EVP_MD_CTX_new();
    }
    return algorithm != nullptr && context != nullptr && EVP_DigestInit_ex2(context, algorithm, nullptr) == 1;
}

bool Sha256::update(const void *data, std::size_t size)
{
    return EVP_DigestUpdate(context, data, size) == 1;
}

bool Sha256::finish(std::uint8_t out[digest_size])
{
    return EVP_DigestFinal_ex(context, out, nullptr) == 1;
}

bool lock_hash(std::string_view tenant, std::string_view key, std::uint64_t &out)
{
    const auto size = static_cast<std::uint32_t>(tenant.size());
    const std::uint8_t prefix[4] = {
        static_cast<std::uint8_t>(size >> 24),
        static_cast<std::uint8_t>(size >> 16),
        static_cast<std::uint8_t>(size >> 8),
        static_cast<std::uint8_t>(size),
    };
    std::uint8_t digest[digest_size];
    Sha256 sha;
    if (!sha.start() || !sha.update(prefix, sizeof(prefix)) || !sha.update(tenant.data(), tenant.size()) ||
        !sha.update(key.data(), key.size()) || !sha.finish(digest)) {
        return false;
    }
    out = 0;
    for (int i = 0; i < 8; i++) {
        out = out << 8 | digest[i];
    }
    return true;
}

} // namespace idem::core
