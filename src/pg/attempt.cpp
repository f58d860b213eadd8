#include "pg/attempt.hpp"

namespace idem::pg {

ErrorData *attempt(bool (*work)(void *context), void *context)
{
    MemoryContext memory = CurrentMemoryContext;
    ResourceOwner owner = CurrentResourceOwner;
    ErrorData *volatile error = nullptr;
    volatile bool kept = false;

    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(memory);
    PG_TRY();
    {
        if (work(context)) {
            ReleaseCurrentSubTransaction();
            kept = true;
        }
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(memory);
        error = CopyErrorData();
        FlushErrorState();
    }
    PG_END_TRY();
    if (!kept) {
        RollbackAndReleaseCurrentSubTransaction();
    }
    MemoryContextSwitchTo(memory);
    CurrentResourceOwner = owner;
    return error;
}

} // namespace idem::pg
