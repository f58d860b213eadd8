#include "pg/key_lock.hpp"

namespace idem::pg {

namespace {

LOCKTAG key_lock_tag(std::uint64_t hash)
{
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, static_cast<uint32>(hash >> 32), static_cast<uint32>(hash),
                         key_lock_class);
    return tag;
}

// A portal opened before a savepoint has an owner of the outer level; the lock has to go with the savepoint
// in which the claim is made, as the claim's record does.
ResourceOwner enter_savepoint_owner()
{
    ResourceOwner caller = CurrentResourceOwner;
    CurrentResourceOwner = CurTransactionResourceOwner;
    return caller;
}

} // namespace

KeyLock try_key_lock(std::uint64_t hash)
{
    const LOCKTAG tag = key_lock_tag(hash);
    ResourceOwner caller = enter_savepoint_owner();
    const LockAcquireResult result = LockAcquire(&tag, ExclusiveLock, false, true);
    CurrentResourceOwner = caller;

    switch (result) {
    case LOCKACQUIRE_NOT_AVAIL:
        return KeyLock::busy;
    case LOCKACQUIRE_OK:
        return KeyLock::acquired;
    case LOCKACQUIRE_ALREADY_HELD:
    case LOCKACQUIRE_ALREADY_CLEAR:
        break;
    }
    return KeyLock::already_ours;
}

void wait_for_key_lock(std::uint64_t hash)
{
    const LOCKTAG tag = key_lock_tag(hash);
    ResourceOwner caller = enter_savepoint_owner();
    (void)LockAcquire(&tag, ExclusiveLock, false, false);
    CurrentResourceOwner = caller;
}

void release_key_lock(std::uint64_t hash)
{
    const LOCKTAG tag = key_lock_tag(hash);
    ResourceOwner caller = enter_savepoint_owner();
    LockRelease(&tag, ExclusiveLock, false);
    CurrentResourceOwner = caller;
}

bool key_lock_held_elsewhere(std::uint64_t hash)
{
    const LOCKTAG tag = key_lock_tag(hash);
    int holders = 0;
    VirtualTransactionId *list = GetLockConflicts(&tag, ExclusiveLock, &holders);
    if (!InHotStandby) { // there it is the server's own
        pfree(list);
    }
    return holders > 0;
}

} // namespace idem::pg
