#include "pg/key_store.hpp"

#include "pg/errors.hpp"
#include "pg/settings.hpp"

namespace idem::pg {

namespace {

constexpr const char *table_name = "idempotency_keys";

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
};

// What the saved plans take; `replace` takes the same parameters in the same order as `insert`.
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

constexpr Oid parameter_types[parameter_count] = {
    TEXTOID,  TEXTOID, BYTEAOID,       TEXTOID,        INT4OID,        JSONBOID, JSONBOID,
    BYTEAOID, INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT2OID,  TEXTARRAYOID,
};

constexpr const char *look_sql =
    "SELECT tenant_id, key, request_hash, status, response_status, response_headers, response_body, "
    "response_raw_body, attempt, claim_token, lease_expires_at, created_at, completed_at, expires_at, "
    "fingerprint_version, ignored_fields FROM %s "
    "WHERE tenant_id OPERATOR(pg_catalog.=) $1 AND key OPERATOR(pg_catalog.=) $2";

constexpr const char *insert_sql =
    "INSERT INTO %s (tenant_id, key, request_hash, status, response_status, response_headers, response_body, "
    "response_raw_body, attempt, created_at, completed_at, expires_at, fingerprint_version, ignored_fields) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";

// The condition looks again, since the lock can't be shared by two Citus coordinators: a row that another one
// has completed meanwhile is not replaced, and the INSERT that follows fails on the primary key.
constexpr const char *replace_sql =
    "UPDATE %s SET request_hash = $3, status = $4, response_status = $5, response_headers = $6, "
    "response_body = $7, response_raw_body = $8, attempt = $9, claim_token = NULL, lease_expires_at = NULL, "
    "created_at = $10, completed_at = $11, expires_at = $12, fingerprint_version = $13, ignored_fields = $14 "
    "WHERE tenant_id OPERATOR(pg_catalog.=) $1 AND key OPERATOR(pg_catalog.=) $2 "
    "AND (status OPERATOR(pg_catalog.<>) 'completed' OR expires_at OPERATOR(pg_catalog.<=) $10)";

// What this backend knows of the table; valid for one relation, plainness until the relation changes.
struct Cache {
    Oid relation;
    SPIPlanPtr look;
    SPIPlanPtr insert;
    SPIPlanPtr replace;
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

void drop_plan(SPIPlanPtr &plan)
{
    if (plan != nullptr) {
        SPI_freeplan(plan);
        plan = nullptr;
    }
}

// After DROP and CREATE EXTENSION the table is another one.
void select_relation(Oid relation)
{
    if (cache.relation == relation) {
        return;
    }
    cache.relation = InvalidOid;
    cache.examined = false;
    drop_plan(cache.look);
    drop_plan(cache.insert);
    drop_plan(cache.replace);
    cache.relation = relation;
}

struct Rights {
    Oid user;
    int context;
};

// As ri_triggers.c does around its queries. An error on the way restores the user with the (sub)transaction.
Rights assume_owner(Oid relation)
{
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
    if (!HeapTupleIsValid(tuple)) {
        elog(ERROR, "cache lookup failed for relation %u", relation);
    }
    const Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);

    Rights caller;
    GetUserIdAndSecContext(&caller.user, &caller.context);
    SetUserIdAndSecContext(owner, caller.context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);
    return caller;
}

void restore_rights(Rights caller)
{
    SetUserIdAndSecContext(caller.user, caller.context);
}

void connect()
{
    const int result = SPI_connect();
    if (result != SPI_OK_CONNECT) {
        elog(ERROR, "SPI_connect failed: %s", SPI_result_code_string(result));
    }
}

SPIPlanPtr saved_plan(SPIPlanPtr &plan, const KeyTable &table, const char *sql, int parameters)
{
    if (plan == nullptr) {
        char *command = psprintf(
            sql, quote_qualified_identifier(get_namespace_name(table.schema), get_rel_name(table.relation)));
        SPIPlanPtr prepared = SPI_prepare_cursor(command, parameters, const_cast<Oid *>(parameter_types),
                                                 CURSOR_OPT_GENERIC_PLAN);
        if (prepared == nullptr) {
            elog(ERROR, "SPI_prepare_cursor failed: %s", SPI_result_code_string(SPI_result));
        }
        SPI_keepplan(prepared);
        plan = prepared;
    }
    return plan;
}

// A plan that was made while the table was empty must not scan it whole when it has grown.
int begin_index_plans()
{
    const int level = NewGUCNestLevel();
    (void)set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                            false);
    return level;
}

void end_index_plans(int level)
{
    AtEOXact_GUC(true, level);
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
        const Rights caller = assume_owner(table.relation);
        connect();
        CachedPlan *plan = SPI_plan_get_cached_plan(saved_plan(cache.look, table, look_sql, 2));
        if (plan != nullptr) {
            cache.plain = is_ordinary_scan(plan);
            ReleaseCachedPlan(plan, CurrentResourceOwner);
        }
        SPI_finish();
        restore_rights(caller);
    }
    cache.examined = true;
}

core::RowStatus row_status(Datum value)
{
    const std::string_view name = bytes_of(DatumGetTextPP(value));
    if (name == "completed") {
        return core::RowStatus::completed;
    }
    if (name == "failed_retryable") {
        return core::RowStatus::failed_retryable;
    }
    if (name != "in_progress") { // written by hand or by a later version: nobody may guess
        elog(ERROR, "unexpected status in table \"%s\"", table_name);
    }
    return core::RowStatus::in_progress;
}

const char *status_name(core::RowStatus status)
{
    switch (status) {
    case core::RowStatus::completed:
        return "completed";
    case core::RowStatus::failed_retryable:
        return "failed_retryable";
    case core::RowStatus::in_progress:
    case core::RowStatus::none:
        break;
    }
    return "in_progress";
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
    if (hash.size() == sizeof(row.request_hash)) {
        memcpy(row.request_hash, hash.data(), sizeof(row.request_hash));
    }
    row.fingerprint_version = DatumGetInt16(value(fingerprint_version));
    row.ignored_fields = is_null(ignored_fields) ? nullptr : DatumGetArrayTypePCopy(value(ignored_fields));
    row.attempt = DatumGetInt32(value(attempt));
    row.response_status = is_null(response_status) ? 0 : DatumGetInt32(value(response_status));
    row.headers = jsonb(response_headers);
    row.body = jsonb(response_body);
    row.raw_body = is_null(response_raw_body) ? nullptr : DatumGetByteaPCopy(value(response_raw_body));
    row.lease_expires_at = timestamp(lease_expires_at);
    row.created_at = timestamp(created_at);
    row.completed_at = timestamp(completed_at);
    row.expires_at = timestamp(expires_at);
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
    const Rights caller = assume_owner(table.relation);
    connect();
    Datum values[2] = {PointerGetDatum(text_of(name.tenant)), PointerGetDatum(text_of(name.key))};

    const int level = begin_index_plans();
    const int result = SPI_execute_snapshot(saved_plan(cache.look, table, look_sql, 2), values, nullptr,
                                            eyes == Eyes::newest ? GetLatestSnapshot() : InvalidSnapshot,
                                            InvalidSnapshot, true, false, 1);
    end_index_plans(level);
    if (result != SPI_OK_SELECT) {
        elog(ERROR, "SPI_execute_snapshot failed: %s", SPI_result_code_string(result));
    }

    StoredKey row{};
    if (SPI_processed > 0) {
        MemoryContext spi_context = MemoryContextSwitchTo(caller_context);
        row = read_row(SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
        MemoryContextSwitchTo(spi_context);
    }
    SPI_finish();
    restore_rights(caller);
    return row;
}

} // namespace

KeyTable key_table_beside(Oid function)
{
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(tuple)) {
        elog(ERROR, "cache lookup failed for function %u", function);
    }
    KeyTable table;
    table.schema = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple))->pronamespace;
    ReleaseSysCache(tuple);

    table.relation = get_relname_relid(table_name, table.schema);
    if (!OidIsValid(table.relation)) {
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                        errmsg("table \"%s\" of extension \"idempotency\" does not exist", table_name),
                        errdetail("It belongs in the schema of the extension's functions, \"%s\".",
                                  get_namespace_name(table.schema)),
                        errhint("Drop and create the extension, or restore the table from a backup.")));
    }
    return table;
}

StoredKey look(const KeyTable &table, const KeyName &name, Eyes eyes)
{
    LockRelationOid(table.relation, AccessShareLock); // and hear of changes to it
    select_relation(table.relation);
    if (!cache.examined) {
        examine(table);
    }
    if (cache.plain && settings.direct_lookup) {
        return look_directly(table, name, eyes);
    }
    return look_by_plan(table, name, eyes);
}

void store(const KeyTable &table, const KeyName &name, const StoredKey &run, bool replaces_row)
{
    select_relation(table.relation);
    const Rights caller = assume_owner(table.relation);
    connect();

    Datum values[parameter_count];
    char nulls[parameter_count];
    memset(nulls, ' ', sizeof(nulls));
    const auto set_or_null = [&](Parameter parameter, const void *pointer) {
        values[parameter] = PointerGetDatum(pointer);
        nulls[parameter] = pointer == nullptr ? 'n' : ' ';
    };
    values[p_tenant] = PointerGetDatum(text_of(name.tenant));
    values[p_key] = PointerGetDatum(text_of(name.key));
    values[p_request_hash] = PointerGetDatum(bytea_of(run.request_hash, sizeof(run.request_hash)));
    values[p_status] = PointerGetDatum(text_of(status_name(run.status)));
    values[p_response_status] = Int32GetDatum(run.response_status);
    set_or_null(p_response_headers, run.headers);
    set_or_null(p_response_body, run.body);
    set_or_null(p_response_raw_body, run.raw_body);
    values[p_attempt] = Int32GetDatum(run.attempt);
    values[p_created_at] = TimestampTzGetDatum(run.created_at);
    values[p_completed_at] = TimestampTzGetDatum(run.completed_at);
    values[p_expires_at] = TimestampTzGetDatum(run.expires_at);
    values[p_fingerprint_version] = Int16GetDatum(run.fingerprint_version);
    set_or_null(p_ignored_fields, run.ignored_fields);

    std::uint64_t stored = 0;
    if (replaces_row) {
        // the row may be newer than the transaction's snapshot, as the look was
        const int level = begin_index_plans();
        const int result =
            SPI_execute_snapshot(saved_plan(cache.replace, table, replace_sql, parameter_count), values,
                                 nulls, GetLatestSnapshot(), InvalidSnapshot, false, true, 0);
        end_index_plans(level);
        if (result != SPI_OK_UPDATE) {
            elog(ERROR, "SPI_execute_snapshot failed: %s", SPI_result_code_string(result));
        }
        stored = SPI_processed;
    }
    if (stored == 0) { // nothing to replace, or a purge was faster
        const int result = SPI_execute_plan(saved_plan(cache.insert, table, insert_sql, parameter_count),
                                            values, nulls, false, 0);
        if (result != SPI_OK_INSERT) {
            elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
        }
        stored = SPI_processed;
    }
    if (stored != 1) {
        ereport(ERROR, (errcode(errcode_response_not_stored),
                        errmsg("the response for idempotency key \"%s\" of tenant \"%s\" was not stored",
                               cstring_of(name.key), cstring_of(name.tenant)),
                        errdetail("The table \"%s\" took %llu rows instead of one.", table_name,
                                  static_cast<unsigned long long>(stored)),
                        errhint("Look for a trigger or rule on the table that drops or redirects rows.")));
    }
    SPI_finish();
    restore_rights(caller);
}

void register_store_callbacks()
{
    CacheRegisterRelcacheCallback(on_relation_change, Datum{0});
}

} // namespace idem::pg
