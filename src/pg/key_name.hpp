#pragma once

#include <string_view>

namespace idem::pg {

struct KeyName {
    std::string_view tenant;
    std::string_view key;
};

} // namespace idem::pg
