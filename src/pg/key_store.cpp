#include "pg/key_store.hpp"

#include "pg/errors.hpp"
#include "pg/purge.hpp"
#include "pg/settings.hpp"

namespace idem::pg {

namespace {

// The columns by number, as sql/idempotency.sql creates them.
enum Column : AttrNumber {
    tenant_id = 1,
    key,
    request_hash,
    status,
    response_status,
    response_headers,
    response_body,
    response_raw_body,
    attempt,
    claim_token,
    lease_expires_at,
    created_at,
    completed_at,
    expires_at,
    fingerprint_version,
    ignored_fields,
    lease,
    checkpoint,
    checkpoint_state,
};

// What Statement::insert and Statement::replace take.
enum Parameter : std::uint8_t {
    p_tenant,
    p_key,
    p_request_hash,
    p_status,
    p_response_status,
    p_response_headers,
    p_response_body,
    p_response_raw_body,
    p_attempt,
    p_created_at,
    p_completed_at,
    p_expires_at,
    p_fingerprint_version,
    p_ignored_fields,
    parameter_count,
};

// What this backend knows of the table, until it changes or is another one.
struct Cache {
    Oid relation;
    bool examined;
    bool plain;
    Oid primary_key;
};
static_assert(std::is_trivially_destructible_v<Cache>);

Cache cache;

void on_relation_change(Datum, Oid relation)
{
    if (relation == cache.relation || relation == InvalidOid) {
        cache.examined = false;
    }
}

bool is_ordinary_scan(const CachedPlan *plan)
{
    if (list_length(plan->stmt_list) != 1) {
        return false;
    }
    const PlannedStmt *statement = linitial_node(PlannedStmt, plan->stmt_list);
    if (statement->commandType != CMD_SELECT || statement->planTree == nullptr) {
        return false;
    }
    switch (nodeTag(statement->planTree)) {
    case T_SeqScan:
    case T_IndexScan:
    case T_IndexOnlyScan:
    case T_BitmapHeapScan:
        return true;
    default:
        return false;
    }
}

// Is the table one that systable_beginscan() reads as the planner would?
void examine(const KeyTable &table)
{
    cache.plain = false;
    cache.primary_key = InvalidOid;

    Relation relation = table_open(table.relation, NoLock);
    const bool heap =
        relation->rd_rel->relkind == RELKIND_RELATION && relation->rd_rel->relam == HEAP_TABLE_AM_OID;
    if (heap) {
        list_free(RelationGetIndexList(relation));
        cache.primary_key = relation->rd_pkindex;
    }
    table_close(relation, NoLock);

    if (OidIsValid(cache.primary_key)) {
        const Rights caller = begin_statements(table);
        CachedPlan *plan = SPI_plan_get_cached_plan(plan_of(table, Statement::look));
        if (plan != nullptr) {
            cache.plain = is_ordinary_scan(plan);
            ReleaseCachedPlan(plan, CurrentResourceOwner);
        }
        end_statements(caller);
    }
    cache.relation = table.relation;
    cache.examined = true;
}

core::RowStatus row_status(Datum value)
{
    const std::string_view name = bytes_of(DatumGetTextPP(value));
    for (const core::RowStatus candidate :
         {core::RowStatus::completed, core::RowStatus::in_progress, core::RowStatus::failed_retryable}) {
        if (name == core::row_status_name(candidate)) {
            return candidate;
        }
    }
    // written by hand or by a later version: nobody may guess
    elog(ERROR, "unexpected status in table \"%s\"", key_table_name);
}

// Copies a row whose columns are in the table's order into the current context.
StoredKey read_row(HeapTuple tuple, TupleDesc descriptor)
{
    const std::size_t columns = descriptor->natts;
    auto *values = static_cast<Datum *>(palloc(columns * (sizeof(Datum) + sizeof(bool))));
    auto *nulls = reinterpret_cast<bool *>(values + columns);
    heap_deform_tuple(tuple, descriptor, values, nulls);

    const auto is_null = [nulls](Column column) { return nulls[column - 1]; };
    const auto value = [values](Column column) { return values[column - 1]; };
    const auto timestamp = [&](Column column) {
        return is_null(column) ? TimestampTz{0} : DatumGetTimestampTz(value(column));
    };
    const auto jsonb = [&](Column column) {
        return is_null(column) ? nullptr : DatumGetJsonbPCopy(value(column));
    };

    StoredKey row{};
    row.status = row_status(value(status));
    const std::string_view hash = bytes_of(DatumGetByteaPP(value(request_hash)));
    if (hash.size() == sizeof(row.fingerprint.bytes)) {
        memcpy(row.fingerprint.bytes, hash.data(), sizeof(row.fingerprint.bytes));
    }
    row.fingerprint.version = DatumGetInt16(value(fingerprint_version));
    row.fingerprint.ignored_fields =
        is_null(ignored_fields) ? nullptr : DatumGetArrayTypePCopy(value(ignored_fields));
    row.attempt = DatumGetInt32(value(attempt));
    row.response_status = is_null(response_status) ? 0 : DatumGetInt32(value(response_status));
    row.headers = jsonb(response_headers);
    row.body = jsonb(response_body);
    row.raw_body = is_null(response_raw_body) ? nullptr : DatumGetByteaPCopy(value(response_raw_body));
    if (!is_null(claim_token)) {
        memcpy(row.token, DatumGetUUIDP(value(claim_token))->data, sizeof(row.token));
    }
    row.lease_expires_at = timestamp(lease_expires_at);
    row.lease = is_null(lease) ? 0 : microseconds_of(DatumGetIntervalP(value(lease)));
    row.created_at = timestamp(created_at);
    row.completed_at = timestamp(completed_at);
    row.expires_at = timestamp(expires_at);
    row.checkpoint = is_null(checkpoint) ? nullptr : DatumGetTextPCopy(value(checkpoint));
    row.checkpoint_state = jsonb(checkpoint_state);
    pfree(values);
    return row;
}

StoredKey look_directly(const KeyTable &table, const KeyName &name, Eyes eyes)
{
    Relation relation = table_open(table.relation, NoLock);
    text *tenant_text = text_of(name.tenant);
    text *key_text = text_of(name.key);
    ScanKeyData keys[2];
    // ScanKeyInit means the collation "C", which is the columns'
    ScanKeyInit(&keys[0], tenant_id, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(tenant_text));
    ScanKeyInit(&keys[1], key, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(key_text));

    StoredKey row{};
    SysScanDesc scan = systable_beginscan(relation, cache.primary_key, true,
                                          eyes == Eyes::newest ? SnapshotSelf : GetActiveSnapshot(), 2, keys);
    HeapTuple tuple = systable_getnext(scan);
    if (HeapTupleIsValid(tuple)) {
        row = read_row(tuple, RelationGetDescr(relation));
    }
    systable_endscan(scan);
    table_close(relation, NoLock);
    pfree(tenant_text);
    pfree(key_text);
    return row;
}

StoredKey look_by_plan(const KeyTable &table, const KeyName &name, Eyes eyes)
{
    MemoryContext caller_context = CurrentMemoryContext;
    const Rights caller = begin_statements(table);
    Datum values[2] = {PointerGetDatum(text_of(name.tenant)), PointerGetDatum(text_of(name.key))};

    StoredKey row{};
    if (execute(table, Statement::look, values, nullptr, eyes, 1) > 0) {
        MemoryContext spi_context = MemoryContextSwitchTo(caller_context);
        row = read_row(SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
        MemoryContextSwitchTo(spi_context);
    }
    end_statements(caller);
    return row;
}

// As the look does, so that serializable transactions of one tenant don't abort each other over the count.
KeyCount count_directly(const KeyTable &table, std::string_view tenant, std::string_view after, int most)
{
    Relation relation = table_open(table.relation, NoLock);
    text *tenant_text = text_of(tenant);
    text *after_text = text_of(after);
    ScanKeyData keys[2];
    ScanKeyInit(&keys[0], tenant_id, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(tenant_text));
    ScanKeyInit(&keys[1], key, BTGreaterStrategyNumber, F_TEXT_GT, PointerGetDatum(after_text));
    SysScanDesc scan = systable_beginscan(relation, cache.primary_key, true, SnapshotSelf, 2, keys);

    KeyCount found{};
    HeapTuple tuple = nullptr;
    while (found.count < most && HeapTupleIsValid(tuple = systable_getnext(scan))) {
        found.count++;
        CHECK_FOR_INTERRUPTS();
    }
    if (found.count == most && most > 0) {
        bool null;
        found.last_key =
            bytes_of(DatumGetTextPCopy(heap_getattr(tuple, key, RelationGetDescr(relation), &null)));
    }
    systable_endscan(scan);
    table_close(relation, NoLock);
    pfree(tenant_text);
    pfree(after_text);
    return found;
}

KeyCount count_by_plan(const KeyTable &table, std::string_view tenant, std::string_view after, int most)
{
    MemoryContext caller_context = CurrentMemoryContext;
    const Rights caller = begin_statements(table);
    Datum values[] = {PointerGetDatum(text_of(tenant)), PointerGetDatum(text_of(after)), Int32GetDatum(most)};
    KeyCount found{};
    if (execute(table, Statement::count_keys, values, nullptr, Eyes::newest, 1) > 0) {
        const auto value = [](int column, bool &null) {
            return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &null);
        };
        bool null;
        found.count = static_cast<int>(DatumGetInt64(value(1, null)));
        const Datum last_key = value(2, null);
        if (!null) {
            MemoryContext spi_context = MemoryContextSwitchTo(caller_context);
            found.last_key = bytes_of(DatumGetTextPCopy(last_key));
            MemoryContextSwitchTo(spi_context);
        }
    }
    end_statements(caller);
    return found;
}

// Also hears of changes to the table.
bool reads_directly(const KeyTable &table)
{
    LockRelationOid(table.relation, AccessShareLock);
    if (!cache.examined || cache.relation != table.relation) {
        examine(table);
    }
    return cache.plain && settings.direct_lookup;
}

} // namespace

StoredKey look(const KeyTable &table, const KeyName &name, Eyes eyes)
{
    return reads_directly(table) ? look_directly(table, name, eyes) : look_by_plan(table, name, eyes);
}

KeyCount count_keys(const KeyTable &table, std::string_view tenant, std::string_view after, int most)
{
    return reads_directly(table) ? count_directly(table, tenant, after, most)
                                 : count_by_plan(table, tenant, after, most);
}

void store(const KeyTable &table, const KeyName &name, const StoredKey &run, bool replaces_row)
{
    if (replaces_row) {
        wait_for_purge();
    }
    const Rights caller = begin_statements(table);
    Datum values[parameter_count];
    char nulls[parameter_count];
    memset(nulls, ' ', sizeof(nulls));
    const auto set_or_null = [&](Parameter parameter, const void *pointer) {
        values[parameter] = PointerGetDatum(pointer);
        nulls[parameter] = pointer == nullptr ? 'n' : ' ';
    };
    values[p_tenant] = PointerGetDatum(text_of(name.tenant));
    values[p_key] = PointerGetDatum(text_of(name.key));
    values[p_request_hash] = PointerGetDatum(bytea_of(run.fingerprint.bytes, sizeof(run.fingerprint.bytes)));
    values[p_status] = PointerGetDatum(text_of(core::row_status_name(run.status)));
    values[p_response_status] = Int32GetDatum(run.response_status);
    set_or_null(p_response_headers, run.headers);
    set_or_null(p_response_body, run.body);
    set_or_null(p_response_raw_body, run.raw_body);
    values[p_attempt] = Int32GetDatum(run.attempt);
    values[p_created_at] = TimestampTzGetDatum(run.created_at);
    values[p_completed_at] = TimestampTzGetDatum(run.completed_at);
    values[p_expires_at] = TimestampTzGetDatum(run.expires_at);
    values[p_fingerprint_version] = Int16GetDatum(run.fingerprint.version);
    set_or_null(p_ignored_fields, run.fingerprint.ignored_fields);

    std::uint64_t stored = 0;
    if (replaces_row) {
        // the row may be newer than the transaction's snapshot, as the look was
        stored = execute(table, Statement::replace, values, nulls, Eyes::newest, 0);
    }
    if (stored == 0) { // nothing to replace, or a purge was faster
        stored = execute(table, Statement::insert, values, nulls, Eyes::snapshot, 0);
    }
    if (stored != 1) {
        refuse_not_stored(name, stored);
    }
    end_statements(caller);
}

void refuse_not_stored(const KeyName &name, std::uint64_t stored)
{
    ereport(ERROR, (errcode(errcode_response_not_stored),
                    errmsg("the response for idempotency key \"%s\" of tenant \"%s\" was not stored",
                           cstring_of(name.key), cstring_of(name.tenant)),
                    errdetail("The table \"%s\" took %llu rows instead of one.", key_table_name,
                              static_cast<unsigned long long>(stored)),
                    errhint("Look for a trigger or rule on the table that drops or redirects rows.")));
}

void register_store_callbacks()
{
    CacheRegisterRelcacheCallback(on_relation_change, Datum{0});
}

} // namespace idem::pg
