#include "pg/shared_memory.hpp"

#include "pg/counters.hpp"
#include "pg/limits.hpp"

namespace idem::pg {

namespace {

shmem_request_hook_type previous_request_hook;
shmem_startup_hook_type previous_startup_hook;

void request_memory()
{
    if (previous_request_hook != nullptr) {
        previous_request_hook();
    }
    RequestAddinShmemSpace(MAXALIGN(shared_counters_size()) + MAXALIGN(shared_limits_size()));
}

void attach_memory()
{
    if (previous_startup_hook != nullptr) {
        previous_startup_hook();
    }
    LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
    bool found = false;
    void *memory = ShmemInitStruct("idempotency counters", shared_counters_size(), &found);
    share_counters(memory, !found);
    memory = ShmemInitStruct("idempotency limits", shared_limits_size(), &found);
    share_limits(memory, !found);
    LWLockRelease(AddinShmemInitLock);
}

} // namespace

void prepare_shared_memory()
{
    if (process_shared_preload_libraries_in_progress) {
        previous_request_hook = shmem_request_hook;
        shmem_request_hook = request_memory;
        previous_startup_hook = shmem_startup_hook;
        shmem_startup_hook = attach_memory;
    }
}

} // namespace idem::pg
