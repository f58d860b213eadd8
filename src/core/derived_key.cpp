#include "core/derived_key.hpp"

#include <cstring>

#include <openssl/evp.h>

#include "core/canonical.hpp"
#include "core/sink.hpp"

namespace idem::core {

namespace {

// derived_key_namespace
constexpr std::uint8_t name_space[16] = {
    0x75, 0x38, 0x5e, 0xf7, 0x73, 0xfc, 0x47, 0xa5, 0x8f, 0xc5, 0x63, 0x12, 0x17, 0xe6, 0x9a, 0xca,
};

struct Buffer {
    std::uint8_t *end;
};

void append(void *context, const char *data, std::size_t size)
{
    auto *buffer = static_cast<Buffer *>(context);
    std::memcpy(buffer->end, data, size);
    buffer->end += size;
}

} // namespace

DeriveError derive_key(std::string_view tenant, std::string_view key, std::string_view step, Arena &arena,
                       char (&out)[derived_key_size])
{
    // an escape makes six bytes of one at most
    const std::size_t room = sizeof(name_space) + 6 * (tenant.size() + key.size() + step.size()) + 10;
    auto *input = allocate<std::uint8_t>(arena, room);
    std::memcpy(input, name_space, sizeof(name_space));
    Buffer buffer{input + sizeof(name_space)};

    Writer writer{Sink{&buffer, append}};
    const std::string_view parts[] = {tenant, key, step};
    char separator = '[';
    for (const std::string_view part : parts) {
        writer.put(separator);
        if (!write_string(part, writer)) {
            return DeriveError::invalid_utf8;
        }
        separator = ',';
    }
    writer.put(']');
    writer.flush();

    std::uint8_t digest[EVP_MAX_MD_SIZE];
    if (EVP_Digest(input, static_cast<std::size_t>(buffer.end - input), digest, nullptr, EVP_sha1(),
                   nullptr) != 1) {
        return DeriveError::digest_failed;
    }
    digest[6] = (digest[6] & 0x0f) | 0x50; // version 5
    digest[8] = (digest[8] & 0x3f) | 0x80; // variant of RFC 9562

    constexpr char hex[] = "0123456789abcdef";
    std::size_t size = 0;
    for (std::size_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            out[size++] = '-';
        }
        out[size++] = hex[digest[i] >> 4];
        out[size++] = hex[digest[i] & 0x0f];
    }
    return DeriveError::none;
}

} // namespace idem::core
