#include "core/canonical.hpp"

namespace idem::core {

namespace {

constexpr std::uint64_t every_byte = 0x0101010101010101;
constexpr std::uint64_t high_bits = 0x8080808080808080;

constexpr std::uint64_t zero_bytes(std::uint64_t word)
{
    return (word - every_byte) & ~word & high_bits;
}

// Are the eight bytes ASCII that needs no escape?
bool plain(const char *bytes)
{
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof(word));
    const std::uint64_t controls = (word - every_byte * 0x20) & ~word & high_bits;
    return ((word & high_bits) | controls | zero_bytes(word ^ (every_byte * '"')) |
            zero_bytes(word ^ (every_byte * '\\'))) == 0;
}

void put_escape(char c, Writer &out)
{
    out.put('\\');
    switch (c) {
    case '"':
    case '\\':
        out.put(c);
        return;
    case '\b':
        out.put('b');
        return;
    case '\t':
        out.put('t');
        return;
    case '\n':
        out.put('n');
        return;
    case '\f':
        out.put('f');
        return;
    case '\r':
        out.put('r');
        return;
    default:
        out.put("u00");
        out.put("0123456789abcdef"[static_cast<unsigned char>(c) >> 4]);
        out.put("0123456789abcdef"[c & 0x0F]);
    }
}

} // namespace

bool write_string(std::string_view string, Writer &out)
{
    const char *c = string.data();
    const char *end = c + string.size();
    const char *unwritten = c;
    const auto write_up_to = [&](const char *here) {
        out.put(std::string_view{unwritten, static_cast<std::size_t>(here - unwritten)});
    };

    out.put('"');
    while (c < end) {
        if (end - c >= 8 && plain(c)) {
            c += 8;
            continue;
        }
        const auto byte = static_cast<unsigned char>(*c);
        if (byte >= 0x80) {
            const std::size_t length = utf8_sequence(std::string_view{c, static_cast<std::size_t>(end - c)});
            if (length == 0) {
                return false;
            }
            c += length;
        } else if (byte < 0x20 || byte == '"' || byte == '\\') {
            write_up_to(c);
            put_escape(*c, out);
            unwritten = ++c;
        } else {
            c++;
        }
    }
    write_up_to(end);
    out.put('"');
    return true;
}

} // namespace idem::core
