#include "core/json_pointer.hpp"

namespace idem::core {

namespace {

std::size_t count_of(std::string_view text, char wanted)
{
    std::size_t count = 0;
    for (const char c : text) {
        count += c == wanted ? 1 : 0;
    }
    return count;
}

bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

} // namespace

PointerError parse_pointer(std::string_view text, Arena &arena, Pointer &out)
{
    if (text.empty()) {
        return PointerError::whole_document;
    }
    if (text.front() != '/') {
        return PointerError::no_leading_slash;
    }
    const std::size_t token_count = count_of(text, '/');
    auto *tokens = allocate<std::string_view>(arena, token_count);
    char *unescaped = allocate<char>(arena, text.size());

    const char *c = text.data();
    const char *end = c + text.size();
    for (std::size_t i = 0; i < token_count; i++) {
        char *start = unescaped;
        for (c++; c < end && *c != '/'; c++) {
            if (*c != '~') {
                *unescaped++ = *c;
                continue;
            }
            c++;
            if (c == end || (*c != '0' && *c != '1')) {
                return PointerError::bad_escape;
            }
            *unescaped++ = *c == '0' ? '~' : '/';
        }
        tokens[i] = std::string_view{start, static_cast<std::size_t>(unescaped - start)};
    }
    out = Pointer{tokens, token_count};
    return PointerError::none;
}

bool next_list_item(std::string_view &rest, std::string_view &item)
{
    while (!rest.empty() && (is_blank(rest.front()) || rest.front() == ',')) {
        rest.remove_prefix(1);
    }
    if (rest.empty()) {
        return false;
    }
    std::size_t size = 0;
    while (size < rest.size() && rest[size] != ',') {
        size++;
    }
    item = std::string_view{rest.data(), size};
    rest.remove_prefix(size);
    while (is_blank(item.back())) {
        item.remove_suffix(1);
    }
    return true;
}

PointerError parse_ignore_list(std::string_view text, Arena &arena, IgnoreList &out,
                               std::string_view &offender)
{
    auto *pointers = allocate<Pointer>(arena, count_of(text, ',') + 1);
    std::size_t count = 0;
    std::string_view rest = text;
    std::string_view item;
    while (next_list_item(rest, item)) {
        offender = item;
        if (count == max_ignored_each) {
            return PointerError::too_many;
        }
        const PointerError error = parse_pointer(item, arena, pointers[count]);
        if (error != PointerError::none) {
            return error;
        }
        count++;
    }
    out = IgnoreList{pointers, count};
    return PointerError::none;
}

std::size_t ignore_list_room(std::string_view text)
{
    constexpr std::size_t rounding = 16;
    const std::size_t items = count_of(text, ',') + 1;
    const std::size_t tokens = count_of(text, '/');
    return items * (sizeof(Pointer) + 2 * rounding) + tokens * sizeof(std::string_view) + text.size() +
           rounding;
}

} // namespace idem::core
