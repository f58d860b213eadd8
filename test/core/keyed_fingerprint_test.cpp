// HMAC-SHA-256 against RFC 4231, and what a fingerprint under a secret depends on.
#include <gtest/gtest.h>

#include <cstring>

#include "core/keyed_fingerprint.hpp"

namespace idem::test {
namespace {

using namespace idem::core;

std::string hex(const std::uint8_t *bytes, std::size_t size)
{
    std::string text;
    for (std::size_t i = 0; i < size; i++) {
        char digits[3];
        std::snprintf(digits, sizeof(digits), "%02x", bytes[i]);
        text += digits;
    }
    return text;
}

std::string hmac(std::string_view secret, std::string_view data)
{
    std::uint8_t out[digest_size];
    HmacSha256 code;
    EXPECT_TRUE(code.start(secret));
    EXPECT_TRUE(code.update(data.data(), data.size() / 2));
    EXPECT_TRUE(code.update(data.data() + data.size() / 2, data.size() - data.size() / 2));
    EXPECT_TRUE(code.finish(out));
    return hex(out, sizeof(out));
}

TEST(HmacSha256, Rfc4231)
{
    EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
              "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    EXPECT_EQ(hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
              "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

struct Bytes {
    std::uint8_t bytes[digest_size];
};

std::string keyed(std::string_view secret, char plain, std::string_view tenant, std::string_view key,
                  Bytes *out = nullptr)
{
    Bytes fingerprint{};
    std::memset(fingerprint.bytes, plain, sizeof(fingerprint.bytes));
    Bytes stored{};
    EXPECT_TRUE(keyed_fingerprint(secret, fingerprint.bytes, tenant, key, stored.bytes));
    if (out != nullptr) {
        *out = stored;
    }
    return hex(stored.bytes, sizeof(stored.bytes));
}

const std::string one(32, 'a');
const std::string two(32, 'b');

// Fixed for ever: rows are compared with it for as long as they live. Computed with Python's hmac module.
TEST(KeyedFingerprint, KnownValue)
{
    EXPECT_EQ(keyed(one, '\x01', "acme", "key-0000000000000001"),
              "43e4abc8ddb45fe6834f4164060d06b52d37b2947c5d84e9d606414ba9d8b3bc");
}

TEST(KeyedFingerprint, DependsOnEachPart)
{
    const std::string base = keyed(one, 'x', "acme", "key-0000000000000001");
    EXPECT_EQ(base, keyed(one, 'x', "acme", "key-0000000000000001"));
    for (const std::string &other :
         {keyed(two, 'x', "acme", "key-0000000000000001"), keyed(one, 'y', "acme", "key-0000000000000001"),
          keyed(one, 'x', "acm", "ekey-0000000000000001"), keyed(one, 'x', "acme", "key-0000000000000002")}) {
        EXPECT_NE(base.substr(8), other.substr(8));
    }
    EXPECT_EQ(base.substr(0, 8),
              keyed(one, 'y', "other", "key-0000000000000002").substr(0, 8)); // the secret's id
    EXPECT_NE(base.substr(0, 8), keyed(two, 'x', "acme", "key-0000000000000001").substr(0, 8));
}

TEST(KeyedFingerprint, FindsItsSecret)
{
    SecretList list{};
    std::size_t line = 0;
    const std::string text = two + "\n" + one + "\n";
    ASSERT_EQ(parse_secrets(text, list, line), SecretFault::none);
    Bytes stored{};
    (void)keyed(one, 'x', "acme", "key-0000000000000001", &stored);
    const std::string_view *found = nullptr;
    ASSERT_TRUE(secret_of(list, stored.bytes, found));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(*found, one);
    (void)keyed(std::string(40, 'c'), 'x', "acme", "key-0000000000000001", &stored);
    ASSERT_TRUE(secret_of(list, stored.bytes, found));
    EXPECT_EQ(found, nullptr);
}

TEST(Secrets, OneALine)
{
    SecretList list{};
    std::size_t line = 0;
    EXPECT_EQ(parse_secrets("", list, line), SecretFault::no_secret);
    EXPECT_EQ(parse_secrets("\n\r\n", list, line), SecretFault::no_secret);
    EXPECT_EQ(parse_secrets(one, list, line), SecretFault::none);
    EXPECT_EQ(list.count, 1U);
    const std::string both = "\n" + one + "\r\n\n" + two; // the list points into it
    EXPECT_EQ(parse_secrets(both, list, line), SecretFault::none);
    ASSERT_EQ(list.count, 2U);
    EXPECT_EQ(list.secrets[0], one);
    EXPECT_EQ(list.secrets[1], two);
    EXPECT_EQ(parse_secrets(one + "\n" + std::string(31, 'c') + "\n", list, line), SecretFault::too_short);
    EXPECT_EQ(line, 2U);
    EXPECT_EQ(parse_secrets("# the payments secret, made in 2026 by me\n" + one, list, line),
              SecretFault::blank);
    EXPECT_EQ(line, 1U);
    EXPECT_EQ(parse_secrets(one + " \n", list, line), SecretFault::blank);
    EXPECT_EQ(parse_secrets(one + "\n" + two + "\t", list, line), SecretFault::blank);
    EXPECT_EQ(line, 2U);
    const std::string longest(1024, 'd');
    EXPECT_EQ(parse_secrets(longest, list, line), SecretFault::none);
    EXPECT_EQ(parse_secrets(longest + "d", list, line), SecretFault::too_long);
    std::string many;
    for (int i = 0; i < 8; i++) {
        many += one + "\n";
    }
    EXPECT_EQ(parse_secrets(many, list, line), SecretFault::none);
    EXPECT_EQ(parse_secrets(many + one, list, line), SecretFault::too_many);
    EXPECT_EQ(line, 9U);
}

TEST(Secrets, Retired)
{
    SecretList list{};
    std::size_t line = 0;
    EXPECT_EQ(secret_in_use(list), nullptr);
    const std::string both = one + "\n" + two; // the list points into it
    ASSERT_EQ(parse_secrets(both, list, line), SecretFault::none);
    ASSERT_NE(secret_in_use(list), nullptr);
    EXPECT_EQ(*secret_in_use(list), one);
    const std::string retired = "plain\r\n" + one + "\n" + two; // the list points into it
    ASSERT_EQ(parse_secrets(retired, list, line), SecretFault::none);
    EXPECT_EQ(secret_in_use(list), nullptr);
    ASSERT_EQ(list.count, 2U);
    Bytes stored{};
    (void)keyed(two, 'x', "acme", "key-0000000000000001", &stored);
    const std::string_view *found = nullptr;
    ASSERT_TRUE(secret_of(list, stored.bytes, found));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(*found, two);
    EXPECT_EQ(parse_secrets("plain\n", list, line),
              SecretFault::no_secret); // nothing to compare with is an oversight
    EXPECT_EQ(parse_secrets("plain\nplain\n" + one, list, line), SecretFault::too_short);
    EXPECT_EQ(parse_secrets(one + "\nplain\n", list, line), SecretFault::too_short);
    EXPECT_EQ(line, 2U);
    EXPECT_EQ(parse_secrets("Plain\n" + one, list, line), SecretFault::too_short);
    ASSERT_EQ(parse_secrets(one, list, line), SecretFault::none);
    EXPECT_NE(secret_in_use(list), nullptr);
}

} // namespace
} // namespace idem::test
