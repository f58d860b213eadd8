/*
 * A jsonb value as the core's canonicalizer reads it (core/canonical.hpp, the Document concept).
 *
 * Strings are handed out where they lie when the database is UTF-8 and converted otherwise; in SQL_ASCII they
 * are checked, and bytes that are no UTF-8 are an error (22021). Numbers come through numeric's wire form,
 * which has the exact digits and, unlike its text, doesn't write 1e131071 as 131,072 characters.
 */
#pragma once

#include "pg/prelude.hpp"

#include "core/canonical.hpp"
#include "core/decimal.hpp"

namespace idem::pg {

class JsonbDocument {
public:
    struct Node {
        core::Kind kind;
        bool truth;       // of a boolean
        uint32 size;      // bytes of a string, elements of an array, members of an object
        const char *data; // string bytes, Numeric or JsonbContainer
    };
    static_assert(std::is_trivially_destructible_v<Node>);

    explicit JsonbDocument(Jsonb *document);

    Node root() const;
    core::Kind kind(Node node) const { return node.kind; }
    bool boolean(Node node) const { return node.truth; }
    std::uint32_t size(Node node) const { return node.size; }
    Node element(Node array, std::uint32_t index) const;
    Node value(Node object, std::uint32_t index) const;
    std::string_view name(Node object, std::uint32_t index) const;
    std::string_view string(Node node) const; // until the next call
    core::Decimal number(Node node) const;    // until the next call
    void pause() const { CHECK_FOR_INTERRUPTS(); }

private:
    Node child(const JsonbContainer *container, uint32 index, uint32 entries) const;

    Jsonb *document_;
    bool convert_;
    mutable char *converted_; // the last string that needed it
    mutable char *scratch_;   // digits of the last number
    mutable std::size_t scratch_size_;
};
static_assert(std::is_trivially_destructible_v<JsonbDocument>);

} // namespace idem::pg
