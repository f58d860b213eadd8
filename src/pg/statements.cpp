#include "pg/statements.hpp"

namespace idem::pg {

namespace {

struct Definition {
    const char *table;
    const char *sql; // %s: the table, qualified
    const Oid *types;
    int parameters;
};

constexpr Oid look_types[] = {TEXTOID, TEXTOID};

constexpr Oid count_types[] = {TEXTOID, TEXTOID, INT4OID};

constexpr Oid store_types[] = {
    TEXTOID,  TEXTOID, BYTEAOID,       TEXTOID,        INT4OID,        JSONBOID, JSONBOID,
    BYTEAOID, INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT2OID,  TEXTARRAYOID,
};

constexpr Oid lease_types[] = {
    TEXTOID,     TEXTOID,        BYTEAOID,       INT4OID, UUIDOID,      TIMESTAMPTZOID,
    INTERVALOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT2OID, TEXTARRAYOID, UUIDOID,
};

constexpr Oid lease_complete_types[] = {TEXTOID,  TEXTOID,  UUIDOID,  TEXTOID,        INT4OID,
                                        JSONBOID, JSONBOID, BYTEAOID, TIMESTAMPTZOID, TIMESTAMPTZOID};

constexpr Oid lease_renew_types[] = {TEXTOID, TEXTOID, UUIDOID, TIMESTAMPTZOID, INTERVALOID};
constexpr Oid lease_checkpoint_types[] = {TEXTOID, TEXTOID, UUIDOID, TEXTOID, JSONBOID};

constexpr Oid purge_select_types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID};
constexpr Oid purge_delete_types[] = {TIDARRAYOID, TIMESTAMPTZOID};

constexpr Oid operation_types[] = {TEXTOID, TEXTOID,     BOOLOID,      INTERVALOID,
                                   BOOLOID, INTERVALOID, TEXTARRAYOID, JSONBOID};
constexpr Oid tenant_types[] = {REGROLEOID, TEXTOID};
constexpr Oid limit_types[] = {TEXTOID, INT4OID, INT4OID};

#define IDEM_THIS_KEY "WHERE tenant_id OPERATOR(pg_catalog.=) $1 AND key OPERATOR(pg_catalog.=) $2"
#define IDEM_EXPIRED                                                                                         \
    "expires_at OPERATOR(pg_catalog.<=) $2 AND (lease_expires_at IS NULL OR lease_expires_at "               \
    "OPERATOR(pg_catalog.<=) $2)"
#define IDEM_THIS_LEASE IDEM_THIS_KEY " AND claim_token OPERATOR(pg_catalog.=) $3"

// {id} and {payment} are one operation; the unique index has the same expression.
#define IDEM_PATTERN_SHAPE(pattern) "pg_catalog.regexp_replace(" pattern ", '\\{[^/]*\\}', '{}', 'g')"
#define IDEM_THIS_OPERATION                                                                                  \
    "WHERE method OPERATOR(pg_catalog.=) $1 AND " IDEM_PATTERN_SHAPE(                                        \
        "path_pattern") " OPERATOR(pg_catalog.=) " IDEM_PATTERN_SHAPE("$2")

// In the order of Statement.
constexpr Definition definitions[] = {
    // look
    {key_table_name,
     "SELECT tenant_id, key, request_hash, status, response_status, response_headers, response_body, "
     "response_raw_body, attempt, claim_token, lease_expires_at, created_at, completed_at, expires_at, "
     "fingerprint_version, ignored_fields, lease, checkpoint, checkpoint_state FROM %s " IDEM_THIS_KEY,
     look_types, lengthof(look_types)},
    // count_keys
    {key_table_name,
     "SELECT pg_catalog.count(*), pg_catalog.max(k.key) FROM (SELECT key FROM %s WHERE tenant_id "
     "OPERATOR(pg_catalog.=) $1 AND key OPERATOR(pg_catalog.>) $2 ORDER BY key LIMIT $3) AS k",
     count_types, lengthof(count_types)},
    // insert
    {key_table_name,
     "INSERT INTO %s (tenant_id, key, request_hash, status, response_status, response_headers, "
     "response_body, "
     "response_raw_body, attempt, created_at, completed_at, expires_at, fingerprint_version, ignored_fields) "
     "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
     store_types, lengthof(store_types)},
    // replace: looks again, since the lock can't be shared by two Citus coordinators. A row that another one has
    // completed meanwhile is not replaced, and the INSERT that follows fails on the primary key.
    {key_table_name,
     "UPDATE %s SET request_hash = $3, status = $4, response_status = $5, response_headers = $6, "
     "response_body = $7, response_raw_body = $8, attempt = $9, claim_token = NULL, lease_expires_at = NULL, "
     "created_at = $10, completed_at = $11, expires_at = $12, fingerprint_version = $13, ignored_fields = "
     "$14, "
     "lease = NULL, "
     "checkpoint = CASE WHEN $4 OPERATOR(pg_catalog.=) 'failed_retryable' AND $9 OPERATOR(pg_catalog.>) 1 "
     "THEN checkpoint END, "
     "checkpoint_state = CASE WHEN $4 OPERATOR(pg_catalog.=) 'failed_retryable' AND $9 "
     "OPERATOR(pg_catalog.>) 1 "
     "THEN checkpoint_state END " IDEM_THIS_KEY
     " AND (status OPERATOR(pg_catalog.<>) 'completed' OR expires_at OPERATOR(pg_catalog.<=) $10)",
     store_types, lengthof(store_types)},
    // lease_insert: $12 is not used
    {key_table_name,
     "INSERT INTO %s (tenant_id, key, request_hash, status, attempt, claim_token, lease_expires_at, lease, "
     "created_at, expires_at, fingerprint_version, ignored_fields) "
     "VALUES ($1, $2, $3, 'in_progress', $4, $5, $6, $7, $8, $9, $10, $11)",
     lease_types, lengthof(lease_types)},
    // lease_probe: who deletes or changes the row right now would make us wait
    {key_table_name, "SELECT 1 FROM %s " IDEM_THIS_KEY " FOR UPDATE SKIP LOCKED", look_types,
     lengthof(look_types)},
    // lease_take_over: of the run that was seen ($12) and no other. The key's life goes on, unless it had expired.
    {key_table_name,
     "UPDATE %s SET request_hash = $3, status = 'in_progress', response_status = NULL, response_headers = "
     "NULL, "
     "response_body = NULL, response_raw_body = NULL, attempt = $4, claim_token = $5, lease_expires_at = $6, "
     "lease = $7, created_at = CASE WHEN $4 OPERATOR(pg_catalog.=) 1 THEN $8 ELSE created_at END, "
     "completed_at = NULL, expires_at = CASE WHEN $4 OPERATOR(pg_catalog.=) 1 THEN $9 ELSE expires_at END, "
     "fingerprint_version = $10, ignored_fields = $11, "
     "checkpoint = CASE WHEN $4 OPERATOR(pg_catalog.>) 1 THEN checkpoint END, "
     "checkpoint_state = CASE WHEN $4 OPERATOR(pg_catalog.>) 1 THEN checkpoint_state END " IDEM_THIS_KEY
     " AND (status OPERATOR(pg_catalog.<>) 'completed' OR expires_at OPERATOR(pg_catalog.<=) $8)"
     " AND (claim_token OPERATOR(pg_catalog.=) $12 OR (claim_token IS NULL AND $12 IS NULL))",
     lease_types, lengthof(lease_types)},
    // lease_complete
    {key_table_name,
     "UPDATE %s SET status = $4, response_status = $5, response_headers = $6, response_body = $7, "
     "response_raw_body = $8, claim_token = NULL, lease_expires_at = NULL, lease = NULL, completed_at = $9, "
     "expires_at = CASE WHEN expires_at OPERATOR(pg_catalog.<) $10 THEN $10 ELSE expires_at END, "
     "checkpoint = CASE WHEN $4 OPERATOR(pg_catalog.=) 'failed_retryable' THEN checkpoint END, "
     "checkpoint_state = CASE WHEN $4 OPERATOR(pg_catalog.=) 'failed_retryable' THEN checkpoint_state "
     "END " IDEM_THIS_LEASE,
     lease_complete_types, lengthof(lease_complete_types)},
    // lease_renew
    {key_table_name, "UPDATE %s SET lease_expires_at = $4, lease = $5 " IDEM_THIS_LEASE, lease_renew_types,
     lengthof(lease_renew_types)},
    // lease_checkpoint
    {key_table_name, "UPDATE %s SET checkpoint = $4, checkpoint_state = $5 " IDEM_THIS_LEASE,
     lease_checkpoint_types, lengthof(lease_checkpoint_types)},
    // lease_release
    {key_table_name, "DELETE FROM %s " IDEM_THIS_LEASE, lease_checkpoint_types, 3},
    // purge_select: a lease that is alive outlives the key's own term
    {key_table_name,
     "SELECT tenant_id, key, expires_at, ctid FROM %s WHERE expires_at OPERATOR(pg_catalog.>=) $1 "
     "AND " IDEM_EXPIRED " ORDER BY expires_at USING OPERATOR(pg_catalog.<) LIMIT $3 FOR UPDATE SKIP LOCKED",
     purge_select_types, lengthof(purge_select_types)},
    // purge_delete: of a partitioned table, another row of the same address may go too, if it has expired as well
    {key_table_name, "DELETE FROM %s WHERE ctid OPERATOR(pg_catalog.=) ANY ($1) AND " IDEM_EXPIRED,
     purge_delete_types, lengthof(purge_delete_types)},
    // forget_key
    {key_table_name, "DELETE FROM %s " IDEM_THIS_KEY, look_types, 2},
    // forget_tenant
    {key_table_name, "DELETE FROM %s WHERE tenant_id OPERATOR(pg_catalog.=) $1", look_types, 1},
    // read_operations
    {operations_table_name,
     "SELECT method, path_pattern, key_required, retention, leased, lease, ignored_fields, statuses FROM %s",
     nullptr, 0},
    // update_operation
    {operations_table_name,
     "UPDATE %s SET path_pattern = $2, key_required = $3, retention = $4, leased = $5, lease = $6, "
     "ignored_fields = $7, statuses = $8 " IDEM_THIS_OPERATION,
     operation_types, lengthof(operation_types)},
    // insert_operation
    {operations_table_name,
     "INSERT INTO %s (method, path_pattern, key_required, retention, leased, lease, ignored_fields, "
     "statuses) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
     operation_types, lengthof(operation_types)},
    // delete_operation
    {operations_table_name, "DELETE FROM %s " IDEM_THIS_OPERATION, operation_types, 2},
    // read_tenants
    {tenants_table_name,
     "SELECT role::pg_catalog.oid, tenant_id FROM %s ORDER BY 1 USING OPERATOR(pg_catalog.<)", nullptr, 0},
    // insert_tenant
    {tenants_table_name, "INSERT INTO %s (role, tenant_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
     tenant_types, lengthof(tenant_types)},
    // delete_tenant
    {tenants_table_name,
     "DELETE FROM %s WHERE role::pg_catalog.oid OPERATOR(pg_catalog.=) $1::pg_catalog.oid "
     "AND tenant_id OPERATOR(pg_catalog.=) $2",
     tenant_types, lengthof(tenant_types)},
    // read_limits
    {limits_table_name, "SELECT tenant_id, max_keys, max_in_flight FROM %s", nullptr, 0},
    // store_limit
    {limits_table_name,
     "INSERT INTO %s (tenant_id, max_keys, max_in_flight) VALUES ($1, $2, $3) ON CONFLICT (tenant_id) "
     "DO UPDATE SET max_keys = excluded.max_keys, max_in_flight = excluded.max_in_flight",
     limit_types, lengthof(limit_types)},
    // delete_limit
    {limits_table_name,
     "DELETE FROM %s WHERE tenant_id OPERATOR(pg_catalog.=) $1 OR (tenant_id IS NULL AND $1 IS NULL)",
     limit_types, 1},
};
static_assert(lengthof(definitions) == statement_count);

// After DROP and CREATE EXTENSION the table is another one, and every plan is of the old one.
struct Plans {
    Oid relation;
    SPIPlanPtr plans[statement_count];
};
static_assert(std::is_trivially_destructible_v<Plans>);

Plans cache;

void select_relation(Oid relation)
{
    if (cache.relation == relation) {
        return;
    }
    cache.relation = InvalidOid;
    for (SPIPlanPtr &plan : cache.plans) {
        if (plan != nullptr) {
            SPI_freeplan(plan);
            plan = nullptr;
        }
    }
    cache.relation = relation;
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

    table.relation = table_beside(table, key_table_name);
    return table;
}

Oid table_beside(const KeyTable &table, const char *name)
{
    const Oid relation = get_relname_relid(name, table.schema);
    if (!OidIsValid(relation)) {
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                        errmsg("table \"%s\" of extension \"idempotency\" does not exist", name),
                        errdetail("It belongs in the schema of the extension's functions, \"%s\".",
                                  get_namespace_name(table.schema)),
                        errhint("Drop and create the extension, or restore the table from a backup.")));
    }
    return relation;
}

// As ri_triggers.c does around its queries.
Rights begin_statements(const KeyTable &table)
{
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table.relation));
    if (!HeapTupleIsValid(tuple)) {
        elog(ERROR, "cache lookup failed for relation %u", table.relation);
    }
    const Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);

    Rights caller;
    GetUserIdAndSecContext(&caller.user, &caller.context);
    SetUserIdAndSecContext(owner, caller.context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);

    const int result = SPI_connect();
    if (result != SPI_OK_CONNECT) {
        elog(ERROR, "SPI_connect failed: %s", SPI_result_code_string(result));
    }
    return caller;
}

void end_statements(Rights caller)
{
    SPI_finish();
    SetUserIdAndSecContext(caller.user, caller.context);
}

SPIPlanPtr plan_of(const KeyTable &table, Statement statement)
{
    select_relation(table.relation);
    const auto index = static_cast<std::size_t>(statement);
    SPIPlanPtr &plan = cache.plans[index];
    if (plan == nullptr) {
        const Definition &definition = definitions[index];
        char *command = psprintf(
            definition.sql, quote_qualified_identifier(get_namespace_name(table.schema), definition.table));
        SPIPlanPtr prepared = SPI_prepare_cursor(
            command, definition.parameters, const_cast<Oid *>(definition.types), CURSOR_OPT_GENERIC_PLAN);
        if (prepared == nullptr) {
            elog(ERROR, "SPI_prepare_cursor failed: %s", SPI_result_code_string(SPI_result));
        }
        SPI_keepplan(prepared);
        plan = prepared;
    }
    return plan;
}

std::uint64_t execute(const KeyTable &table, Statement statement, Datum *values, const char *nulls, Eyes eyes,
                      long limit)
{
    SPIPlanPtr plan = plan_of(table, statement);
    if (eyes == Eyes::snapshot && statement != Statement::look) {
        const int result = SPI_execute_plan(plan, values, nulls, false, limit);
        if (result < 0) {
            elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
        }
        return SPI_processed;
    }

    const bool reads = statement == Statement::look || statement == Statement::count_keys ||
                       statement == Statement::read_operations || statement == Statement::read_tenants ||
                       statement == Statement::read_limits;
    const int level = begin_index_plans();
    const int result = SPI_execute_snapshot(plan, values, nulls,
                                            eyes == Eyes::newest ? GetLatestSnapshot() : InvalidSnapshot,
                                            InvalidSnapshot, reads, !reads, limit);
    end_index_plans(level);
    if (result < 0) {
        elog(ERROR, "SPI_execute_snapshot failed: %s", SPI_result_code_string(result));
    }
    return SPI_processed;
}

} // namespace idem::pg
