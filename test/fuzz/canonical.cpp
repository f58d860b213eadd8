// Canonical JSON against a slow reference: names as UTF-16 in a std::map, numbers by moving a point in a
// string.
#include <cstdlib>
#include <map>
#include <string>

#include "json_document.hpp"

using namespace idem;
using namespace idem::test;

namespace {

[[noreturn]] void different(const std::string &a, const std::string &b)
{
    std::fprintf(stderr, "core:      %s\nreference: %s\n", a.c_str(), b.c_str());
    std::abort();
}

// None for what is not UTF-8.
std::optional<std::u16string> utf16(const std::string &text)
{
    std::u16string out;
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        const int more = lead < 0x80         ? 0
                         : (lead >> 5) == 6  ? 1
                         : (lead >> 4) == 14 ? 2
                         : (lead >> 3) == 30 ? 3
                                             : -1;
        if (more < 0 || i + static_cast<std::size_t>(more) >= text.size()) {
            return {};
        }
        std::uint32_t code = more == 0 ? lead : lead & (0x3F >> more);
        for (int j = 1; j <= more; j++) {
            const auto byte = static_cast<unsigned char>(text[i + static_cast<std::size_t>(j)]);
            if ((byte & 0xC0) != 0x80) {
                return {};
            }
            code = code << 6 | (byte & 0x3F);
        }
        const std::uint32_t least[] = {0, 0x80, 0x800, 0x10000};
        if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
            return {};
        }
        if (code >= 0x10000) {
            out += static_cast<char16_t>(0xD800 + ((code - 0x10000) >> 10));
            out += static_cast<char16_t>(0xDC00 + ((code - 0x10000) & 0x3FF));
        } else {
            out += static_cast<char16_t>(code);
        }
        i += static_cast<std::size_t>(more) + 1;
    }
    return out;
}

std::string number(const std::string &text)
{
    std::string digits;
    long point = 0;
    bool fraction = false;
    std::size_t i = text[0] == '-' ? 1 : 0;
    for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.') {
            fraction = true;
        } else {
            digits += text[i];
            point += fraction ? 0 : 1;
        }
    }
    if (i < text.size()) {
        point += std::strtol(text.c_str() + i + 1, nullptr, 10);
    }
    while (!digits.empty() && digits.front() == '0') {
        digits.erase(0, 1);
        point--;
    }
    while (!digits.empty() && digits.back() == '0') {
        digits.pop_back();
    }
    if (digits.empty()) {
        return "0";
    }
    const std::string sign = text[0] == '-' ? "-" : "";
    if (point > 21 || point <= -6) {
        std::string out = sign + digits[0] + (digits.size() > 1 ? "." + digits.substr(1) : "");
        return out + "e" + (point > 0 ? "+" : "") + std::to_string(point - 1);
    }
    if (point <= 0) {
        return sign + "0." + std::string(static_cast<std::size_t>(-point), '0') + digits;
    }
    const auto whole = static_cast<std::size_t>(point);
    if (digits.size() <= whole) {
        return sign + digits + std::string(whole - digits.size(), '0');
    }
    return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string string(const std::string &text)
{
    std::string out = "\"";
    for (const char c : text) {
        const std::size_t known = std::string_view{"\"\\\b\f\n\r\t"}.find(c);
        if (known != std::string_view::npos) {
            out += '\\';
            out += "\"\\bfnrt"[known];
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
            out += escape;
        } else {
            out += c;
        }
    }
    return out + "\"";
}

bool reference(const Value &value, std::string &out)
{
    switch (value.kind) {
    case core::Kind::null:
        out += "null";
        return true;
    case core::Kind::boolean:
        out += value.truth ? "true" : "false";
        return true;
    case core::Kind::number:
        out += number(value.text);
        return true;
    case core::Kind::string:
        out += string(value.text);
        return utf16(value.text).has_value();
    case core::Kind::array: {
        bool good = true;
        out += '[';
        for (const Value *element : value.elements) {
            out += out.back() == '[' && element == value.elements.front() ? "" : ",";
            good = reference(*element, out) && good;
        }
        out += ']';
        return good;
    }
    case core::Kind::object:
        break;
    }
    std::map<std::u16string, std::pair<std::string, const Value *>> sorted;
    bool good = true;
    for (const auto &[name, member] : value.members) {
        const std::optional<std::u16string> key = utf16(name);
        good = good && key.has_value();
        if (key) {
            sorted[*key] = {name, member};
        }
    }
    out += '{';
    bool first = true;
    for (const auto &[key, member] : sorted) {
        out += first ? "" : ",";
        first = false;
        out += string(member.first) + ":";
        good = reference(*member.second, out) && good;
    }
    out += '}';
    return good;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const std::optional<JsonDocument> document =
        JsonDocument::parse(std::string_view{reinterpret_cast<const char *>(data), size});
    if (!document) {
        return 0;
    }
    std::string expected;
    const bool good = reference(*document->root(), expected);
    const std::optional<std::string> text = canonical(*document);
    if (text.has_value() != good || (good && *text != expected)) {
        different(text.value_or("error"), good ? expected : "error");
    }
    if (good) { // canonical text is its own canonical text, strict text the strict text of itself
        if (canonical_text(*text) != *text) {
            different(canonical_text(*text), *text);
        }
        const std::optional<std::string> strict = canonical(*document, core::Numbers::strict);
        if (strict && canonical_text(*strict, core::Numbers::strict) != *strict) {
            different(canonical_text(*strict, core::Numbers::strict), *strict);
        }
    }
    return 0;
}
