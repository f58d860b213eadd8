#include "core/keyed_fingerprint.hpp"

#include <cstring>

namespace idem::core {

namespace {

constexpr std::size_t id_size = 4;

// Says which secret it is without saying the secret. No request's input is as short.
constexpr std::string_view id_input = "idempotency secret";

bool secret_id(std::string_view secret, std::uint8_t (&out)[digest_size])
{
    HmacSha256 code;
    return code.start(secret) && code.update(id_input.data(), id_input.size()) && code.finish(out);
}

} // namespace

SecretFault parse_secrets(std::string_view text, SecretList &list, std::size_t &line)
{
    list.count = 0;
    list.retired = false;
    line = 0;
    while (!text.empty()) {
        line++;
        const std::size_t end = text.find('\n');
        std::string_view secret{text.data(), end == std::string_view::npos ? text.size() : end};
        text.remove_prefix(secret.size() + (end == std::string_view::npos ? 0 : 1));
        if (!secret.empty() && secret.back() == '\r') {
            secret.remove_suffix(1);
        }
        if (secret.empty()) {
            continue;
        }
        if (secret == plain_line && list.count == 0 && !list.retired) {
            list.retired = true;
            continue;
        }
        if (secret.find_first_of(" \t") != std::string_view::npos) {
            return SecretFault::blank;
        }
        if (secret.size() < min_secret_size) {
            return SecretFault::too_short;
        }
        if (secret.size() > max_secret_size) {
            return SecretFault::too_long;
        }
        if (list.count == max_secrets) {
            return SecretFault::too_many;
        }
        list.secrets[list.count++] = secret;
    }
    return list.count == 0 ? SecretFault::no_secret : SecretFault::none;
}

const std::string_view *secret_in_use(const SecretList &list)
{
    return list.count == 0 || list.retired ? nullptr : &list.secrets[0];
}

bool keyed_fingerprint(std::string_view secret, const std::uint8_t (&plain)[digest_size],
                       std::string_view tenant, std::string_view key, std::uint8_t (&out)[digest_size])
{
    constexpr std::uint8_t separator = 0;
    std::uint8_t id[digest_size];
    std::uint8_t digest[digest_size];
    HmacSha256 code;
    if (!secret_id(secret, id) || !code.start(secret) || !code.update(plain, digest_size) ||
        !code.update(tenant.data(), tenant.size()) || !code.update(&separator, 1) ||
        !code.update(key.data(), key.size()) || !code.finish(digest)) {
        return false;
    }
    std::memcpy(out, id, id_size);
    std::memcpy(out + id_size, digest, digest_size - id_size);
    return true;
}

bool secret_of(const SecretList &list, const std::uint8_t (&stored)[digest_size],
               const std::string_view *&found)
{
    found = nullptr;
    for (std::size_t i = 0; i < list.count; i++) {
        std::uint8_t id[digest_size];
        if (!secret_id(list.secrets[i], id)) {
            return false;
        }
        if (std::memcmp(id, stored, id_size) == 0) {
            found = &list.secrets[i];
            return true;
        }
    }
    return true;
}

} // namespace idem::core
