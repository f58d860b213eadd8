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

shmem_request_hook_type previous_request_hook;
shmem_startup_hook_type previous_startup_hook;

void request_memory()
{
    if (previous_request_hook != nullptr) {
        previous_request_hook();
    }
    RequestAddinShmemSpace(MAXALIGN(sizeof(SharedCounts)));
}

void attach_memory()
{
    if (previous_startup_hook != nullptr) {
        previous_startup_hook();
    }
    bool found = false;
    LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
    shared =
        static_cast<SharedCounts *>(ShmemInitStruct("idempotency counters", sizeof(SharedCounts), &found));
    if (!found) {
        shared->since = GetCurrentTimestamp();
        for (pg_atomic_uint64 &value : shared->values) {
            pg_atomic_init_u64(&value, 0);
        }
    }
    LWLockRelease(AddinShmemInitLock);
}

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
    if (process_shared_preload_libraries_in_progress) {
        previous_request_hook = shmem_request_hook;
        shmem_request_hook = request_memory;
        previous_startup_hook = shmem_startup_hook;
        shmem_startup_hook = attach_memory;
    }
}

} // namespace idem::pg
