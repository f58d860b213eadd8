/*
 * Where the core's memory comes from: the caller's arena. Nothing is given back; the caller drops it as a
 * whole.
 */
#pragma once

#include <cstddef>
#include <type_traits>

namespace idem::core {

struct Arena {
    void *context;
    void *(*allocate)(void *context, std::size_t bytes); // never returns null; may not return at all
};
static_assert(std::is_trivially_destructible_v<Arena>);

template <class T> T *allocate(Arena &arena, std::size_t count)
{
    static_assert(std::is_trivially_destructible_v<T>);
    return static_cast<T *>(arena.allocate(arena.context, count * sizeof(T)));
}

} // namespace idem::core
