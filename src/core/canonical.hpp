/*
 * Canonical JSON, RFC 8785 (JCS): members sorted by the UTF-16 code units of their names, no white space, one
 * way to write each string and number. Lossless by default: numbers keep their exact value
 * (core/decimal.hpp).
 *
 * The document is walked without recursion and streamed to a Writer. Memory is bounded by the containers that
 * are open at one moment: a frame for each, and for each open object the order of its members.
 *
 * A Document is any type with
 *     Node                                     a trivially copyable handle of a value
 *     Node root() const
 *     Kind kind(Node) const
 *     bool boolean(Node) const
 *     std::string_view string(Node) const      UTF-8; valid until the next call
 *     Decimal number(Node) const               valid until the next call
 *     std::uint32_t size(Node) const           elements of an array, members of an object
 *     Node element(Node array, std::uint32_t index) const
 *     std::string_view name(Node object, std::uint32_t index) const      UTF-8; valid while the object is
 * open Node value(Node object, std::uint32_t index) const void pause() const                       called
 * once a container: a place to serve interrupts
 */
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "core/arena.hpp"
#include "core/decimal.hpp"
#include "core/json_pointer.hpp"
#include "core/sink.hpp"
#include "core/utf8.hpp"

namespace idem::core {

enum class Kind : std::uint8_t { null, boolean, number, string, array, object };

enum class Numbers : std::uint8_t { lossless, strict };

enum class CanonicalError : std::uint8_t { none, number_overflow, invalid_utf8 };

// A JSON string with RFC 8785's escapes; false if it is not valid UTF-8.
bool write_string(std::string_view string, Writer &out);

namespace detail {

// A stack in an arena that grows by moving; what is left behind goes with the arena.
template <class T> class ArenaStack {
public:
    explicit ArenaStack(Arena &arena) : arena_(arena), items_(nullptr), size_(0), room_(0) {}

    T *grow(std::size_t count)
    {
        if (count > room_ - size_) {
            room_ = std::max(room_ * 2, size_ + count);
            room_ = std::max<std::size_t>(room_, 16);
            T *moved = allocate<T>(arena_, room_);
            if (size_ > 0) {
                std::memcpy(static_cast<void *>(moved), items_, size_ * sizeof(T));
            }
            items_ = moved;
        }
        T *added = items_ + size_;
        size_ += count;
        return added;
    }
    void shrink(std::size_t size) { size_ = size; }
    std::size_t size() const { return size_; }
    T &operator[](std::size_t index) { return items_[index]; }

private:
    static_assert(std::is_trivially_copyable_v<T>);
    Arena &arena_;
    T *items_;
    std::size_t size_;
    std::size_t room_;
};

struct Member {
    std::string_view name;
    std::uint32_t index;
};

inline bool in_name_order(const Member &a, const Member &b)
{
    return compare_utf16(a.name, b.name) < 0;
}

inline void sort_members(Member *members, std::size_t count)
{
    constexpr std::size_t few = 16;
    if (count > few) {
        std::sort(members, members + count, in_name_order);
        return;
    }
    for (std::size_t i = 1; i < count; i++) {
        const Member member = members[i];
        std::size_t hole = i;
        for (; hole > 0 && in_name_order(member, members[hole - 1]); hole--) {
            members[hole] = members[hole - 1];
        }
        members[hole] = member;
    }
}

// RFC 6901: "0", or digits that don't begin with 0.
inline bool is_index(std::string_view token, std::uint32_t index)
{
    char digits[10];
    std::size_t start = sizeof(digits);
    do {
        digits[--start] = static_cast<char>('0' + index % 10);
        index /= 10;
    } while (index > 0);
    return token == std::string_view{digits + start, sizeof(digits) - start};
}

} // namespace detail

template <class Document> class Canonicalizer {
public:
    Canonicalizer(const Document &document, const IgnoreList &ignored, Numbers numbers, Arena &arena,
                  Writer &out)
        : document_(document), ignored_(ignored), numbers_(numbers), out_(out), frames_(arena),
          members_(arena)
    {
    }

    CanonicalError run()
    {
        const std::uint64_t all =
            ignored_.count == max_ignored ? ~std::uint64_t{0} : (std::uint64_t{1} << ignored_.count) - 1;
        CanonicalError error = begin_value(document_.root(), all);
        while (error == CanonicalError::none && frames_.size() > 0) {
            error = step();
        }
        return error;
    }

private:
    using Node = typename Document::Node;

    struct Frame {
        Node node;
        std::uint64_t following; // the pointers whose tokens match the way to here
        std::size_t first_member;
        std::uint32_t size;
        std::uint32_t next;
        bool object;
        bool wrote;
    };

    // Writes a scalar, or opens a container.
    CanonicalError begin_value(Node node, std::uint64_t following)
    {
        switch (document_.kind(node)) {
        case Kind::null:
            out_.put("null");
            break;
        case Kind::boolean:
            out_.put(document_.boolean(node) ? std::string_view{"true"} : std::string_view{"false"});
            break;
        case Kind::number:
            if (numbers_ == Numbers::lossless) {
                write_lossless(document_.number(node), out_);
            } else if (!write_strict(document_.number(node), out_)) {
                return CanonicalError::number_overflow;
            }
            break;
        case Kind::string:
            return write_string(document_.string(node), out_) ? CanonicalError::none
                                                              : CanonicalError::invalid_utf8;
        case Kind::array:
        case Kind::object:
            open(node, following);
            break;
        }
        return CanonicalError::none;
    }

    void open(Node node, std::uint64_t following)
    {
        document_.pause();
        Frame frame{};
        frame.node = node;
        frame.following = following;
        frame.first_member = members_.size();
        frame.size = document_.size(node);
        frame.object = document_.kind(node) == Kind::object;
        if (frame.object) {
            detail::Member *members = members_.grow(frame.size);
            for (std::uint32_t i = 0; i < frame.size; i++) {
                members[i] = detail::Member{document_.name(node, i), i};
            }
            detail::sort_members(members, frame.size);
        }
        *frames_.grow(1) = frame;
        out_.put(frame.object ? '{' : '[');
    }

    // Goes on with the innermost open container.
    CanonicalError step()
    {
        Frame &frame = frames_[frames_.size() - 1];
        if (frame.next == frame.size) {
            out_.put(frame.object ? '}' : ']');
            members_.shrink(frame.first_member);
            frames_.shrink(frames_.size() - 1);
            return CanonicalError::none;
        }

        const std::uint32_t position = frame.next++;
        std::uint64_t following = 0;
        if (!frame.object) {
            if (left_out(frame, {}, position, following)) {
                return CanonicalError::none;
            }
            separate(frame);
            return begin_value(document_.element(frame.node, position), following);
        }
        const detail::Member member = members_[frame.first_member + position];
        if (left_out(frame, member.name, 0, following)) {
            return CanonicalError::none;
        }
        separate(frame);
        if (!write_string(member.name, out_)) {
            return CanonicalError::invalid_utf8;
        }
        out_.put(':');
        return begin_value(document_.value(frame.node, member.index), following);
    }

    void separate(Frame &frame)
    {
        if (frame.wrote) {
            out_.put(',');
        }
        frame.wrote = true;
    }

    // Is the member or element named by a pointer's last token? Else: which pointers go on into it?
    bool left_out(const Frame &frame, std::string_view name, std::uint32_t index, std::uint64_t &following)
    {
        const std::size_t depth = frames_.size() - 1;
        for (std::uint64_t rest = frame.following; rest != 0; rest &= rest - 1) {
            const auto bit = static_cast<std::size_t>(__builtin_ctzll(rest));
            const Pointer &pointer = ignored_.pointers[bit];
            const std::string_view token = pointer.tokens[depth];
            if (frame.object ? token != name : !detail::is_index(token, index)) {
                continue;
            }
            if (pointer.count == depth + 1) {
                return true;
            }
            following |= std::uint64_t{1} << bit;
        }
        return false;
    }

    const Document &document_;
    const IgnoreList &ignored_;
    Numbers numbers_;
    Writer &out_;
    detail::ArenaStack<Frame> frames_;
    detail::ArenaStack<detail::Member> members_;
};

template <class Document>
CanonicalError canonicalize(const Document &document, const IgnoreList &ignored, Numbers numbers,
                            Arena &arena, Writer &out)
{
    static_assert(std::is_trivially_copyable_v<typename Document::Node>);
    static_assert(std::is_trivially_destructible_v<Canonicalizer<Document>>);
    return Canonicalizer<Document>{document, ignored, numbers, arena, out}.run();
}

} // namespace idem::core
