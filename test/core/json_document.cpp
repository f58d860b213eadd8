#include "json_document.hpp"

namespace idem::test {

// Without recursion, since the tests nest a million deep.
class Parser {
public:
    explicit Parser(std::string_view text) : text_(text) {}

    bool parse(JsonDocument &out)
    {
        std::vector<Value *> open;
        bool expect_value = true;
        std::string name;
        for (;;) {
            skip_blanks();
            if (expect_value) {
                Value *value = &out.values_->emplace_back();
                attach(out, open, name, value);
                if (at_end()) {
                    return false;
                }
                const char c = text_[position_];
                if (c == '[' || c == '{') {
                    position_++;
                    value->kind = c == '[' ? core::Kind::array : core::Kind::object;
                    open.push_back(value);
                    skip_blanks();
                    if (peek() == (c == '[' ? ']' : '}')) {
                        expect_value = false;
                        continue;
                    }
                    if (c == '{' && !take_name(name)) {
                        return false;
                    }
                    continue;
                }
                if (!scalar(*value)) {
                    return false;
                }
                expect_value = false;
                continue;
            }
            if (open.empty()) {
                return at_end();
            }
            const bool object = open.back()->kind == core::Kind::object;
            if (peek() == (object ? '}' : ']')) {
                position_++;
                if (object) {
                    last_wins(*open.back());
                }
                open.pop_back();
                continue;
            }
            if (peek() != ',') {
                return false;
            }
            position_++;
            skip_blanks();
            if (object && !take_name(name)) {
                return false;
            }
            expect_value = true;
        }
    }

private:
    bool at_end() const { return position_ == text_.size(); }
    char peek() const { return at_end() ? '\0' : text_[position_]; }
    void skip_blanks()
    {
        while (!at_end() && std::string_view{" \t\r\n"}.find(text_[position_]) != std::string_view::npos) {
            position_++;
        }
    }

    static void attach(JsonDocument &out, const std::vector<Value *> &open, const std::string &name,
                       Value *value)
    {
        if (open.empty()) {
            out.root_ = value;
        } else if (open.back()->kind == core::Kind::array) {
            open.back()->elements.push_back(value);
        } else {
            open.back()->members.emplace_back(name, value);
        }
    }

    static void last_wins(Value &object)
    {
        std::map<std::string, const Value *> unique;
        for (const auto &[name, value] : object.members) {
            unique[name] = value;
        }
        object.members.assign(unique.begin(), unique.end());
    }

    bool take_name(std::string &name)
    {
        if (!string(name)) {
            return false;
        }
        skip_blanks();
        if (peek() != ':') {
            return false;
        }
        position_++;
        return true;
    }

    bool literal(std::string_view word)
    {
        if (text_.substr(position_, word.size()) != word) {
            return false;
        }
        position_ += word.size();
        return true;
    }

    bool scalar(Value &value)
    {
        switch (peek()) {
        case 'n':
            return literal("null");
        case 't':
            value.kind = core::Kind::boolean;
            value.truth = true;
            return literal("true");
        case 'f':
            value.kind = core::Kind::boolean;
            return literal("false");
        case '"':
            value.kind = core::Kind::string;
            return string(value.text);
        default:
            value.kind = core::Kind::number;
            return number(value.text);
        }
    }

    bool number(std::string &out)
    {
        const std::size_t start = position_;
        while (!at_end() &&
               std::string_view{"+-.eE0123456789"}.find(text_[position_]) != std::string_view::npos) {
            position_++;
        }
        out = text_.substr(start, position_ - start);
        Heap heap;
        core::Arena arena = heap.arena();
        core::Decimal decimal{};
        return core::decimal_from_text(out, arena, decimal);
    }

    std::optional<unsigned> hex4()
    {
        unsigned code = 0;
        for (int i = 0; i < 4; i++, position_++) {
            const std::size_t digit = std::string_view{"0123456789abcdef"}.find(
                static_cast<char>(peek() >= 'A' && peek() <= 'F' ? peek() - 'A' + 'a' : peek()));
            if (at_end() || digit == std::string_view::npos) {
                return {};
            }
            code = code * 16 + static_cast<unsigned>(digit);
        }
        return code;
    }

    static void append_utf8(std::string &out, unsigned code)
    {
        if (code < 0x80) {
            out += static_cast<char>(code);
        } else if (code < 0x800) {
            out += static_cast<char>(0xC0 | code >> 6);
            out += static_cast<char>(0x80 | (code & 0x3F));
        } else if (code < 0x10000) {
            out += static_cast<char>(0xE0 | code >> 12);
            out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
            out += static_cast<char>(0x80 | (code & 0x3F));
        } else {
            out += static_cast<char>(0xF0 | code >> 18);
            out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
            out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
            out += static_cast<char>(0x80 | (code & 0x3F));
        }
    }

    bool unicode_escape(std::string &out)
    {
        const std::optional<unsigned> first = hex4();
        if (!first || *first == 0 || (*first >= 0xDC00 && *first <= 0xDFFF)) {
            return false;
        }
        if (*first < 0xD800 || *first > 0xDBFF) {
            append_utf8(out, *first);
            return true;
        }
        if (!literal("\\u")) {
            return false;
        }
        const std::optional<unsigned> second = hex4();
        if (!second || *second < 0xDC00 || *second > 0xDFFF) {
            return false;
        }
        append_utf8(out, 0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00));
        return true;
    }

    bool string(std::string &out)
    {
        out.clear();
        if (peek() != '"') {
            return false;
        }
        position_++;
        while (!at_end()) {
            const char c = text_[position_++];
            if (c == '"') {
                return true;
            }
            if (static_cast<unsigned char>(c) < 0x20) {
                return false;
            }
            if (c != '\\') {
                out += c;
                continue;
            }
            const char escape = peek();
            position_++;
            const std::size_t known = std::string_view{"\"\\/bfnrt"}.find(escape);
            if (escape == 'u') {
                if (!unicode_escape(out)) {
                    return false;
                }
            } else if (known != std::string_view::npos) {
                out += "\"\\/\b\f\n\r\t"[known];
            } else {
                return false;
            }
        }
        return false;
    }

    std::string_view text_;
    std::size_t position_ = 0;
};

std::optional<JsonDocument> JsonDocument::parse(std::string_view text)
{
    JsonDocument document;
    if (!Parser{text}.parse(document)) {
        return {};
    }
    return document;
}

std::optional<std::string> canonical(const JsonDocument &document, core::Numbers numbers,
                                     const std::vector<std::string> &ignored)
{
    Heap heap;
    core::Arena arena = heap.arena();
    std::vector<core::Pointer> pointers;
    for (const std::string &text : ignored) {
        core::Pointer pointer{};
        if (core::parse_pointer(text, arena, pointer) != core::PointerError::none) {
            return {};
        }
        pointers.push_back(pointer);
    }
    std::string out;
    core::Writer writer{string_sink(out)};
    if (core::canonicalize(document, core::IgnoreList{pointers.data(), pointers.size()}, numbers, arena,
                           writer) != core::CanonicalError::none) {
        return {};
    }
    writer.flush();
    return out;
}

std::string canonical_text(std::string_view text, core::Numbers numbers,
                           const std::vector<std::string> &ignored)
{
    const std::optional<JsonDocument> document = JsonDocument::parse(text);
    return document ? canonical(*document, numbers, ignored).value_or("error") : "not JSON";
}

} // namespace idem::test
