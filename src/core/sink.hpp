/*
 * Where the core's output goes: a sink that it is handed, through a small buffer of its own.
 */
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace idem::core {

struct Sink {
    void *context;
    void (*write)(void *context, const char *data, std::size_t size); // may not return
};
static_assert(std::is_trivially_destructible_v<Sink>);

class Writer {
public:
    // cppcheck-suppress uninitMemberVar ; the buffer is written before it is read
    explicit Writer(Sink sink) : sink_(sink), used_(0) {}

    void put(char byte)
    {
        if (used_ == sizeof(buffer_)) {
            flush();
        }
        buffer_[used_++] = byte;
    }

    void put(std::string_view bytes)
    {
        if (bytes.size() > sizeof(buffer_) - used_) {
            flush();
            if (bytes.size() >= sizeof(buffer_)) {
                sink_.write(sink_.context, bytes.data(), bytes.size());
                return;
            }
        }
        std::memcpy(buffer_ + used_, bytes.data(), bytes.size());
        used_ += bytes.size();
    }

    void flush()
    {
        if (used_ > 0) {
            const std::size_t size = used_;
            used_ = 0;
            sink_.write(sink_.context, buffer_, size);
        }
    }

private:
    Sink sink_;
    std::size_t used_;
    char buffer_[4096];
};
static_assert(std::is_trivially_destructible_v<Writer>);

} // namespace idem::core
