/*
 * Exact decimal numbers and their text.
 *
 * Lossless: the exact digits in the layout of ECMA-262 Number::toString, without a double in between, so that
 * two numbers share a text if and only if they are equal. Strict: the text of the nearest double, as RFC 8785
 * (section 3.2.2.3) asks for.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/arena.hpp"
#include "core/sink.hpp"

namespace idem::core {

// 0.d1d2d3... * 10^point. No leading and no trailing zeros; zero has no digits and is never negative.
struct Decimal {
    bool negative;
    const char *digits;
    std::size_t count;
    std::int64_t point;
};
static_assert(std::is_trivially_destructible_v<Decimal>);

// PostgreSQL's numeric wire form: the sum of words[i] * 10000^(weight - i). Takes 4 * count bytes of the
// arena.
Decimal decimal_from_base10000(const std::uint16_t *words, std::size_t count, int weight, bool negative,
                               Arena &arena);

// A number in JSON's grammar (RFC 8259, section 6); false if it is none, or its exponent leaves 18 digits.
bool decimal_from_text(std::string_view text, Arena &arena, Decimal &out);

void write_lossless(const Decimal &number, Writer &out);

// False, and nothing written, where a double would overflow. Underflow is 0.
bool write_strict(const Decimal &number, Writer &out);

} // namespace idem::core
