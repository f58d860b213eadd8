#include "pg/counters.hpp"

namespace idem::pg {

namespace {

struct SharedCounts {
    TimestampTz since;
    pg_atomic_uint64 values[counter_count];
};
static_assert(std::is_trivially_destructible_v<SharedCounts>);

SharedCounts *shared; // null: the library is not preloaded
Counts local;

} // namespace

void count(Counter counter, std::uint64_t by)
{
    const auto index = static_cast<std::size_t>(counter);
    if (shared != nullptr) {
        pg_atomic_fetch_add_u64(&shared->values[index], static_cast<std::int64_t>(by));
    } else {
        local.values[index] += by;
    }
}

Counts current_counts()
{
    if (shared == nullptr) {
        return local;
    }
    Counts counts;
    counts.whole_server = true;
    counts.since = shared->since;
    for (std::size_t i = 0; i < counter_count; i++) {
        counts.values[i] = pg_atomic_read_u64(&shared->values[i]);
    }
    return counts;
}

void prepare_counters()
{
    local.since = GetCurrentTimestamp();
}

std::size_t shared_counters_size()
{
    return sizeof(SharedCounts);
}

void share_counters(void *memory, bool fresh)
{
    shared = static_cast<SharedCounts *>(memory);
    if (fresh) {
        shared->since = GetCurrentTimestamp();
        for (pg_atomic_uint64 &value : shared->values) {
            pg_atomic_init_u64(&value, 0);
        }
    }
}

} // namespace idem::pg
