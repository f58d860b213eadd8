// What must hold whatever the fuzzer sends.
#pragma once

#include <cstdlib>

namespace idem::test {

inline void require(bool condition)
{
    if (!condition) {
        std::abort();
    }
}

} // namespace idem::test
