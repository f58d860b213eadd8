#include "pg/jsonb_document.hpp"

namespace idem::pg {

namespace {

const JsonbContainer *container_of(JsonbDocument::Node node)
{
    return reinterpret_cast<const JsonbContainer *>(node.data);
}

} // namespace

JsonbDocument::JsonbDocument(Jsonb *document)
    : document_(document), convert_(GetDatabaseEncoding() != PG_UTF8), converted_(nullptr), scratch_(nullptr),
      scratch_size_(0)
{
}

JsonbDocument::Node JsonbDocument::root() const
{
    const JsonbContainer *root = &document_->root;
    if (JsonContainerIsScalar(root)) {
        return child(root, 0, 1);
    }
    return Node{JsonContainerIsObject(root) ? core::Kind::object : core::Kind::array, false,
                JsonContainerSize(root), reinterpret_cast<const char *>(root)};
}

// The entry `index` of a container that has `entries` of them; an object has its names first, then its
// values.
JsonbDocument::Node JsonbDocument::child(const JsonbContainer *container, uint32 index, uint32 entries) const
{
    const char *base = reinterpret_cast<const char *>(&container->children[entries]);
    const JEntry entry = container->children[index];
    const uint32 offset = getJsonbOffset(container, static_cast<int>(index));

    switch (entry & JENTRY_TYPEMASK) {
    case JENTRY_ISSTRING:
        return Node{core::Kind::string, false, getJsonbLength(container, static_cast<int>(index)),
                    base + offset};
    case JENTRY_ISNUMERIC:
        return Node{core::Kind::number, false, 0, base + INTALIGN(offset)};
    case JENTRY_ISBOOL_TRUE:
        return Node{core::Kind::boolean, true, 0, nullptr};
    case JENTRY_ISBOOL_FALSE:
        return Node{core::Kind::boolean, false, 0, nullptr};
    case JENTRY_ISNULL:
        return Node{core::Kind::null, false, 0, nullptr};
    case JENTRY_ISCONTAINER: {
        const char *data = base + INTALIGN(offset);
        const JsonbContainer *inner = reinterpret_cast<const JsonbContainer *>(data);
        return Node{JsonContainerIsObject(inner) ? core::Kind::object : core::Kind::array, false,
                    JsonContainerSize(inner), data};
    }
    default:
        elog(ERROR, "unexpected jsonb entry type 0x%08x", entry & JENTRY_TYPEMASK);
    }
}

JsonbDocument::Node JsonbDocument::element(Node array, std::uint32_t index) const
{
    return child(container_of(array), index, array.size);
}

JsonbDocument::Node JsonbDocument::value(Node object, std::uint32_t index) const
{
    return child(container_of(object), object.size + index, object.size * 2);
}

std::string_view JsonbDocument::name(Node object, std::uint32_t index) const
{
    const Node name = child(container_of(object), index, object.size * 2);
    if (!convert_) {
        return {name.data, name.size};
    }
    // all names of an object are needed at once, to be sorted: these stay until the context is reset
    return utf8_of({name.data, name.size});
}

std::string_view JsonbDocument::string(Node node) const
{
    if (!convert_) {
        return {node.data, node.size};
    }
    if (converted_ != nullptr) {
        pfree(converted_);
        converted_ = nullptr;
    }
    const std::string_view utf8 = utf8_of({node.data, node.size});
    if (utf8.data() != node.data) {
        converted_ = const_cast<char *>(utf8.data());
    }
    return utf8;
}

core::Decimal JsonbDocument::number(Node node) const
{
    // numeric_send: int16 digits, int16 weight, uint16 sign, int16 scale, then base-10000 digits, in network
    // order
    bytea *wire = DatumGetByteaP(DirectFunctionCall1(numeric_send, PointerGetDatum(node.data)));
    const auto *raw = reinterpret_cast<const std::uint8_t *>(VARDATA(wire));
    const auto field = [raw](std::size_t index) {
        return static_cast<std::uint16_t>(raw[2 * index] << 8 | raw[2 * index + 1]);
    };
    constexpr std::uint16_t wire_positive = 0x0000;
    constexpr std::uint16_t wire_negative = 0x4000;
    constexpr std::size_t header_fields = 4;

    const std::size_t count = field(0);
    const auto weight = static_cast<std::int16_t>(field(1));
    const std::uint16_t sign = field(2);
    if (sign != wire_positive && sign != wire_negative) {
        elog(ERROR, "jsonb number is not finite"); // to_jsonb() makes strings of NaN and infinity
    }

    // words first, then room for the digits that the core makes of them
    const std::size_t words_size = MAXALIGN(count * sizeof(std::uint16_t));
    const std::size_t needed = words_size + count * 4 + 16;
    if (needed > scratch_size_) {
        if (scratch_ != nullptr) {
            pfree(scratch_);
        }
        scratch_size_ = needed * 2;
        scratch_ = static_cast<char *>(palloc(scratch_size_));
    }
    auto *words = reinterpret_cast<std::uint16_t *>(scratch_);
    for (std::size_t i = 0; i < count; i++) {
        words[i] = field(header_fields + i);
    }
    pfree(wire);

    core::Arena digits{scratch_ + words_size, [](void *room, std::size_t) { return room; }};
    return core::decimal_from_base10000(words, count, weight, sign == wire_negative, digits);
}

} // namespace idem::pg
