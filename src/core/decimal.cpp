#include "core/decimal.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace idem::core {

namespace {

// More digits than any decimal that lies exactly between two doubles has (767), so one more digit can stand
// for all that are cut off.
constexpr std::size_t significant_for_double = 800;

Decimal trimmed(bool negative, const char *digits, std::size_t count, std::int64_t point)
{
    while (count > 0 && *digits == '0') {
        digits++;
        count--;
        point--;
    }
    while (count > 0 && digits[count - 1] == '0') {
        count--;
    }
    if (count == 0) {
        return Decimal{false, digits, 0, 0};
    }
    return Decimal{negative, digits, count, point};
}

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

void put_zeros(std::int64_t count, Writer &out)
{
    for (; count > 0; count--) {
        out.put('0');
    }
}

void put_number(std::int64_t value, Writer &out)
{
    char text[24];
    const int size = std::snprintf(text, sizeof(text), "%lld", static_cast<long long>(value));
    out.put(std::string_view{text, static_cast<std::size_t>(size)});
}

// The double that DIGITS * 10^exponent rounds to; no decimal point, so no locale.
double to_double(const char *digits, std::size_t count, std::int64_t exponent)
{
    char text[significant_for_double + 40];
    std::memcpy(text, digits, count);
    std::snprintf(text + count, sizeof(text) - count, "e%lld", static_cast<long long>(exponent));
    return std::strtod(text, nullptr);
}

constexpr int max_double_digits = 17;

struct Shortest {
    char digits[max_double_digits + 1];
    std::size_t count;
    std::int64_t point;
};

// `value` rounded to `count` digits.
Shortest rounded(double value, int count)
{
    char text[max_double_digits + 16];
    std::snprintf(text, sizeof(text), "%.*e", count - 1, value);
    Shortest result{};
    const char *c = text;
    for (; *c != 'e'; c++) {
        if (is_digit(*c)) {
            result.digits[result.count++] = *c;
        }
    }
    result.point = std::strtol(c + 1, nullptr, 10) + 1;
    return result;
}

double value_of(const Shortest &number)
{
    return to_double(number.digits, number.count, number.point - static_cast<std::int64_t>(number.count));
}

void add_one_in_last_place(Shortest &number)
{
    std::size_t i = number.count;
    while (i > 0 && number.digits[i - 1] == '9') {
        number.digits[--i] = '0';
    }
    if (i > 0) {
        number.digits[i - 1]++;
    } else { // 999 is 1000
        number.digits[0] = '1';
        number.point++;
    }
}

// The fewest digits that read back as `value`, and of those the ones nearest to it (ECMA-262, 6.1.6.1.20).
Shortest shortest_digits(double value)
{
    for (int count = 1; count < max_double_digits; count++) {
        Shortest candidate = rounded(value, count);
        const double back = value_of(candidate);
        if (back == value) {
            return candidate;
        }
        // below a power of two the doubles lie closer: the digits above may read back where the nearest don't
        if (back < value) {
            add_one_in_last_place(candidate);
            if (value_of(candidate) == value) {
                return candidate;
            }
        }
    }
    return rounded(value, max_double_digits);
}

} // namespace

Decimal decimal_from_base10000(const std::uint16_t *words, std::size_t count, int weight, bool negative,
                               Arena &arena)
{
    constexpr std::size_t word_digits = 4;
    char *digits = allocate<char>(arena, count * word_digits);
    for (std::size_t i = 0; i < count; i++) {
        unsigned int word = words[i];
        for (std::size_t j = word_digits; j > 0; j--) {
            digits[i * word_digits + j - 1] = static_cast<char>('0' + word % 10);
            word /= 10;
        }
    }
    return trimmed(negative, digits, count * word_digits,
                   (static_cast<std::int64_t>(weight) + 1) * static_cast<std::int64_t>(word_digits));
}

bool decimal_from_text(std::string_view text, Arena &arena, Decimal &out)
{
    const char *c = text.data();
    const char *end = c + text.size();
    const auto at_digit = [&] { return c < end && is_digit(*c); };

    const bool negative = c < end && *c == '-';
    if (negative) {
        c++;
    }
    if (!at_digit() || (*c == '0' && c + 1 < end && is_digit(c[1]))) {
        return false;
    }
    char *digits = allocate<char>(arena, text.size());
    std::size_t count = 0;
    for (; at_digit(); c++) {
        digits[count++] = *c;
    }
    auto point = static_cast<std::int64_t>(count);
    if (c < end && *c == '.') {
        c++;
        if (!at_digit()) {
            return false;
        }
        for (; at_digit(); c++) {
            digits[count++] = *c;
        }
    }
    if (c < end && (*c == 'e' || *c == 'E')) {
        c++;
        const bool minus = c < end && *c == '-';
        if (c < end && (*c == '+' || *c == '-')) {
            c++;
        }
        if (!at_digit()) {
            return false;
        }
        constexpr std::int64_t limit = 1000000000000000000;
        std::int64_t exponent = 0;
        for (; at_digit(); c++) {
            if (exponent >= limit / 10) {
                return false;
            }
            exponent = exponent * 10 + (*c - '0');
        }
        point += minus ? -exponent : exponent;
    }
    out = trimmed(negative, digits, count, point);
    return c == end;
}

void write_lossless(const Decimal &number, Writer &out)
{
    if (number.count == 0) {
        out.put('0');
        return;
    }
    if (number.negative) {
        out.put('-');
    }
    // the names of ECMA-262: k digits, of which n stand before the point
    const std::string_view digits{number.digits, number.count};
    const auto k = static_cast<std::int64_t>(number.count);
    const std::int64_t n = number.point;
    const auto from = [&](std::int64_t start) {
        return std::string_view{digits.data() + start, static_cast<std::size_t>(k - start)};
    };
    if (k <= n && n <= 21) {
        out.put(digits);
        put_zeros(n - k, out);
    } else if (0 < n && n <= 21) {
        out.put(std::string_view{digits.data(), static_cast<std::size_t>(n)});
        out.put('.');
        out.put(from(n));
    } else if (-6 < n && n <= 0) {
        out.put("0.");
        put_zeros(-n, out);
        out.put(digits);
    } else {
        out.put(digits.front());
        if (k > 1) {
            out.put('.');
            out.put(from(1));
        }
        out.put('e');
        out.put(n > 0 ? '+' : '-');
        put_number(n > 0 ? n - 1 : 1 - n, out);
    }
}

bool write_strict(const Decimal &number, Writer &out)
{
    if (number.count == 0) {
        out.put('0');
        return true;
    }
    char digits[significant_for_double + 1];
    std::size_t count = number.count;
    if (count > significant_for_double) {
        std::memcpy(digits, number.digits, significant_for_double);
        digits[significant_for_double] = '1';
        count = significant_for_double + 1;
    } else {
        std::memcpy(digits, number.digits, count);
    }
    const double value = to_double(digits, count, number.point - static_cast<std::int64_t>(count));
    if (std::isinf(value)) {
        return false;
    }
    if (value == 0) {
        out.put('0');
        return true;
    }
    const Shortest shortest = shortest_digits(value);
    write_lossless(trimmed(number.negative, shortest.digits, shortest.count, shortest.point), out);
    return true;
}

} // namespace idem::core
