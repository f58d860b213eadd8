/*
 * JSON pointers (RFC 6901) to what a fingerprint leaves out, and the setting that lists them.
 *
 * They refer to the document as it came: removing /items/0 doesn't move /items/1.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/arena.hpp"

namespace idem::core {

struct Pointer {
    const std::string_view *tokens;
    std::size_t count;
};
static_assert(std::is_trivially_destructible_v<Pointer>);

struct IgnoreList {
    const Pointer *pointers;
    std::size_t count;
};
static_assert(std::is_trivially_destructible_v<IgnoreList>);

// A bit of a 64-bit mask follows each pointer down the document.
constexpr std::size_t max_ignored = 64;
// The setting and an operation share the mask.
constexpr std::size_t max_ignored_each = max_ignored / 2;

enum class PointerError : std::uint8_t { none, no_leading_slash, whole_document, bad_escape, too_many };

PointerError parse_pointer(std::string_view text, Arena &arena, Pointer &out);

// Takes the first item off a comma-separated list, without the blanks around it; false at the end of the
// list.
bool next_list_item(std::string_view &rest, std::string_view &item);

// A comma-separated list of pointers; `offender` is the item that is in error. Empty: nothing is ignored.
PointerError parse_ignore_list(std::string_view text, Arena &arena, IgnoreList &out,
                               std::string_view &offender);

// How many bytes of arena parse_ignore_list() takes at most, each allocation rounded up to 16.
std::size_t ignore_list_room(std::string_view text);

} // namespace idem::core
