/*
 * The statements that touch the extension's tables: each once, as a saved plan, run with the rights of the tables'
 * owner, so that an application's role needs none on them.
 *
 * Every name and operator in them is qualified. A statement that must see what the transaction's snapshot doesn't
 * (REPEATABLE READ, SERIALIZABLE) runs on GetLatestSnapshot(), as ri_triggers.c does.
 */
#pragma once

#include "pg/prelude.hpp"

namespace idem::pg {

// The key table, and the schema that it shares with the extension's functions and other tables.
struct KeyTable {
    Oid schema;
    Oid relation;
};

enum class Statement : std::uint8_t {
    look,
    count_keys,
    insert,
    replace,
    lease_insert,
    lease_probe,
    lease_take_over,
    lease_complete,
    lease_renew,
    lease_checkpoint,
    lease_release,
    purge_select,
    purge_delete,
    forget_key,
    forget_tenant,
    read_operations,
    update_operation,
    insert_operation,
    delete_operation,
    read_tenants,
    insert_tenant,
    delete_tenant,
    read_limits,
    store_limit,
    delete_limit,
};
constexpr std::size_t statement_count = static_cast<std::size_t>(Statement::delete_limit) + 1;

enum class Eyes : std::uint8_t {
    newest,   // whatever is committed now
    snapshot, // what the statement sees
};

constexpr const char *key_table_name = "idempotency_keys";
constexpr const char *operations_table_name = "idempotency_operations";
constexpr const char *tenants_table_name = "idempotency_tenants";
constexpr const char *limits_table_name = "idempotency_limits";

// The table beside the function `function`, whose schema is the extension's.
KeyTable key_table_beside(Oid function);

// Another table of the extension.
Oid table_beside(const KeyTable &table, const char *name);

// The rights to come back to. An error on the way restores them with the (sub)transaction.
struct Rights {
    Oid user;
    int context;
};

// Between the two, statements run with the owner's rights, and SPI is connected: memory is SPI's.
Rights begin_statements(const KeyTable &table);
void end_statements(Rights caller);

// Runs a statement and says how many rows it returned or changed (SPI_tuptable has the former). Eyes::snapshot is
// for what needs no newer look. `limit` 0: all rows.
std::uint64_t execute(const KeyTable &table, Statement statement, Datum *values, const char *nulls, Eyes eyes,
                      long limit);

// The saved plan, for who wants to see what the planner made of it.
SPIPlanPtr plan_of(const KeyTable &table, Statement statement);

} // namespace idem::pg
