// The status that a handler's SQL error becomes.
#include <gtest/gtest.h>

#include "core/error_status.hpp"
#include "core/status.hpp"

namespace idem::test {
namespace {

using namespace idem::core;

constexpr ErrorRules no_rules{nullptr, 0};

TEST(ErrorStatus, AsUsersOfPostgrestKnowIt)
{
    EXPECT_EQ(status_of_error("23505", no_rules), 409);
    EXPECT_EQ(status_of_error("23503", no_rules), 409);
    EXPECT_EQ(status_of_error("23502", no_rules), 400);
    EXPECT_EQ(status_of_error("23514", no_rules), 400);
    EXPECT_EQ(status_of_error("42501", no_rules), 403);
    EXPECT_EQ(status_of_error("P0002", no_rules), 404);
    EXPECT_EQ(status_of_error("P0001", no_rules), 400);
    for (const char *other : {"22012", "42P01", "XX000", "P0003", "23000", "53200", "00000"}) {
        EXPECT_EQ(status_of_error(other, no_rules), 500) << other;
    }
}

TEST(ErrorStatus, PtIsTheStatusItselfUnlessItIsNoError)
{
    EXPECT_EQ(status_of_error("PT402", no_rules), 402);
    EXPECT_EQ(status_of_error("PT300", no_rules), 300);
    EXPECT_EQ(status_of_error("PT599", no_rules), 599);
    for (const char *wrong : {"PT200", "PT299", "PT600", "PT999", "PT000", "PTabc", "PT4AA", "pt402"}) {
        EXPECT_EQ(status_of_error(wrong, no_rules), 500) << wrong;
        EXPECT_FALSE(speaks_to_client(wrong)) << wrong;
    }
    EXPECT_TRUE(speaks_to_client("PT402"));
    EXPECT_TRUE(speaks_to_client("P0001"));
    EXPECT_FALSE(speaks_to_client("P0002"));
}

TEST(ErrorStatus, ARuleWinsOverItsClassAndThatOverTheTable)
{
    static constexpr ErrorRule rules[] = {
        {{'2', '3'}, 2, 422}, {{'2', '3', '5', '0', '3'}, 5, 404}, {{'P', 'T', '4', '0', '2'}, 5, 400}};
    constexpr ErrorRules own{rules, 3};
    EXPECT_EQ(status_of_error("23505", own), 422);
    EXPECT_EQ(status_of_error("23503", own), 404);
    EXPECT_EQ(status_of_error("23000", own), 422);
    EXPECT_EQ(status_of_error("PT402", own), 400);
    EXPECT_EQ(status_of_error("PT404", own), 404);
    EXPECT_EQ(status_of_error("P0001", own), 400);
}

TEST(ErrorStatus, WhatIsRaisedIsNeverAnAnswer)
{
    for (const char *raised : {"40001", "40P01", "40", "57014", "57P01", "2D000", "ID001", "ID"}) {
        EXPECT_TRUE(always_raised(raised)) << raised;
    }
    for (const char *answered : {"23505", "P0001", "41", "2F000", "IX000"}) {
        EXPECT_FALSE(always_raised(answered)) << answered;
    }
}

TEST(ErrorStatus, APatternIsASqlstateOrAClass)
{
    for (const char *good : {"23505", "23", "PT402", "ZZ"}) {
        EXPECT_TRUE(error_pattern_valid(good)) << good;
    }
    for (const char *bad : {"", "2", "235", "2350", "235050", "2350a", "23 05", "p0001", "23\n"}) {
        EXPECT_FALSE(error_pattern_valid(bad)) << bad;
    }
}

TEST(ErrorStatus, EveryStatusHasWords)
{
    EXPECT_EQ(reason_phrase(409), "Conflict");
    EXPECT_EQ(reason_phrase(418), "Error");
    for (int status = min_error_status; status <= max_status; status++) {
        EXPECT_FALSE(reason_phrase(status).empty());
        EXPECT_FALSE(error_detail(status).empty());
    }
    EXPECT_TRUE(status_unstored(401));
    EXPECT_TRUE(status_unstored(403));
    EXPECT_FALSE(status_unstored(404));
}

} // namespace
} // namespace idem::test
