#include "core/path_pattern.hpp"

#include <algorithm>
#include <cstring>

namespace idem::core {

namespace {

constexpr std::string_view rest_of_path = "**";

// Takes the first segment off "/a/b"; false at the end.
bool next_segment(std::string_view &rest, std::string_view &segment)
{
    if (rest.empty()) {
        return false;
    }
    rest.remove_prefix(1);
    segment = std::string_view{rest.data(), std::min(rest.find('/'), rest.size())};
    rest.remove_prefix(segment.size());
    return true;
}

bool is_variable(std::string_view segment)
{
    return segment.front() == '{';
}

// Eight bytes at a time; operators choose the patterns, so nobody looks for collisions.
std::size_t hash_of(int parent, std::string_view literal)
{
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15ULL; // 2^64 divided by the golden ratio
    std::uint64_t hash = (static_cast<std::uint64_t>(parent) + 1) * odd ^ literal.size();
    while (!literal.empty()) {
        std::uint64_t word = 0;
        const std::size_t size = std::min(literal.size(), sizeof(word));
        std::memcpy(&word, literal.data(), size);
        hash = (hash ^ word) * odd;
        hash ^= hash >> 32;
        literal.remove_prefix(size);
    }
    return static_cast<std::size_t>(hash);
}

PatternFault check_segment(std::string_view segment, bool last)
{
    if (segment.empty()) {
        return PatternFault::empty_segment;
    }
    if (segment == rest_of_path) {
        return last ? PatternFault::none : PatternFault::bad_wildcard;
    }
    if (segment.find('*') != std::string_view::npos) {
        return PatternFault::bad_wildcard;
    }
    if (is_variable(segment)) {
        const std::size_t inner = segment.find_first_of("{}", 1);
        return segment.size() > 2 && inner == segment.size() - 1 && segment.back() == '}'
                   ? PatternFault::none
                   : PatternFault::bad_variable;
    }
    return segment.find_first_of("{}") == std::string_view::npos ? PatternFault::none
                                                                 : PatternFault::bad_variable;
}

} // namespace

std::string_view path_to_match(std::string_view path)
{
    // find_first_of() would search its set anew for each character
    const auto *end = std::find_if(path.begin(), path.end(), [](char c) { return c == '?' || c == '#'; });
    path = std::string_view{path.data(), static_cast<std::size_t>(end - path.begin())};
    if (!path.empty() && path.back() == '/') {
        path.remove_suffix(1);
    }
    return path;
}

PatternFault check_pattern(std::string_view pattern)
{
    if (pattern.empty() || pattern.front() != '/') {
        return PatternFault::no_leading_slash;
    }
    if (pattern.size() > max_pattern_size) {
        return PatternFault::too_long;
    }
    for (const char byte : pattern) {
        const auto code = static_cast<unsigned char>(byte);
        if (code <= ' ' || code == 0x7f || byte == '?' || byte == '#') {
            return PatternFault::bad_character;
        }
    }
    std::string_view rest = path_to_match(pattern);
    std::string_view segment;
    while (next_segment(rest, segment)) {
        const PatternFault fault = check_segment(segment, rest.empty());
        if (fault != PatternFault::none) {
            return fault;
        }
    }
    return PatternFault::none;
}

const char *pattern_fault_detail(PatternFault fault)
{
    switch (fault) {
    case PatternFault::no_leading_slash:
        return "A path pattern starts with \"/\".";
    case PatternFault::too_long:
        return "A path pattern has at most 1024 bytes.";
    case PatternFault::empty_segment:
        return "A path pattern has no empty segment.";
    case PatternFault::bad_variable:
        return "A variable is a segment of its own, with a name, such as \"{id}\".";
    case PatternFault::bad_wildcard:
        return "The only wildcard is \"**\", as the last segment.";
    case PatternFault::bad_character:
        return "A path pattern has no blank, no control character, no query and no fragment.";
    case PatternFault::none:
        break;
    }
    return "";
}

void PatternTree::reserve(Arena &arena, std::size_t segments)
{
    const std::size_t room = segments + 1;
    nodes_ = allocate<Node>(arena, room);
    node_count_ = 0;
    slot_count_ = 16;
    while (slot_count_ < 2 * room) {
        slot_count_ *= 2;
    }
    slots_ = allocate<int>(arena, slot_count_);
    for (std::size_t i = 0; i < slot_count_; i++) {
        slots_[i] = 0;
    }
    (void)new_node(0, {}); // the root
}

std::size_t PatternTree::segments_of(std::string_view pattern)
{
    std::size_t count = 1; // the method
    std::string_view rest = path_to_match(pattern);
    std::string_view segment;
    while (next_segment(rest, segment)) {
        count++;
    }
    return count;
}

int PatternTree::new_node(int parent, std::string_view literal)
{
    nodes_[node_count_] = Node{literal, parent, 0, no_match, no_match};
    return node_count_++;
}

int PatternTree::literal_child(int parent, std::string_view literal) const
{
    for (std::size_t slot = hash_of(parent, literal);; slot++) {
        const int index = slots_[slot & (slot_count_ - 1)];
        if (index == 0 || (nodes_[index].parent == parent && nodes_[index].literal == literal)) {
            return index;
        }
    }
}

int PatternTree::descend(int parent, std::string_view literal)
{
    int child = literal_child(parent, literal);
    if (child == 0) {
        child = new_node(parent, literal);
        std::size_t slot = hash_of(parent, literal);
        while (slots_[slot & (slot_count_ - 1)] != 0) {
            slot++;
        }
        slots_[slot & (slot_count_ - 1)] = child;
    }
    return child;
}

void PatternTree::add(std::string_view method, std::string_view pattern, int value)
{
    int node = descend(0, method);
    std::string_view rest = path_to_match(pattern);
    std::string_view segment;
    while (next_segment(rest, segment)) {
        if (segment == rest_of_path) {
            nodes_[node].rest = value;
            return;
        }
        if (is_variable(segment)) {
            if (nodes_[node].variable == 0) {
                const int child = new_node(node, {});
                nodes_[node].variable = child;
            }
            node = nodes_[node].variable;
        } else {
            node = descend(node, segment);
        }
    }
    nodes_[node].end = value;
}

// The more literal branch first, so that of two with as many literals the first one found stays.
void PatternTree::search(int index, std::string_view rest, int literals, Best &best) const
{
    const Node &node = nodes_[index];
    std::string_view after = rest;
    std::string_view segment;
    if (!next_segment(after, segment)) {
        if (node.end != no_match && literals > best.literals) {
            best = Best{node.end, literals};
        }
    } else if (!segment.empty()) {
        const int child = literal_child(index, segment);
        if (child != 0) {
            search(child, after, literals + 1, best);
        }
        if (node.variable != 0) {
            search(node.variable, after, literals, best);
        }
    }
    if (node.rest != no_match && literals > best.literals) {
        best = Best{node.rest, literals};
    }
}

int PatternTree::match(std::string_view method, std::string_view path) const
{
    const std::string_view rest = path_to_match(path);
    const int root = literal_child(0, method);
    if (root == 0 || (!rest.empty() && rest.front() != '/') || path.empty() || path.front() != '/') {
        return no_match;
    }
    Best best{no_match, -1};
    search(root, rest, 0, best);
    return best.value;
}

} // namespace idem::core
