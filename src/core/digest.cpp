#include "core/digest.hpp"

#include <openssl/core_names.h>
#include <openssl/evp.h>

namespace idem::core {

namespace {

EVP_MD *algorithm;
EVP_MD_CTX *context;
EVP_MAC_CTX *hmac_context;

// The context keeps the algorithm; none is left half made for the next call.
EVP_MAC_CTX *new_hmac_context()
{
    char digest[] = "SHA256";
    const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                     OSSL_PARAM_construct_end()};
    EVP_MAC *hmac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    EVP_MAC_CTX *made = EVP_MAC_CTX_new(hmac);
    EVP_MAC_free(hmac);
    if (made != nullptr && EVP_MAC_CTX_set_params(made, parameters) != 1) {
        EVP_MAC_CTX_free(made);
        made = nullptr;
    }
    return made;
}

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

bool HmacSha256::start(std::string_view secret)
{
    if (hmac_context == nullptr) {
        hmac_context = new_hmac_context();
    }
    return hmac_context != nullptr &&
           EVP_MAC_init(hmac_context, reinterpret_cast<const unsigned char *>(secret.data()), secret.size(),
                        nullptr) == 1;
}

bool HmacSha256::update(const void *data, std::size_t size)
{
    return EVP_MAC_update(hmac_context, static_cast<const unsigned char *>(data), size) == 1;
}

bool HmacSha256::finish(std::uint8_t out[digest_size])
{
    std::size_t size = 0;
    return EVP_MAC_final(hmac_context, out, &size, digest_size) == 1 && size == digest_size;
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
