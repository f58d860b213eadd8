/*
 * UTF-8 (RFC 3629): validity, and the order of UTF-16 code units (RFC 8785, section 3.2.3) without a
 * conversion.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace idem::core {

// The length of the valid sequence at the start of `bytes`, 0 if there is none: no overlong form, no
// surrogate, nothing above U+10FFFF.
inline std::size_t utf8_sequence(std::string_view bytes)
{
    const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
    const auto continues = [&](std::size_t i) { return (at(i) & 0xC0) == 0x80; };
    const std::size_t size = bytes.size();
    if (size == 0) {
        return 0;
    }
    const std::uint8_t lead = at(0);
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        return size >= 2 && continues(1) ? 2 : 0;
    }
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (size < 3 || !continues(1) || !continues(2)) {
            return 0;
        }
        const bool overlong = lead == 0xE0 && at(1) < 0xA0;
        const bool surrogate = lead == 0xED && at(1) >= 0xA0;
        return overlong || surrogate ? 0 : 3;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        if (size < 4 || !continues(1) || !continues(2) || !continues(3)) {
            return 0;
        }
        const bool overlong = lead == 0xF0 && at(1) < 0x90;
        const bool too_large = lead == 0xF4 && at(1) >= 0x90;
        return overlong || too_large ? 0 : 4;
    }
    return 0;
}

inline bool utf8_valid(std::string_view bytes)
{
    while (!bytes.empty()) {
        const std::size_t length = utf8_sequence(bytes);
        if (length == 0) {
            return false;
        }
        bytes.remove_prefix(length);
    }
    return true;
}

/*
 * Byte order is code point order, and that differs from code unit order in one place: a character above
 * U+FFFF is a surrogate pair (D800 to DFFF) in UTF-16, so it comes before U+E000 to U+FFFF. In UTF-8 the one
 * has a lead byte from F0 on, the other EE or EF.
 */
inline int compare_utf16(std::string_view a, std::string_view b)
{
    const std::size_t common = a.size() < b.size() ? a.size() : b.size();
    std::size_t i = 0;
    while (i < common && a[i] == b[i]) {
        i++;
    }
    if (i == common) {
        return a.size() == b.size() ? 0 : (a.size() < b.size() ? -1 : 1);
    }
    const auto x = static_cast<std::uint8_t>(a[i]);
    const auto y = static_cast<std::uint8_t>(b[i]);
    if (x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0)) {
        return x >= 0xF0 ? -1 : 1;
    }
    return x < y ? -1 : 1;
}

} // namespace idem::core
