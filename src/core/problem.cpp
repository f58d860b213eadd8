#include "core/problem.hpp"

#include <cstdio>

namespace idem::core {

std::string_view key_fault_detail(KeyFault fault, std::size_t key_size, std::size_t position, Arena &arena)
{
    constexpr std::size_t room = 160;
    char *text = allocate<char>(arena, room);
    int size = 0;
    switch (fault) {
    case KeyFault::too_short:
    case KeyFault::too_long:
        size = std::snprintf(text, room,
                             "The Idempotency-Key has a length of %zu; it must be %zu to %zu characters.",
                             key_size, min_key_size, max_key_size);
        break;
    case KeyFault::bad_character:
        size = std::snprintf(
            text, room,
            "The Idempotency-Key must have visible ASCII characters only (0x21 to 0x7E); the one at "
            "position %zu is not.",
            position + 1);
        break;
    case KeyFault::none:
        break;
    }
    return {text, static_cast<std::size_t>(size)};
}

} // namespace idem::core
