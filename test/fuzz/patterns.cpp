// Path patterns against a slow reference: the first lines are patterns, the last one is a path.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/path_pattern.hpp"
#include "json_document.hpp"
#include "require.hpp"

using namespace idem;
using namespace idem::test;

namespace {

// Of a pattern or path; "//" is "/" without the slash at its end: one segment, which is empty.
std::vector<std::string> segments_of(std::string_view path)
{
    std::vector<std::string> segments;
    path = core::path_to_match(path);
    if (path.empty()) {
        return segments;
    }
    std::string rest{path.substr(1)};
    std::size_t slash;
    while ((slash = rest.find('/')) != std::string::npos) {
        segments.push_back(rest.substr(0, slash));
        rest = rest.substr(slash + 1);
    }
    segments.push_back(rest);
    return segments;
}

// 0: literal, 1: {name}, 2: **
int kind_of(const std::string &segment)
{
    return segment == "**" ? 2 : segment[0] == '{' ? 1 : 0;
}

bool matches(const std::vector<std::string> &pattern, const std::vector<std::string> &path)
{
    for (std::size_t i = 0; i < pattern.size(); i++) {
        if (kind_of(pattern[i]) == 2) {
            return true;
        }
        if (i >= path.size() || (kind_of(pattern[i]) == 0 ? pattern[i] != path[i] : path[i].empty())) {
            return false;
        }
    }
    return pattern.size() == path.size();
}

// What sorts first wins: more literals, then segment by segment.
std::vector<int> rank_of(const std::vector<std::string> &pattern)
{
    std::vector<int> rank{0};
    for (const std::string &segment : pattern) {
        rank[0] -= kind_of(segment) == 0 ? 1 : 0;
        rank.push_back(kind_of(segment));
    }
    return rank;
}

std::string shape_of(const std::vector<std::string> &pattern)
{
    std::string shape;
    for (const std::string &segment : pattern) {
        shape += '/' + (kind_of(segment) == 1 ? "{}" : segment);
    }
    return shape;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const std::string text{reinterpret_cast<const char *>(data), size};
    std::vector<std::string> patterns;
    std::set<std::string> shapes;
    std::size_t start = 0;
    std::size_t end;
    while ((end = text.find('\n', start)) != std::string::npos) {
        const std::string line = text.substr(start, end - start);
        start = end + 1;
        if (core::check_pattern(line) != core::PatternFault::none) {
            continue;
        }
        if (shapes.insert(shape_of(segments_of(line))).second) {
            const std::string_view stored = core::path_to_match(line);
            patterns.emplace_back(stored.empty() ? "/" : stored);
        }
    }
    const std::string path = text.substr(start);
    if (path.empty() || path[0] != '/' || core::path_to_match(path).size() > core::max_pattern_size) {
        return 0;
    }

    Heap heap;
    core::Arena arena = heap.arena();
    core::PatternTree tree;
    std::size_t room = 0;
    for (const std::string &pattern : patterns) {
        room += core::PatternTree::segments_of(pattern);
    }
    tree.reserve(arena, room);
    for (std::size_t i = 0; i < patterns.size(); i++) {
        tree.add("POST", patterns[i], static_cast<int>(i));
    }
    const int match = tree.match("POST", path);
    require(tree.match("PUT", path) == core::PatternTree::no_match);

    const std::vector<std::string> wanted = segments_of(path);
    const std::string *best = nullptr;
    for (const std::string &pattern : patterns) {
        if (matches(segments_of(pattern), wanted) &&
            (best == nullptr || rank_of(segments_of(pattern)) < rank_of(segments_of(*best)))) {
            best = &pattern;
        }
    }
    require((match == core::PatternTree::no_match) == (best == nullptr));
    if (best != nullptr) {
        // two patterns of one rank and other literals can't match one path
        require(rank_of(segments_of(patterns[static_cast<std::size_t>(match)])) ==
                rank_of(segments_of(*best)));
    }
    return 0;
}
