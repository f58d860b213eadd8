#include "pg/key_lock.hpp"

namespace idem::pg {

namespace {

LOCKTAG lock_tag(std::uint64_t hash, std::uint16_t lock_class)
{
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, static_cast<uint32>(hash >> 32), static_cast<uint32>(hash),
                         lock_class);
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

LockAcquireResult acquire(const LOCKTAG &tag, bool dont_wait)
{
    ResourceOwner caller = enter_savepoint_owner();
    const LockAcquireResult result = LockAcquire(&tag, ExclusiveLock, false, dont_wait);
    CurrentResourceOwner = caller;
    return result;
}

void release(const LOCKTAG &tag)
{
    ResourceOwner caller = enter_savepoint_owner();
    LockRelease(&tag, ExclusiveLock, false);
    CurrentResourceOwner = caller;
}

} // namespace

KeyLock try_key_lock(std::uint64_t hash)
{
    switch (acquire(lock_tag(hash, key_lock_class), true)) {
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
    (void)acquire(lock_tag(hash, key_lock_class), false);
}

void release_key_lock(std::uint64_t hash)
{
    release(lock_tag(hash, key_lock_class));
}

bool try_slot_lock(std::uint64_t hash)
{
    const LOCKTAG tag = lock_tag(hash, slot_lock_class);
    switch (acquire(tag, true)) {
    case LOCKACQUIRE_OK:
        return true;
    case LOCKACQUIRE_NOT_AVAIL:
        break;
    case LOCKACQUIRE_ALREADY_HELD:
    case LOCKACQUIRE_ALREADY_CLEAR:
        release(tag);
        break;
    }
    return false;
}

void release_slot_lock(std::uint64_t hash)
{
    release(lock_tag(hash, slot_lock_class));
}

bool key_lock_held_elsewhere(std::uint64_t hash)
{
    const LOCKTAG tag = lock_tag(hash, key_lock_class);
    int holders = 0;
    VirtualTransactionId *list = GetLockConflicts(&tag, ExclusiveLock, &holders);
    if (!InHotStandby) { // there it is the server's own
        pfree(list);
    }
    return holders > 0;
}

} // namespace idem::pg
