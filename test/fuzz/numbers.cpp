// Numbers against exact arithmetic: what is written is the number itself (integers of OpenSSL, no rounding anywhere),
// strict text is what the nearest double reads back from, in as few digits as printf() needs.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <openssl/bn.h>

#include "core/decimal.hpp"
#include "json_document.hpp"
#include "require.hpp"

using namespace idem;
using namespace idem::test;

namespace {

// Digits and a power of ten, of text in JSON's grammar; the fuzzer's exponents are kept small enough to multiply out.
struct Exact {
    bool negative;
    std::string digits;
    long exponent;
};

Exact exact(const std::string &text)
{
    Exact number{text[0] == '-', "", 0};
    std::size_t i = number.negative ? 1 : 0;
    for (bool fraction = false; i < text.size() && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.') {
            fraction = true;
        } else {
            number.digits += text[i];
            number.exponent -= fraction ? 1 : 0;
        }
    }
    if (i < text.size()) {
        number.exponent += std::strtol(text.c_str() + i + 1, nullptr, 10);
    }
    return number;
}

// digits * 10^exponent
struct Integer {
    Integer(const std::string &digits, long exponent)
    {
        const std::string text = digits + std::string(static_cast<std::size_t>(exponent), '0');
        require(BN_dec2bn(&number, text.c_str()) > 0);
    }
    ~Integer() { BN_free(number); }
    Integer(const Integer &) = delete;
    Integer &operator=(const Integer &) = delete;
    BIGNUM *number = nullptr;
};

bool equal(const Exact &a, const Exact &b)
{
    const long least = std::min(a.exponent, b.exponent);
    const Integer left{a.digits, a.exponent - least};
    const Integer right{b.digits, b.exponent - least};
    const bool zero = BN_is_zero(left.number) && BN_is_zero(right.number);
    return BN_cmp(left.number, right.number) == 0 && (zero || a.negative == b.negative);
}

std::string lossless(const core::Decimal &number)
{
    std::string out;
    core::Writer writer{string_sink(out)};
    core::write_lossless(number, writer);
    writer.flush();
    return out;
}

std::optional<std::string> strict(const core::Decimal &number)
{
    std::string out;
    core::Writer writer{string_sink(out)};
    const bool good = core::write_strict(number, writer);
    writer.flush();
    return good ? std::optional<std::string>{out} : std::nullopt;
}

std::size_t significant(const std::string &text)
{
    std::string digits = exact(text).digits;
    digits.erase(0, digits.find_first_not_of('0'));
    const std::size_t last = digits.find_last_not_of('0');
    return last == std::string::npos ? 0 : last + 1;
}

void check_strict(const std::string &text, const core::Decimal &number)
{
    const double value = std::strtod(text.c_str(), nullptr); // correctly rounded in glibc
    const std::optional<std::string> out = strict(number);
    require(out.has_value() != std::isinf(value));
    if (!out) {
        return;
    }
    require(std::strtod(out->c_str(), nullptr) == value);
    if (value == 0) {
        require(*out == "0");
        return;
    }
    char shorter[40];
    const auto digits = static_cast<int>(significant(*out));
    require(digits >= 1 && digits <= 17);
    for (int count = 1; count < digits; count++) {
        std::snprintf(shorter, sizeof(shorter), "%.*e", count - 1, value);
        require(std::strtod(shorter, nullptr) != value);
    }
}

// The same number in the words of PostgreSQL's numeric: digits before the point in groups of four, then those after it.
core::Decimal by_words(const Exact &number, core::Arena &arena)
{
    std::string digits = number.digits;
    long exponent = number.exponent;
    while ((exponent % 4 + 4) % 4 != 0) { // the last group ends where a group may end
        digits += '0';
        exponent--;
    }
    digits.insert(0, (4 - digits.size() % 4) % 4, '0');
    std::vector<std::uint16_t> words;
    for (std::size_t i = 0; i < digits.size(); i += 4) {
        words.push_back(static_cast<std::uint16_t>(std::stoi(digits.substr(i, 4))));
    }
    const int weight = static_cast<int>(static_cast<long>(words.size()) - 1 + exponent / 4);
    return core::decimal_from_base10000(words.data(), words.size(), weight, number.negative, arena);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const std::string text{reinterpret_cast<const char *>(data), size};
    Heap heap;
    core::Arena arena = heap.arena();
    core::Decimal number{};
    if (!core::decimal_from_text(text, arena, number)) {
        return 0;
    }
    const std::string out = lossless(number);
    const std::size_t e = text.find_first_of("eE");
    if (e != std::string::npos && text.size() - e > 6) {
        return 0; // more zeros than it pays to multiply out
    }
    core::Decimal again{};
    require(core::decimal_from_text(out, arena, again) && lossless(again) == out);
    const Exact wanted = exact(text);
    require(equal(exact(out), wanted));
    require(lossless(by_words(wanted, arena)) == out);
    check_strict(text, number);
    return 0;
}
