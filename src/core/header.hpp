/*
 * HTTP header fields: the Idempotency-Key field's value (an RFC 9651 item, or bare as most clients send it),
 * and the names and values of a stored response (RFC 9110, section 5).
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/arena.hpp"

namespace idem::core {

enum class HeaderFault : std::uint8_t {
    none,
    bad_escape,
    no_end_quote,
    bad_character,
    trailing_characters,
    list
};

// The key out of a field value. What is not quoted is taken as it stands, so that check_key() judges it.
HeaderFault parse_key_header(std::string_view value, Arena &arena, std::string_view &key);

// A sentence for an error's DETAIL.
const char *header_fault_detail(HeaderFault fault);

bool field_name_valid(std::string_view name);

// No control character but HTAB, so that a value can't end its line.
bool field_value_valid(std::string_view value);

bool field_name_equal(std::string_view a, std::string_view b);

// Is the name in a comma-separated list?
bool in_list(std::string_view list, std::string_view name);

} // namespace idem::core
