// Canonical JSON: the published vectors, names, strings, numbers, depth and size, ignored members.
#include <fstream>

#include <gtest/gtest.h>

#include "core/digest.hpp"
#include "core/fingerprint.hpp"
#include "json_document.hpp"

namespace idem::test {
namespace {

using core::Numbers;

struct Vector {
    JsonDocument line;

    // A member as text; none for null and for a member that is not there.
    std::optional<std::string> get(std::string_view name) const
    {
        const Value *root = line.root();
        for (const auto &[member, value] : root->members) {
            if (member == name && value->kind == core::Kind::string) {
                return value->text;
            }
        }
        return {};
    }
};

std::vector<Vector> vectors(const std::string &file)
{
    std::vector<Vector> result;
    std::ifstream in{std::string{VECTORS} + "/" + file};
    for (std::string line; std::getline(in, line);) {
        std::optional<JsonDocument> document = JsonDocument::parse(line);
        EXPECT_TRUE(document) << line;
        if (document) {
            result.push_back(Vector{std::move(*document)});
        }
    }
    return result;
}

TEST(Vectors, CanonicalJson)
{
    const std::vector<Vector> lines = vectors("jcs.jsonl");
    ASSERT_EQ(lines.size(), 151U);
    for (const Vector &line : lines) {
        EXPECT_EQ(canonical_text(*line.get("input"), Numbers::strict), *line.get("canonical"))
            << *line.get("name");
        EXPECT_EQ(canonical_text(*line.get("input")), *line.get("lossless")) << *line.get("name");
    }
}

TEST(Vectors, Fingerprints)
{
    const std::vector<Vector> lines = vectors("fingerprint.jsonl");
    ASSERT_EQ(lines.size(), 17U);
    for (const Vector &line : lines) {
        std::string preimage;
        core::Writer writer{string_sink(preimage)};
        core::write_request_line(*line.get("method"), *line.get("path"), writer);
        writer.flush();
        if (const std::optional<std::string> body = line.get("body")) {
            preimage += canonical_text(*body);
        }
        EXPECT_EQ(preimage, *line.get("preimage")) << *line.get("name");

        core::Sha256 sha;
        std::uint8_t digest[core::digest_size];
        ASSERT_TRUE(sha.start() && sha.update(preimage.data(), preimage.size()) && sha.finish(digest));
        std::string hex;
        for (const std::uint8_t byte : digest) {
            hex += "0123456789abcdef"[byte >> 4];
            hex += "0123456789abcdef"[byte & 15];
        }
        EXPECT_EQ(hex, *line.get("sha256")) << *line.get("name");
    }
}

// What is no JSON is none here either; what only the server's limits refuse (22003, 54001) is not the core's
// to judge.
TEST(Vectors, Refusals)
{
    int judged = 0;
    for (const Vector &line : vectors("reject.jsonl")) {
        const std::string state = *line.get("sqlstate");
        if (state == "22P02" || state == "22P05") {
            EXPECT_EQ(canonical_text(*line.get("input")), "not JSON") << *line.get("name");
            judged++;
        }
    }
    EXPECT_GT(judged, 20);
}

TEST(Canonical, SortsByUtf16CodeUnits)
{
    EXPECT_EQ(canonical_text(R"({"\ue000":3,"\ud800\udc00":2,"\ud7ff":1,"\udbff\udfff":4})"),
              "{\"\ud7ff\":1,\"\U00010000\":2,\"\U0010ffff\":4,\"\ue000\":3}");
    EXPECT_EQ(canonical_text(R"({"zk\ufffd":1,"zk\ud83d\ude00":2,"zk":3})"),
              "{\"zk\":3,\"zk\U0001f600\":2,\"zk\ufffd\":1}");
    EXPECT_EQ(canonical_text(R"({"\ud83d\ude02":1,"\ud83d\ude00":2,"\ud83c\udf89":3})"),
              "{\"\U0001f389\":3,\"\U0001f600\":2,\"\U0001f602\":1}");
}

TEST(Canonical, SortsRawNames)
{
    EXPECT_EQ(canonical_text(R"({"A":1,"\n":2,"\"":3,"!":4,"#":5,"\\":6,"]":7,"[":8})"),
              R"({"\n":2,"!":4,"\"":3,"#":5,"A":1,"[":8,"\\":6,"]":7})");
    EXPECT_EQ(canonical_text(R"({"10":1,"9":2,"1":3,"01":4})"), R"({"01":4,"1":3,"10":1,"9":2})");
    EXPECT_EQ(canonical_text(R"({"a":1,"":0})"), R"({"":0,"a":1})");
    EXPECT_EQ(canonical_text(R"({"a":1,"a":2})"), R"({"a":2})");
}

TEST(Canonical, EscapesWhatRfc8785Escapes)
{
    EXPECT_EQ(canonical_text(R"("\u0008\u0009\u000a\u000c\u000d\u000b\u001F")"),
              R"("\b\t\n\f\r\u000b\u001f")");
    EXPECT_EQ(canonical_text(R"("a\/b <>&' \\ud83d \u007f")"), "\"a/b <>&' \\\\ud83d \x7f\"");
    // escapes at every place of an eight-byte step
    for (std::size_t i = 0; i < 20; i++) {
        std::string text(20, 'x');
        text[i] = '\n';
        std::string out;
        core::Writer writer{string_sink(out)};
        EXPECT_TRUE(core::write_string(text, writer));
        writer.flush();
        EXPECT_EQ(out, "\"" + std::string(i, 'x') + "\\n" + std::string(19 - i, 'x') + "\"");
    }
}

TEST(Canonical, RefusesWhatIsNotUtf8)
{
    for (const char *text : {"\x80", "\xff", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                             "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
                             "\xc3", "\xe2\x82", "\xf0\x9f\x98", "aaaaaaaaaaaaaaaa\xff"}) {
        std::string out;
        core::Writer writer{string_sink(out)};
        EXPECT_FALSE(core::write_string(text, writer)) << out;
        EXPECT_FALSE(core::utf8_valid(text));
        EXPECT_EQ(canonical_text("[\"" + std::string{text} + "\"]"), "error");
        EXPECT_EQ(canonical_text("{\"" + std::string{text} + "\":1}"), "error");
    }
    for (const char *text : {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                             "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "\xef\xbb\xbfx"}) {
        EXPECT_TRUE(core::utf8_valid(text));
        EXPECT_EQ(canonical_text("\"" + std::string{text} + "\""), "\"" + std::string{text} + "\"");
    }
}

TEST(Canonical, KeepsArraysAndEmptyThings)
{
    EXPECT_EQ(canonical_text(" [3, 1, 2, [], {}, \"\", null, true, false] "),
              R"([3,1,2,[],{},"",null,true,false])");
}

TEST(Canonical, NestsAMillionDeep)
{
    constexpr std::size_t depth = 1000000;
    const std::string arrays = std::string(depth, '[') + std::string(depth, ']');
    EXPECT_EQ(canonical_text(arrays), arrays);
    std::string objects;
    for (std::size_t i = 0; i < depth; i++) {
        objects += "{\"a\":";
    }
    objects += "1" + std::string(depth, '}');
    EXPECT_EQ(canonical_text(objects), objects);
}

TEST(Canonical, SortsManyNames)
{
    std::string text = "{";
    std::vector<std::string> names;
    for (int i = 0; i < 200000; i++) {
        names.push_back("k" + std::to_string(i));
        text += (i == 0 ? "\"" : ",\"") + names.back() + "\":" + std::to_string(i);
    }
    std::sort(names.begin(), names.end());
    std::string expected = "{";
    for (const std::string &name : names) {
        expected += (expected.size() == 1 ? "\"" : ",\"") + name + "\":" + name.substr(1);
    }
    EXPECT_EQ(canonical_text(text + "}"), expected + "}");
}

TEST(Canonical, LeavesOutWhatPointersName)
{
    const std::string_view text = R"({"a/b":1,"m~n":2,"items":[{"ts":1,"v":2},3,4],"x":{"-":1},"keep":3})";
    const auto without = [text](const std::vector<std::string> &pointers) {
        return canonical_text(text, Numbers::lossless, pointers);
    };
    EXPECT_EQ(without({"/a~1b", "/m~0n", "/items/0/ts", "/x/-"}),
              R"({"items":[{"v":2},3,4],"keep":3,"x":{}})");
    EXPECT_EQ(without({"/items/0", "/items/1"}), R"({"a/b":1,"items":[4],"keep":3,"m~n":2,"x":{"-":1}})");
    EXPECT_EQ(without({"/items/00", "/items/-", "/items/9", "/none/x", "/keep/x"}), canonical_text(text));
    EXPECT_EQ(without({"/items", "/x", "/keep", "/m~0n", "/a~1b"}), "{}");
    EXPECT_EQ(without(std::vector<std::string>(63, "/none")), canonical_text(text));
    std::vector<std::string> most(core::max_ignored, "/none");
    most.back() = "/items";
    EXPECT_EQ(without(most), R"({"a/b":1,"keep":3,"m~n":2,"x":{"-":1}})");
}

} // namespace
} // namespace idem::test
