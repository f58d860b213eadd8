/*
 * The input of a request's fingerprint: METHOD LF path LF, then the canonical body, or its bytes, or nothing.
 *
 * Method and path have no control character (core/method.hpp), so no two requests share an input.
 */
#pragma once

#include <cstdint>
#include <string_view>

#include "core/method.hpp"
#include "core/sink.hpp"

namespace idem::core {

// Stored with each fingerprint. A change of what is hashed, or how, is a new version beside the old ones.
constexpr std::int16_t plain_fingerprint_version = 1; // SHA-256
constexpr std::int16_t keyed_fingerprint_version = 2; // core/keyed_fingerprint.hpp

inline void write_request_line(std::string_view method, std::string_view path, Writer &out)
{
    for (const char c : method) {
        out.put(ascii_upper(c));
    }
    out.put('\n');
    out.put(path);
    out.put('\n');
}

} // namespace idem::core
