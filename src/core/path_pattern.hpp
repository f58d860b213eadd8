/*
 * Path patterns of the registry of operations, and which of them a request's path matches.
 *
 * A pattern is "/" and segments with "/" between: a literal, {name} for any one segment, and as the last one ** for
 * any number of segments, none included. A path is matched without its query and without a slash at its end,
 * byte by byte: case counts, nothing is decoded. Of several patterns that match, the most literal wins: the one with
 * more literal segments; then, segment by segment from the left, a literal before {name}, {name} before **.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/arena.hpp"

namespace idem::core {

constexpr std::size_t max_pattern_size = 1024;

enum class PatternFault : std::uint8_t {
    none,
    no_leading_slash,
    too_long,
    empty_segment,
    bad_variable,
    bad_wildcard,
    bad_character,
};

PatternFault check_pattern(std::string_view pattern);

// A sentence for an error's DETAIL.
const char *pattern_fault_detail(PatternFault fault);

// A path without its query, fragment, and one slash at its end: what is matched, and how a pattern is stored.
std::string_view path_to_match(std::string_view path);

// Patterns with a value each, by method. Values are what the caller likes; each (method, pattern) is added once.
class PatternTree {
public:
    static constexpr int no_match = -1;

    // `segments`: at least as many as all methods and patterns that will be added have together.
    void reserve(Arena &arena, std::size_t segments);
    // How much of it a pattern takes.
    static std::size_t segments_of(std::string_view pattern);

    // The pattern must have passed check_pattern(); method and pattern must live as long as the tree.
    void add(std::string_view method, std::string_view pattern, int value);

    int match(std::string_view method, std::string_view path) const;

private:
    struct Node {
        std::string_view literal;
        int parent;
        int variable; // the child for {name}; 0: none, since the root is nobody's child
        int end;      // value of the pattern that ends here, and of the one with ** behind; no_match: none
        int rest;
    };
    struct Best {
        int value;
        int literals;
    };

    int literal_child(int parent, std::string_view literal) const;
    int new_node(int parent, std::string_view literal);
    int descend(int parent, std::string_view literal);
    void search(int node, std::string_view rest, int literals, Best &best) const;

    Node *nodes_;
    int node_count_;
    int *slots_; // node by hash of parent and literal; 0: free
    std::size_t slot_count_;
};
static_assert(std::is_trivially_destructible_v<PatternTree>);
static_assert(std::is_trivially_default_constructible_v<PatternTree>);

} // namespace idem::core
