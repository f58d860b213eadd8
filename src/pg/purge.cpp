#include "pg/purge.hpp"

#include "pg/key_lock.hpp"
#include "pg/request.hpp"

namespace idem::pg {

namespace {

LOCKTAG purge_lock_tag()
{
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, 0, purge_lock_class);
    return tag;
}

} // namespace

PurgeBatch purge_batch(const KeyTable &table, int size, TimestampTz from, TimestampTz now)
{
    PurgeBatch batch{};
    batch.reached = from;
    const LOCKTAG tag = purge_lock_tag();
    if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL) {
        batch.busy = true;
        return batch;
    }

    const Rights caller = begin_statements(table);
    Datum window[] = {TimestampTzGetDatum(from), TimestampTzGetDatum(now), Int32GetDatum(size)};
    const std::uint64_t found = execute(table, Statement::purge_select, window, nullptr, Eyes::newest, 0);
    batch.last = found < static_cast<std::uint64_t>(size);

    const SPITupleTable *rows = SPI_tuptable;
    auto *doomed = static_cast<Datum *>(palloc(Max(found, 1) * sizeof(Datum)));
    int count = 0;
    for (std::uint64_t i = 0; i < found; i++) {
        bool null;
        const Datum tenant = SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &null);
        const Datum key = SPI_getbinval(rows->vals[i], rows->tupdesc, 2, &null);
        batch.reached = DatumGetTimestampTz(SPI_getbinval(rows->vals[i], rows->tupdesc, 3, &null));
        if (key_lock_held_elsewhere(
                key_lock_hash(bytes_of(DatumGetTextPP(tenant)), bytes_of(DatumGetTextPP(key))))) {
            batch.passed_over++;
            continue;
        }
        doomed[count++] = SPI_getbinval(rows->vals[i], rows->tupdesc, 4, &null);
    }
    if (count > 0) {
        ArrayType *addresses =
            construct_array(doomed, count, TIDOID, sizeof(ItemPointerData), false, TYPALIGN_SHORT);
        Datum values[] = {PointerGetDatum(addresses), TimestampTzGetDatum(now)};
        batch.purged = execute(table, Statement::purge_delete, values, nullptr, Eyes::newest, 0);
    }
    end_statements(caller);
    return batch;
}

// Waits without taking the lock: a purge that comes just now must not take us for another purge.
void wait_for_purge()
{
    const LOCKTAG tag = purge_lock_tag();
    int count = 0;
    VirtualTransactionId *purges = GetLockConflicts(&tag, ExclusiveLock, &count);
    for (int i = 0; i < count; i++) {
        (void)VirtualXactLock(purges[i], true);
    }
    pfree(purges);
}

std::uint64_t forget_key(const KeyTable &table, const KeyName &name)
{
    wait_for_key_lock(key_lock_hash(name.tenant, name.key));
    const Rights caller = begin_statements(table);
    Datum values[] = {PointerGetDatum(text_of(name.tenant)), PointerGetDatum(text_of(name.key))};
    const std::uint64_t count = execute(table, Statement::forget_key, values, nullptr, Eyes::newest, 0);
    end_statements(caller);
    return count;
}

std::uint64_t forget_tenant(const KeyTable &table, std::string_view tenant)
{
    const Rights caller = begin_statements(table);
    Datum values[] = {PointerGetDatum(text_of(tenant))};
    const std::uint64_t count = execute(table, Statement::forget_tenant, values, nullptr, Eyes::newest, 0);
    end_statements(caller);
    return count;
}

} // namespace idem::pg
