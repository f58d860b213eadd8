/*
 * The registry: which operations are idempotent, each with its policy, which role may act for which tenant, and what a
 * tenant may take up.
 *
 * These are tables that this backend reads once, on the latest snapshot, and keeps. Whoever changes them, by the
 * functions or by hand, sends a relcache invalidation (a trigger of the tables does), and each claim and lookup first
 * takes in what has been sent: a change counts from the moment that its commit has returned, and a claim pays no query.
 */
#pragma once

#include "core/error_status.hpp"
#include "pg/request.hpp"
#include "pg/statements.hpp"

namespace idem::pg {

constexpr std::int64_t min_retention = 24 * USECS_PER_HOUR;
constexpr std::int64_t max_retention = 7 * USECS_PER_DAY;

struct Policy {
    bool covered; // else bypass
    bool key_required;
    std::int64_t retention; // us
    std::int64_t lease;     // us; 0: a claim holds for its transaction, unless it asks for a lease
    IgnoredFields ignored;
    core::ErrorRules errors; // what a handler's errors become
};
static_assert(std::is_trivially_destructible_v<Policy>);

// What holds for a request. It may point into the registry, so read it before anything that runs SQL.
Policy policy_of(const KeyTable &table, std::string_view method, std::string_view path);

// Raises 42501 if the current role is bound to tenants and this is not one of them.
void require_tenant(const KeyTable &table, std::string_view tenant);

// What a tenant may take up (pg/limits.hpp); 0: no limit.
struct Limits {
    int max_keys;
    int max_in_flight;
};
constexpr int max_limit_in_flight = 10000;

// The tenant's own limits, else those of all tenants; of the registry as policy_of() has just seen it, since to read it
// anew would take the policy away.
Limits limits_of(std::string_view tenant);

struct Operation {
    std::string_view method;
    std::string_view path_pattern;
    bool key_required;
    const Interval *retention; // null: the setting's
    bool leased;
    const Interval *lease; // null: the setting's
    ArrayType *ignore;
    Jsonb *statuses; // null: the built-in ones
};
static_assert(std::is_trivially_destructible_v<Operation>);

// Adds an operation, or replaces the policy of the same one. The first one changes what all others come to, and a
// NOTICE says so.
void store_operation(const KeyTable &table, const Operation &operation);
// Says whether it was there.
bool remove_operation(const KeyTable &table, std::string_view method, std::string_view path_pattern);

void bind_tenant(const KeyTable &table, Oid role, std::string_view tenant);
bool unbind_tenant(const KeyTable &table, Oid role, std::string_view tenant);

// For all tenants that have no limits of their own where `tenant` has no data.
void store_limits(const KeyTable &table, std::string_view tenant, Limits limits);
bool remove_limits(const KeyTable &table, std::string_view tenant);

void register_registry_callbacks();

} // namespace idem::pg
