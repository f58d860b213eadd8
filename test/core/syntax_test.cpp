// Keys, headers, methods, statuses, pointers, problems, the lock's hash and the decision.
#include <gtest/gtest.h>

#include "core/decision.hpp"
#include "core/digest.hpp"
#include "core/header.hpp"
#include "core/key.hpp"
#include "core/method.hpp"
#include "core/problem.hpp"
#include "core/status.hpp"
#include "json_document.hpp"

namespace idem::test {
namespace {

using namespace idem::core;

TEST(Key, LengthFirstThenCharacters)
{
    std::size_t position = 0;
    EXPECT_EQ(check_key(std::string(15, 'k'), position), KeyFault::too_short);
    EXPECT_EQ(check_key(std::string(16, 'k'), position), KeyFault::none);
    EXPECT_EQ(check_key(std::string(256, 'k'), position), KeyFault::none);
    EXPECT_EQ(check_key(std::string(257, ' '), position), KeyFault::too_long);
    EXPECT_EQ(check_key("", position), KeyFault::too_short);
    EXPECT_EQ(check_key("../../etc/passwd-0", position), KeyFault::none);
    EXPECT_EQ(check_key("k-000000000000;DROP", position), KeyFault::none);
    for (int c = 0; c < 256; c++) {
        std::string key(20, 'k');
        key[7] = static_cast<char>(c);
        position = 0;
        const bool good = c >= 0x21 && c <= 0x7E;
        EXPECT_EQ(check_key(key, position), good ? KeyFault::none : KeyFault::bad_character) << c;
        EXPECT_EQ(position, good ? 0U : 7U);
    }
}

TEST(Problem, NamesTheFaultAndNotTheKey)
{
    Heap heap;
    Arena arena = heap.arena();
    EXPECT_EQ(key_fault_detail(KeyFault::too_short, 5, 0, arena),
              "The Idempotency-Key has a length of 5; it must be 16 to 256 characters.");
    EXPECT_EQ(key_fault_detail(KeyFault::bad_character, 20, 7, arena),
              "The Idempotency-Key must have visible ASCII characters only (0x21 to 0x7E); the one at "
              "position 8 is "
              "not.");
    EXPECT_EQ(problem_rejected.status, 400);
    EXPECT_EQ(problem_in_progress.status, 409);
    EXPECT_EQ(problem_mismatch.status, 422);
}

std::string header_key(std::string_view value)
{
    Heap heap;
    Arena arena = heap.arena();
    std::string_view key;
    const HeaderFault fault = parse_key_header(value, arena, key);
    return fault == HeaderFault::none ? std::string{key}
                                      : "fault: " + std::string{header_fault_detail(fault)};
}

TEST(Header, StringsAndBareValues)
{
    EXPECT_EQ(header_key("\"8e03978e-40d5-43e8\""), "8e03978e-40d5-43e8");
    EXPECT_EQ(header_key("8e03978e-40d5-43e8"), "8e03978e-40d5-43e8");
    EXPECT_EQ(header_key(" \t\"abcdefghijklmnop\" "), "abcdefghijklmnop");
    EXPECT_EQ(header_key("\"abcdefghijklmnop\";v=1"), "abcdefghijklmnop");
    EXPECT_EQ(header_key("\"abcdefghijklmnop\";v=\"a\\\"b;\"; w; *x-y.z_1=?1"), "abcdefghijklmnop");
    EXPECT_EQ(header_key("\"abc\\\"def\\\\\""), "abc\"def\\");
    EXPECT_EQ(header_key("\"\""), "");
    EXPECT_EQ(header_key(""), "");
    EXPECT_EQ(header_key(" "), "");
    EXPECT_EQ(header_key("with space"), "with space");
}

TEST(Header, Refusals)
{
    const auto expect_fault = [](std::string_view value, HeaderFault fault) {
        EXPECT_EQ(header_key(value), "fault: " + std::string{header_fault_detail(fault)}) << value;
    };
    expect_fault("\"abc\\ndefghijklmnop\"", HeaderFault::bad_escape);
    expect_fault("\"abcdefghijklmnop", HeaderFault::no_end_quote);
    expect_fault("\"abcdefghijklmnop\\", HeaderFault::no_end_quote);
    expect_fault("\"", HeaderFault::no_end_quote);
    expect_fault("\"abcdefghijklmnop\" x", HeaderFault::trailing_characters);
    expect_fault("\"abcdefghijklmnop\"x", HeaderFault::trailing_characters);
    expect_fault("\"abcdefghijklmnop\";", HeaderFault::trailing_characters);
    expect_fault("\"abcdefghijklmnop\";A=1", HeaderFault::trailing_characters);
    expect_fault("\"abcdefghijklmnop\";a=", HeaderFault::trailing_characters);
    expect_fault("\"abcdefghijklmnop\";a=\"b", HeaderFault::trailing_characters);
    expect_fault("\"a\", \"b\"", HeaderFault::list);
    expect_fault("abcdefghijklmnop, abcdefghijklmnop", HeaderFault::list);
    expect_fault("\"abc\x01\"", HeaderFault::bad_character);
    expect_fault("\"abc\xc3\xa9\"", HeaderFault::bad_character);
}

TEST(Header, FieldsOfAResponse)
{
    EXPECT_TRUE(field_name_valid("X-Request-Id"));
    EXPECT_TRUE(field_name_valid("a!#$%&'*+-.^_`|~0"));
    for (const char *name : {"", "a b", "a:", "a\n", "\xc3\xa9", "a\"", "(a)"}) {
        EXPECT_FALSE(field_name_valid(name)) << name;
    }
    EXPECT_FALSE(field_name_valid(std::string_view{"a\0b", 3}));
    EXPECT_TRUE(field_value_valid("a\tb \xc3\xa9"));
    EXPECT_FALSE(field_value_valid("a\r\nSet-Cookie: b"));
    EXPECT_FALSE(field_value_valid(std::string_view{"\0", 1}));
    EXPECT_TRUE(in_list("Set-Cookie, Date", "date"));
    EXPECT_TRUE(in_list(" Set-Cookie ,Date", "SET-COOKIE"));
    EXPECT_FALSE(in_list("Set-Cookie, Date", "Set"));
    EXPECT_FALSE(in_list("", "Date"));
}

TEST(Method, TokensWithoutCase)
{
    EXPECT_TRUE(method_valid("POST"));
    EXPECT_TRUE(method_valid(std::string(32, 'M')));
    for (const std::string_view method :
         {std::string_view{}, std::string_view{"POST /"}, std::string_view{"POST\n"},
          std::string_view{"P\0", 2}, std::string_view{"\xc4\xb0"}}) {
        EXPECT_FALSE(method_valid(method));
    }
    EXPECT_FALSE(method_valid(std::string(33, 'M')));
    for (const char *method : {"GET", "get", "Head", "OPTIONS", "trace", "PUT"}) {
        EXPECT_TRUE(idempotent_by_nature(method)) << method;
    }
    for (const char *method : {"POST", "PATCH", "DELETE", "GETS", "PU", "QUERY"}) {
        EXPECT_FALSE(idempotent_by_nature(method)) << method;
    }
    EXPECT_EQ(ascii_upper('i'), 'I');
    EXPECT_EQ(ascii_upper('\xfd'), '\xfd');
    EXPECT_EQ(first_control("/payments"), std::string_view::npos);
    EXPECT_EQ(first_control("/a\nb"), 2U);
    EXPECT_EQ(first_control("/\x7f"), 1U);
    EXPECT_EQ(first_control("/\xc3\xa9"), std::string_view::npos);
}

TEST(Status, FinalAndRetryable)
{
    for (int status = -1; status < 700; status++) {
        EXPECT_EQ(status_valid(status), status >= 200 && status <= 599) << status;
    }
    int retryable = 0;
    for (int status = 200; status < 600; status++) {
        retryable += status_retryable(status) ? 1 : 0;
    }
    EXPECT_EQ(retryable, 103);
    for (const int status : {408, 425, 429, 500, 599}) {
        EXPECT_TRUE(status_retryable(status)) << status;
    }
}

TEST(Pointer, SyntaxAndLists)
{
    Heap heap;
    Arena arena = heap.arena();
    Pointer pointer{};
    EXPECT_EQ(parse_pointer("", arena, pointer), PointerError::whole_document);
    EXPECT_EQ(parse_pointer("a", arena, pointer), PointerError::no_leading_slash);
    EXPECT_EQ(parse_pointer("/a~", arena, pointer), PointerError::bad_escape);
    EXPECT_EQ(parse_pointer("/a~2", arena, pointer), PointerError::bad_escape);
    EXPECT_EQ(parse_pointer("/a~1b//~01", arena, pointer), PointerError::none);
    ASSERT_EQ(pointer.count, 3U);
    EXPECT_EQ(pointer.tokens[0], "a/b");
    EXPECT_EQ(pointer.tokens[1], "");
    EXPECT_EQ(pointer.tokens[2], "~1");

    IgnoreList list{};
    std::string_view offender;
    EXPECT_EQ(parse_ignore_list(" /a , /b/c,,/d ", arena, list, offender), PointerError::none);
    EXPECT_EQ(list.count, 3U);
    EXPECT_EQ(parse_ignore_list("", arena, list, offender), PointerError::none);
    EXPECT_EQ(list.count, 0U);
    EXPECT_EQ(parse_ignore_list("/a,b", arena, list, offender), PointerError::no_leading_slash);
    EXPECT_EQ(offender, "b");
    std::string most;
    for (std::size_t i = 0; i < max_ignored_each; i++) {
        most += "/a,";
    }
    EXPECT_EQ(parse_ignore_list(most, arena, list, offender), PointerError::none);
    EXPECT_EQ(parse_ignore_list(most + "/a", arena, list, offender), PointerError::too_many);
}

// The setting is parsed into one block of the size that ignore_list_room() says.
TEST(Pointer, FitsTheRoomItAsksFor)
{
    for (const std::string text : {"", "/a", ",,,,", "/", "////////", "/timestamp,/request_id,/trace_id",
                                   "/a/b/c/d/e,/f , /g/~0~1", " ,/x, "}) {
        struct Block {
            std::size_t used;
            std::vector<char> memory;
        } block{0, std::vector<char>(ignore_list_room(text))};
        Arena arena{&block, [](void *context, std::size_t size) -> void * {
                        auto *room = static_cast<Block *>(context);
                        void *start = room->memory.data() + room->used;
                        room->used += (size + 15) / 16 * 16;
                        EXPECT_LE(room->used, room->memory.size());
                        return start;
                    }};
        IgnoreList list{};
        std::string_view offender;
        EXPECT_EQ(parse_ignore_list(text, arena, list, offender), PointerError::none) << text;
    }
}

// Computed with sha256sum; fixed for ever.
TEST(LockHash, FixedForEver)
{
    std::uint64_t hash = 0;
    ASSERT_TRUE(lock_hash("acme", "order-0000000000001", hash));
    EXPECT_EQ(hash, 0x28d4da95835ba673U);
    ASSERT_TRUE(lock_hash("t", "k", hash));
    EXPECT_EQ(hash, 0x4aaf91214958853aU);
    std::uint64_t other = 0;
    ASSERT_TRUE(lock_hash("a:b", "cdefghijklmnopqr", hash));
    ASSERT_TRUE(lock_hash("a", "b:cdefghijklmnopqr", other));
    EXPECT_NE(hash, other);
    ASSERT_TRUE(lock_hash("ab", "c", hash));
    ASSERT_TRUE(lock_hash("a", "bc", other));
    EXPECT_NE(hash, other);
}

TEST(Decision, EveryCase)
{
    int cases = 0;
    for (const RowStatus row :
         {RowStatus::none, RowStatus::in_progress, RowStatus::completed, RowStatus::failed_retryable}) {
        for (int bits = 0; bits < 16; bits++) {
            const Look look{row, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
            const Outcome outcome = decide(look);
            const bool free = row == RowStatus::none || (look.expired && !look.lease_live);
            const Outcome if_free = look.lock_held ? Outcome::claimed : Outcome::in_progress;
            Outcome expected = if_free;
            if (!free && !look.same_fingerprint) {
                expected = Outcome::mismatch;
            } else if (!free && row == RowStatus::completed) {
                expected = Outcome::replay;
            } else if (!free && row == RowStatus::in_progress && look.lease_live) {
                expected = Outcome::in_progress;
            }
            EXPECT_EQ(outcome, expected) << static_cast<int>(row) << " " << bits;
            // whatever else: nobody claims without the lock
            EXPECT_FALSE(outcome == Outcome::claimed && !look.lock_held);
            cases++;
        }
    }
    EXPECT_EQ(cases, 64);
    EXPECT_EQ(outcome_name(Outcome::in_progress), "in_progress");
}

} // namespace
} // namespace idem::test
