/*
 * The syntax of an idempotency key: 16 to 256 visible ASCII characters. It is opaque, and case counts.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace idem::core {

constexpr std::size_t min_key_size = 16;
constexpr std::size_t max_key_size = 256;

enum class KeyFault : std::uint8_t { none, too_short, too_long, bad_character };

// Length first, then the characters from the left; `position` is the index of a bad one.
constexpr KeyFault check_key(std::string_view key, std::size_t &position)
{
    if (key.size() < min_key_size) {
        return KeyFault::too_short;
    }
    if (key.size() > max_key_size) {
        return KeyFault::too_long;
    }
    for (std::size_t i = 0; i < key.size(); i++) {
        if (key[i] < 0x21 || key[i] > 0x7E) {
            position = i;
            return KeyFault::bad_character;
        }
    }
    return KeyFault::none;
}

} // namespace idem::core
