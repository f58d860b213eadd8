// Path patterns, and keys that are derived for other systems.

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/derived_key.hpp"
#include "core/path_pattern.hpp"

namespace idem::test {
namespace {

using namespace idem::core;

// Memory that lives as long as the test.
class TestArena {
public:
    TestArena() = default;
    TestArena(const TestArena &) = delete;
    TestArena &operator=(const TestArena &) = delete;
    ~TestArena()
    {
        for (void *block : blocks_) {
            std::free(block);
        }
    }
    Arena arena()
    {
        return Arena{this, [](void *self, std::size_t size) {
                         void *block = std::malloc(size > 0 ? size : 1);
                         static_cast<TestArena *>(self)->blocks_.push_back(block);
                         return block;
                     }};
    }

private:
    std::vector<void *> blocks_;
};

struct Entry {
    std::string method;
    std::string pattern;
};

// The pattern that wins, or "".
std::string winner(const std::vector<Entry> &entries, std::string_view method, std::string_view path)
{
    TestArena memory;
    Arena arena = memory.arena();
    PatternTree tree;
    std::size_t segments = 0;
    for (const Entry &entry : entries) {
        EXPECT_EQ(check_pattern(entry.pattern), PatternFault::none) << entry.pattern;
        segments += PatternTree::segments_of(entry.pattern);
    }
    tree.reserve(arena, segments);
    for (std::size_t i = 0; i < entries.size(); i++) {
        tree.add(entries[i].method, entries[i].pattern, static_cast<int>(i));
    }
    const int match = tree.match(method, path);
    return match == PatternTree::no_match ? "" : entries[static_cast<std::size_t>(match)].pattern;
}

TEST(PathPattern, Syntax)
{
    for (const char *good : {"/", "/payments", "/payments/", "/payments/{id}", "/{a}/{b}", "/**", "/a/**",
                             "/a.b-c_d~e", "/%2F", "/a:b", "/payments/{payment_id}/refunds", "/\xc3\xa9"}) {
        EXPECT_EQ(check_pattern(good), PatternFault::none) << good;
    }
    EXPECT_EQ(check_pattern(""), PatternFault::no_leading_slash);
    EXPECT_EQ(check_pattern("payments"), PatternFault::no_leading_slash);
    EXPECT_EQ(check_pattern("//"), PatternFault::empty_segment);
    EXPECT_EQ(check_pattern("/a//b"), PatternFault::empty_segment);
    for (const char *bad :
         {"/{}", "/{", "/}", "/{a", "/a}", "/a{b}", "/{a}b", "/{a}{b}", "/{{a}}", "/{a{b}"}) {
        EXPECT_EQ(check_pattern(bad), PatternFault::bad_variable) << bad;
    }
    for (const char *bad : {"/*", "/a*", "/**/a", "/***", "/a**", "/*/a"}) {
        EXPECT_EQ(check_pattern(bad), PatternFault::bad_wildcard) << bad;
    }
    for (const char *bad : {"/a b", "/a\n", "/a?b", "/a#b", "/\x7f"}) {
        EXPECT_EQ(check_pattern(bad), PatternFault::bad_character) << bad;
    }
    EXPECT_EQ(check_pattern("/" + std::string(1023, 'a')), PatternFault::none);
    EXPECT_EQ(check_pattern("/" + std::string(1024, 'a')), PatternFault::too_long);
    for (const PatternFault fault :
         {PatternFault::no_leading_slash, PatternFault::too_long, PatternFault::empty_segment,
          PatternFault::bad_variable, PatternFault::bad_wildcard, PatternFault::bad_character}) {
        EXPECT_STRNE(pattern_fault_detail(fault), "");
    }
    EXPECT_STREQ(pattern_fault_detail(PatternFault::none), "");
}

TEST(PathPattern, QueryAndSlashAtTheEnd)
{
    const std::vector<Entry> one{{"POST", "/payments/{id}"}};
    for (const char *path : {"/payments/1", "/payments/1/", "/payments/1?a=/b/c", "/payments/1/?",
                             "/payments/1#x", "/payments/%2F"}) {
        EXPECT_EQ(winner(one, "POST", path), "/payments/{id}") << path;
    }
    for (const char *path : {"/payments", "/payments/", "/payments//", "/payments/1/2", "/Payments/1",
                             "payments/1", "", "/", "//payments/1", "?/payments/1"}) {
        EXPECT_EQ(winner(one, "POST", path), "") << path;
    }
    EXPECT_EQ(winner(one, "PUT", "/payments/1"), "");
    EXPECT_EQ(winner(one, "payments", "/1"), "");
    EXPECT_EQ(winner({}, "POST", "/payments/1"), "");
}

TEST(PathPattern, Wildcard)
{
    const std::vector<Entry> below{{"POST", "/a/**"}};
    for (const char *path : {"/a", "/a/", "/a/b", "/a/b/c", "/a/b/", "/a//b", "/a?x"}) {
        EXPECT_EQ(winner(below, "POST", path), "/a/**") << path;
    }
    EXPECT_EQ(winner(below, "POST", "/ab"), "");
    EXPECT_EQ(winner(below, "POST", "/"), "");
    const std::vector<Entry> all{{"POST", "/**"}};
    EXPECT_EQ(winner(all, "POST", "/"), "/**");
    EXPECT_EQ(winner(all, "POST", "/a/b"), "/**");
    EXPECT_EQ(winner({{"POST", "/"}}, "POST", "/"), "/");
    EXPECT_EQ(winner({{"POST", "/"}}, "POST", "/?q"), "/");
    EXPECT_EQ(winner({{"POST", "/"}}, "POST", "/a"), "");
}

TEST(PathPattern, TheMostLiteralWins)
{
    const std::vector<Entry> entries{
        {"POST", "/**"},          {"POST", "/{x}"},           {"POST", "/payments"},
        {"POST", "/payments/**"}, {"POST", "/payments/{id}"}, {"POST", "/payments/search"},
        {"POST", "/{x}/search"},  {"POST", "/{x}/{y}"},       {"PUT", "/payments/{id}"}};
    EXPECT_EQ(winner(entries, "POST", "/payments"), "/payments");
    EXPECT_EQ(winner(entries, "POST", "/orders"), "/{x}");
    EXPECT_EQ(winner(entries, "POST", "/payments/search"), "/payments/search");
    EXPECT_EQ(winner(entries, "POST", "/payments/7"), "/payments/{id}");
    EXPECT_EQ(winner(entries, "POST", "/orders/search"), "/{x}/search");
    EXPECT_EQ(winner(entries, "POST", "/orders/7"), "/{x}/{y}");
    EXPECT_EQ(winner(entries, "POST", "/payments/7/refunds"), "/payments/**");
    EXPECT_EQ(winner(entries, "POST", "/orders/7/refunds"), "/**");
    EXPECT_EQ(winner(entries, "PUT", "/payments/search"), "/payments/{id}");
    // more literal segments before an earlier one; of as many, the one that is literal first
    EXPECT_EQ(winner({{"POST", "/a/**"}, {"POST", "/{x}/b/c"}}, "POST", "/a/b/c"), "/{x}/b/c");
    EXPECT_EQ(winner({{"POST", "/{x}/b"}, {"POST", "/a/{y}"}}, "POST", "/a/b"), "/a/{y}");
    EXPECT_EQ(winner({{"POST", "/a/**"}, {"POST", "/a/{y}"}}, "POST", "/a/b"), "/a/{y}");
    // a branch that leads nowhere is left again
    EXPECT_EQ(winner({{"POST", "/a/b/c"}, {"POST", "/a/{x}/d"}, {"POST", "/{y}/b/e"}}, "POST", "/a/b/e"),
              "/{y}/b/e");
}

TEST(PathPattern, ManyOperations)
{
    std::vector<Entry> entries;
    for (int i = 0; i < 500; i++) {
        entries.push_back({"POST", "/service" + std::to_string(i) + "/{id}/actions/" + std::to_string(i)});
    }
    for (int i = 0; i < 500; i += 7) {
        const std::string n = std::to_string(i);
        EXPECT_EQ(winner(entries, "POST", "/service" + n + "/x/actions/" + n),
                  entries[static_cast<std::size_t>(i)].pattern);
        EXPECT_EQ(winner(entries, "POST", "/service" + n + "/x/actions/" + std::to_string(i + 1)), "");
    }
}

std::string derived(std::string_view tenant, std::string_view key, std::string_view step)
{
    TestArena memory;
    Arena arena = memory.arena();
    char out[derived_key_size];
    EXPECT_EQ(derive_key(tenant, key, step, arena, out), DeriveError::none);
    return {out, sizeof(out)};
}

// Computed with Python: uuid.uuid5(uuid.UUID("75385ef7-..."), '["acme","order-0000000000001","charge"]')
TEST(DerivedKey, IsUuid5OfTheCanonicalArray)
{
    EXPECT_STREQ(derived_key_namespace, "75385ef7-73fc-47a5-8fc5-631217e69aca");
    EXPECT_EQ(derived("acme", "order-0000000000001", "charge"), "dc120b43-ed6c-5c34-b7b5-e8addc8bd940");
    EXPECT_EQ(derived("acme", "order-0000000000001", "mail"), "96539bc6-3c97-5e3e-b49e-7e83422c45c6");
    EXPECT_EQ(derived("a\"b", "key-\\0000000000001", "\xc3\xa9"), "f4627372-e281-5c13-b98f-b3bc3f69f9b0");
    // no two triples share an input
    EXPECT_NE(derived("a", "b\",\"c", "d"), derived("a", "b", "c\",\"d"));
    EXPECT_EQ(derived(std::string(256, '\x01'), std::string(256, '"'), std::string(256, '\x1f')).size(), 36U);

    TestArena memory;
    Arena arena = memory.arena();
    char out[derived_key_size];
    EXPECT_EQ(derive_key("a", "b", "\xff", arena, out), DeriveError::invalid_utf8);
}

} // namespace
} // namespace idem::test
