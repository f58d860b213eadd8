// Numbers: exact digits, ECMAScript's layout, and the nearest double's shortest digits.
#include <charconv>
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "json_document.hpp"

namespace idem::test {
namespace {

using core::Numbers;

std::string strict(std::string_view number)
{
    return canonical_text(number, Numbers::strict);
}

std::string lossless(std::string_view number)
{
    return canonical_text(number);
}

// ECMA-262 Number::toString from the digits of a library that is known to pick them right.
std::string ecmascript(double value)
{
    if (value == 0) {
        return "0";
    }
    char text[64];
    const char *end =
        std::to_chars(text, text + sizeof(text), std::fabs(value), std::chars_format::scientific).ptr;
    std::string digits;
    const char *c = text;
    for (; *c != 'e'; c++) {
        if (*c != '.') {
            digits += *c;
        }
    }
    const int n = std::stoi(std::string(c + 1, end)) + 1;
    const int k = static_cast<int>(digits.size());
    std::string out;
    if (k <= n && n <= 21) {
        out = digits + std::string(static_cast<std::size_t>(n - k), '0');
    } else if (0 < n && n <= 21) {
        out =
            digits.substr(0, static_cast<std::size_t>(n)) + "." + digits.substr(static_cast<std::size_t>(n));
    } else if (-6 < n && n <= 0) {
        out = "0." + std::string(static_cast<std::size_t>(-n), '0') + digits;
    } else {
        out = digits.substr(0, 1) + (k > 1 ? "." + digits.substr(1) : "") + (n > 0 ? "e+" : "e-") +
              std::to_string(std::abs(n - 1));
    }
    return (value < 0 ? "-" : "") + out;
}

void expect_strict(double value)
{
    char text[64];
    std::snprintf(text, sizeof(text), "%.17g", value);
    ASSERT_EQ(strict(text), ecmascript(value)) << text;
}

TEST(Strict, EveryPowerOfTwoAndItsNeighbours)
{
    for (int exponent = -1074; exponent <= 1023; exponent++) {
        const double power = std::ldexp(1.0, exponent);
        expect_strict(power);
        expect_strict(std::nextafter(power, 0));
        expect_strict(std::nextafter(power, INFINITY));
    }
}

TEST(Strict, RandomDoubles)
{
    std::mt19937_64 random{20261201};
    for (int i = 0; i < 200000; i++) {
        const std::uint64_t bits = random();
        double value = 0;
        std::memcpy(&value, &bits, sizeof(value));
        if (std::isfinite(value)) {
            expect_strict(value);
        }
    }
    for (int i = 0; i < 20000; i++) { // subnormal, and with few digits
        const std::uint64_t bits = random() >> 12;
        double value = 0;
        std::memcpy(&value, &bits, sizeof(value));
        expect_strict(value);
        expect_strict(static_cast<double>(random() % 100000) *
                      std::pow(10, static_cast<int>(random() % 40) - 20));
    }
}

TEST(Strict, WhereLibrariesGoWrong)
{
    EXPECT_EQ(strict("1e23"), "1e+23");
    EXPECT_EQ(strict("473e19"), "4.73e+21");
    EXPECT_EQ(strict("123456789012345680000"), "123456789012345680000");
    EXPECT_EQ(strict("295147905179352825856"), "295147905179352830000");
    EXPECT_EQ(strict("1424953923781206.25"), "1424953923781206.2");
    EXPECT_EQ(strict("4.9e-324"), "5e-324");
    EXPECT_EQ(strict("2.2250738585072014e-308"), "2.2250738585072014e-308");
    EXPECT_EQ(strict("1e-400"), "0");
    EXPECT_EQ(strict("-1e-400"), "0");
    EXPECT_EQ(strict("1.7976931348623157e308"), "1.7976931348623157e+308");
    EXPECT_EQ(strict("1e309"), "error");
    EXPECT_EQ(strict("-1e309"), "error");
    // exactly between two doubles, and a digit beyond: 800 digits are not enough to cut at carelessly
    const std::string half = "9007199254740993";
    EXPECT_EQ(strict(half), "9007199254740992");
    EXPECT_EQ(strict(half + "." + std::string(2000, '0') + "1"), "9007199254740994");
}

TEST(Lossless, ExactDigits)
{
    for (const char *number :
         {"18446744073709551615", "9223372036854775807", "-9223372036854775808", "1234567890123456789",
          "9007199254740992", "9007199254740993", "295147905179352825856", "295147905179352830000",
          "12345678901234567.89", "12345678901234567.88", "1424953923781206.25", "4.9e-324", "1e+131071",
          "1e-16383", "999999999999999900000", "123456789012345680000", "-1e-7"}) {
        EXPECT_EQ(lossless(number), number);
    }
}

TEST(Lossless, LayoutThresholds)
{
    EXPECT_EQ(lossless("0.000001"), "0.000001");
    EXPECT_EQ(lossless("0.0000001"), "1e-7");
    EXPECT_EQ(lossless("1.23456e-6"), "0.00000123456");
    EXPECT_EQ(lossless("9.999999999999997e-7"), "9.999999999999997e-7");
    EXPECT_EQ(lossless("1e20"), "100000000000000000000");
    EXPECT_EQ(lossless("1e21"), "1e+21");
    EXPECT_EQ(lossless("1234567890123456800000"), "1.2345678901234568e+21");
    EXPECT_EQ(lossless("1E30"), "1e+30");
    EXPECT_EQ(lossless("1e-0007"), "1e-7");
    EXPECT_EQ(lossless("1e0005"), "100000");
}

TEST(Lossless, ScaleIsNotValue)
{
    for (const char *one : {"1", "1.0", "1.00", "1e0", "10e-1", "100e-2", "0.1e1", "1E+0"}) {
        EXPECT_EQ(lossless(one), "1") << one;
    }
    for (const char *zero : {"0", "-0", "0.0", "-0.0", "0e5", "-0e-5"}) {
        EXPECT_EQ(lossless(zero), "0") << zero;
    }
    EXPECT_EQ(lossless("1.10"), "1.1");
    EXPECT_EQ(lossless("-42.0"), "-42");
    EXPECT_EQ(lossless("1000000"), "1000000");
}

TEST(Lossless, TheTextReadsBackAsItself)
{
    std::mt19937_64 random{1};
    for (int i = 0; i < 100000; i++) {
        std::string digits = std::to_string(random() % 1000000);
        const std::string text = digits + "." + std::to_string(random() % 100000) + "e" +
                                 std::to_string(static_cast<int>(random() % 60) - 30);
        const std::string once = lossless(text);
        ASSERT_EQ(lossless(once), once) << text;
    }
}

TEST(Decimal, FromPostgresWireForm)
{
    std::mt19937_64 random{2};
    for (int i = 0; i < 20000; i++) {
        const std::size_t count = random() % 8;
        const int weight = static_cast<int>(random() % 20) - 10;
        std::vector<std::uint16_t> words;
        std::string text;
        for (std::size_t j = 0; j < count; j++) {
            words.push_back(static_cast<std::uint16_t>(random() % 3 == 0 ? 0 : random() % 10000));
            const std::string four = std::to_string(10000 + words.back()).substr(1);
            text += four;
        }
        const std::size_t first = text.find_first_not_of('0');
        const std::string number = (first == std::string::npos ? "0" : text.substr(first)) + "e" +
                                   std::to_string(4 * (weight + 1 - static_cast<int>(count)));
        Heap heap;
        core::Arena arena = heap.arena();
        const core::Decimal decimal = core::decimal_from_base10000(words.data(), count, weight, false, arena);
        std::string out;
        core::Writer writer{string_sink(out)};
        core::write_lossless(decimal, writer);
        writer.flush();
        ASSERT_EQ(out, lossless(number)) << number;
    }
}

TEST(Decimal, RefusesWhatIsNoJsonNumber)
{
    for (const char *text : {"", "-", "+1", "01", "-01", "1.", ".5", "1e", "1e+", "0x10", "1 ", "1e5.", "NaN",
                             "--1", "1e9999999999999999999999"}) {
        Heap heap;
        core::Arena arena = heap.arena();
        core::Decimal out{};
        EXPECT_FALSE(core::decimal_from_text(text, arena, out)) << text;
    }
}

TEST(Decimal, ExponentsDoNotExpand)
{
    std::string text = "[";
    for (int i = 0; i < 9000; i++) {
        text += i == 0 ? "1e131071" : ",1e131071";
    }
    EXPECT_EQ(canonical_text(text + "]").size(), 90001U);
}

} // namespace
} // namespace idem::test
