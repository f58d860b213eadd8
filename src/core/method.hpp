/*
 * HTTP methods and paths (RFC 9110).
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace idem::core {

constexpr std::size_t max_method_size = 32;

// Never the locale's: in a Turkish one the capital of i is not I.
constexpr char ascii_upper(char c)
{
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

constexpr bool equal_ignoring_case(std::string_view a, std::string_view b)
{
    if (a.size() != b.size()) {
        return false;
    }
    for (std::size_t i = 0; i < a.size(); i++) {
        if (ascii_upper(a[i]) != ascii_upper(b[i])) {
            return false;
        }
    }
    return true;
}

// RFC 9110, section 5.6.2.
constexpr bool is_token(std::string_view text)
{
    for (const char c : text) {
        const bool alphanumeric = (c >= '0' && c <= '9') || (ascii_upper(c) >= 'A' && ascii_upper(c) <= 'Z');
        if (!alphanumeric &&
            (c == '\0' || std::string_view{"!#$%&'*+-.^_`|~"}.find(c) == std::string_view::npos)) {
            return false;
        }
    }
    return !text.empty();
}

constexpr bool method_valid(std::string_view method)
{
    return is_token(method) && method.size() <= max_method_size;
}

// Safe methods and PUT (RFC 9110, sections 9.2.1 and 9.2.2). DELETE is idempotent too, but its answer is not:
// a retry would be told 404 where the first run said 204.
constexpr bool idempotent_by_nature(std::string_view method)
{
    constexpr std::string_view methods[] = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT"};
    for (const std::string_view each : methods) {
        if (equal_ignoring_case(method, each)) {
            return true;
        }
    }
    return false;
}

// The index of the first ASCII control character, or npos.
constexpr std::size_t first_control(std::string_view text)
{
    for (std::size_t i = 0; i < text.size(); i++) {
        const auto byte = static_cast<std::uint8_t>(text[i]);
        if (byte < 0x20 || byte == 0x7F) {
            return i;
        }
    }
    return std::string_view::npos;
}

} // namespace idem::core
