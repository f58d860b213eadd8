#include "core/header.hpp"

#include "core/json_pointer.hpp"
#include "core/method.hpp"

namespace idem::core {

namespace {

bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

void skip_blanks(std::string_view &text)
{
    while (!text.empty() && is_blank(text.front())) {
        text.remove_prefix(1);
    }
}

bool take(std::string_view &text, char wanted)
{
    if (text.empty() || text.front() != wanted) {
        return false;
    }
    text.remove_prefix(1);
    return true;
}

// RFC 9651, section 4.2.5, from behind the opening quote to behind the closing one.
HeaderFault take_string(std::string_view &text, char *out, std::size_t &size)
{
    size = 0;
    while (!text.empty()) {
        char c = text.front();
        text.remove_prefix(1);
        if (c == '"') {
            return HeaderFault::none;
        }
        if (c < 0x20 || c > 0x7E) {
            return HeaderFault::bad_character;
        }
        if (c == '\\') {
            if (text.empty()) {
                return HeaderFault::no_end_quote;
            }
            c = text.front();
            if (c != '"' && c != '\\') {
                return HeaderFault::bad_escape;
            }
            text.remove_prefix(1);
        }
        out[size++] = c;
    }
    return HeaderFault::no_end_quote;
}

bool is_parameter_name(char c, bool first)
{
    const bool letter = (c >= 'a' && c <= 'z') || c == '*';
    return letter || (!first && ((c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.'));
}

// RFC 9651, section 4.2.3.2: parameters have no meaning here, but rubbish is not a parameter.
bool skip_parameters(std::string_view &text, char *scratch)
{
    while (take(text, ';')) {
        while (take(text, ' ')) {
        }
        std::size_t name = 0;
        while (!text.empty() && is_parameter_name(text.front(), name == 0)) {
            text.remove_prefix(1);
            name++;
        }
        if (name == 0) {
            return false;
        }
        if (!take(text, '=')) {
            continue;
        }
        if (take(text, '"')) {
            std::size_t size = 0;
            if (take_string(text, scratch, size) != HeaderFault::none) {
                return false;
            }
            continue;
        }
        std::size_t value = 0;
        while (!text.empty() && text.front() > 0x20 && text.front() < 0x7F && text.front() != ';' &&
               text.front() != ',' && text.front() != '"') {
            text.remove_prefix(1);
            value++;
        }
        if (value == 0) {
            return false;
        }
    }
    return true;
}

} // namespace

HeaderFault parse_key_header(std::string_view value, Arena &arena, std::string_view &key)
{
    skip_blanks(value);
    while (!value.empty() && is_blank(value.back())) {
        value.remove_suffix(1);
    }

    if (!take(value, '"')) {
        // two fields of one name arrive as one list
        if (value.find(',') != std::string_view::npos) {
            return HeaderFault::list;
        }
        key = value;
        return HeaderFault::none;
    }

    char *unescaped = allocate<char>(arena, 2 * value.size() + 1);
    std::size_t size = 0;
    const HeaderFault fault = take_string(value, unescaped, size);
    if (fault != HeaderFault::none) {
        return fault;
    }
    if (!skip_parameters(value, unescaped + size)) {
        return HeaderFault::trailing_characters;
    }
    skip_blanks(value);
    if (!value.empty()) {
        return value.front() == ',' ? HeaderFault::list : HeaderFault::trailing_characters;
    }
    key = std::string_view{unescaped, size};
    return HeaderFault::none;
}

const char *header_fault_detail(HeaderFault fault)
{
    switch (fault) {
    case HeaderFault::bad_escape:
        return "In a quoted value, a backslash must be followed by a quote or a backslash (RFC 9651).";
    case HeaderFault::no_end_quote:
        return "The quoted value has no closing quote (RFC 9651).";
    case HeaderFault::bad_character:
        return "A quoted value has printable ASCII characters only (RFC 9651).";
    case HeaderFault::trailing_characters:
        return "Something other than a parameter follows the closing quote (RFC 9651).";
    case HeaderFault::list:
        return "The header has more than one value, or was sent twice.";
    case HeaderFault::none:
        break;
    }
    return "";
}

bool field_name_valid(std::string_view name)
{
    return is_token(name);
}

bool field_value_valid(std::string_view value)
{
    for (const char c : value) {
        const auto byte = static_cast<std::uint8_t>(c);
        if ((byte < 0x20 && c != '\t') || byte == 0x7F) {
            return false;
        }
    }
    return true;
}

bool field_name_equal(std::string_view a, std::string_view b)
{
    return equal_ignoring_case(a, b);
}

bool in_list(std::string_view list, std::string_view name)
{
    std::string_view item;
    while (next_list_item(list, item)) {
        if (equal_ignoring_case(item, name)) {
            return true;
        }
    }
    return false;
}

} // namespace idem::core
