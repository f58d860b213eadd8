// Header values, keys, pointers and lists: whatever comes, the answer keeps its own rules.

#include "core/header.hpp"
#include "core/key.hpp"
#include "core/method.hpp"
#include "json_document.hpp"
#include "require.hpp"

using namespace idem;
using namespace idem::test;

namespace {

void header(std::string_view value)
{
    Heap heap;
    core::Arena arena = heap.arena();
    std::string_view key;
    if (core::parse_key_header(value, arena, key) != core::HeaderFault::none) {
        return;
    }
    require(key.size() <= value.size());
    // what was read, quoted, reads as itself
    std::size_t position = 0;
    if (core::check_key(key, position) == core::KeyFault::none) {
        std::string quoted = "\"";
        for (const char c : key) {
            quoted += c == '"' || c == '\\' ? "\\" : "";
            quoted += c;
        }
        quoted += '"';
        std::string_view again;
        require(core::parse_key_header(quoted, arena, again) == core::HeaderFault::none && again == key);
    }
}

void pointers(std::string_view text)
{
    struct Block {
        std::size_t used;
        std::vector<char> memory;
    } block{0, std::vector<char>(core::ignore_list_room(text))};
    core::Arena arena{&block, [](void *context, std::size_t size) -> void * {
                          auto *room = static_cast<Block *>(context);
                          void *start = room->memory.data() + room->used;
                          room->used += (size + 15) / 16 * 16;
                          require(room->used <= room->memory.size());
                          return start;
                      }};
    core::IgnoreList list{};
    std::string_view offender;
    if (core::parse_ignore_list(text, arena, list, offender) != core::PointerError::none) {
        require(!offender.empty());
        return;
    }
    require(list.count <= core::max_ignored_each);
    for (std::size_t i = 0; i < list.count; i++) {
        require(list.pointers[i].count > 0);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const std::string_view text{reinterpret_cast<const char *>(data), size};
    header(text);
    pointers(text);
    (void)core::method_valid(text);
    (void)core::first_control(text);
    (void)core::field_value_valid(text);
    (void)core::in_list(text, "date");
    if (core::utf8_valid(text)) {
        require(core::compare_utf16(text, text) == 0);
    }
    return 0;
}
