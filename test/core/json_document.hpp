/*
 * A JSON document for the tests: parsed as PostgreSQL's jsonb would (of equal names the last wins, U+0000 and
 * lone surrogates are refused), with each number's text kept as it is. Models the Document concept of
 * core/canonical.hpp.
 */
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/canonical.hpp"

namespace idem::test {

// Memory of a test; freed as a whole.
class Heap {
public:
    core::Arena arena()
    {
        return core::Arena{this, [](void *heap, std::size_t size) -> void * {
                               auto &blocks = static_cast<Heap *>(heap)->blocks_;
                               blocks.push_back(std::make_unique<char[]>(size + 1));
                               return blocks.back().get();
                           }};
    }
    void clear() { blocks_.clear(); }

private:
    std::deque<std::unique_ptr<char[]>> blocks_;
};

inline core::Sink string_sink(std::string &out)
{
    return core::Sink{&out, [](void *text, const char *data, std::size_t size) {
                          static_cast<std::string *>(text)->append(data, size);
                      }};
}

struct Value {
    core::Kind kind = core::Kind::null;
    bool truth = false;
    std::string text; // of a string, or a number as it was written
    std::vector<const Value *> elements;
    std::vector<std::pair<std::string, const Value *>> members;
};

class JsonDocument {
public:
    using Node = const Value *;

    // None if the text is not JSON.
    static std::optional<JsonDocument> parse(std::string_view text);

    Node root() const { return root_; }
    core::Kind kind(Node node) const { return node->kind; }
    bool boolean(Node node) const { return node->truth; }
    std::string_view string(Node node) const { return node->text; }
    core::Decimal number(Node node) const
    {
        heap_->clear();
        core::Arena arena = heap_->arena();
        core::Decimal decimal{};
        core::decimal_from_text(node->text, arena, decimal);
        return decimal;
    }
    std::uint32_t size(Node node) const
    {
        return static_cast<std::uint32_t>(node->kind == core::Kind::array ? node->elements.size()
                                                                          : node->members.size());
    }
    Node element(Node array, std::uint32_t index) const { return array->elements[index]; }
    std::string_view name(Node object, std::uint32_t index) const { return object->members[index].first; }
    Node value(Node object, std::uint32_t index) const { return object->members[index].second; }
    void pause() const {}

private:
    friend class Parser;
    JsonDocument() : values_(std::make_unique<std::deque<Value>>()), heap_(std::make_unique<Heap>()) {}

    std::unique_ptr<std::deque<Value>> values_;
    std::unique_ptr<Heap> heap_; // of the last number
    Node root_ = nullptr;
};

// The canonical text; none if the core reports an error.
std::optional<std::string> canonical(const JsonDocument &document,
                                     core::Numbers numbers = core::Numbers::lossless,
                                     const std::vector<std::string> &ignored = {});

// The canonical text of a text; "not JSON" or "error" otherwise, so that a test can print it.
std::string canonical_text(std::string_view text, core::Numbers numbers = core::Numbers::lossless,
                           const std::vector<std::string> &ignored = {});

} // namespace idem::test
