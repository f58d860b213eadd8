#include "pg/registry.hpp"

#include "core/method.hpp"
#include "core/path_pattern.hpp"
#include "pg/errors.hpp"
#include "pg/handler.hpp"
#include "pg/settings.hpp"

namespace idem::pg {

namespace {

struct CachedOperation {
    bool key_required;
    std::int64_t retention; // us; 0: the setting's
    bool leased;
    std::int64_t lease; // us; 0: the setting's
    core::IgnoreList ignore;
    ArrayType *ignore_array;
    core::ErrorRules errors;
};
static_assert(std::is_trivially_destructible_v<CachedOperation>);

struct Binding {
    Oid role;
    std::string_view tenant;
};
static_assert(std::is_trivially_destructible_v<Binding>);

struct TenantLimits {
    std::string_view tenant;
    Limits limits;
};
static_assert(std::is_trivially_destructible_v<TenantLimits>);

struct Registry {
    bool valid;
    bool changed; // while it was being read
    Oid operations_table;
    Oid tenants_table;
    Oid limits_table;     // invalid where the objects are still those of version 0.9.0
    MemoryContext memory; // of all that follows
    CachedOperation *operations;
    std::size_t operation_count;
    core::PatternTree tree;
    Binding *bindings; // by role
    std::size_t binding_count;
    Limits limits_of_all;
    TenantLimits *limits; // by tenant
    std::size_t limit_count;
};
static_assert(std::is_trivially_destructible_v<Registry>);

Registry registry;
Oid registry_schema;

void on_relation_change(Datum, Oid relation)
{
    // beside objects of version 0.9.0, any change may be the update that brings the table of limits
    if (relation == InvalidOid || !OidIsValid(registry.limits_table) || relation == registry.limits_table ||
        relation == registry.operations_table || relation == registry.tenants_table) {
        registry.valid = false;
        registry.changed = true;
    }
}

// A column of the row, copied into the current context; 0 where it is null.
Datum column_of(std::uint64_t row, int column, bool &null)
{
    return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &null);
}

std::int64_t interval_column(std::uint64_t row, int column)
{
    bool null;
    const Datum value = column_of(row, column, null);
    return null ? 0 : microseconds_of(DatumGetIntervalP(value));
}

std::string_view text_column(std::uint64_t row, int column)
{
    bool null;
    return bytes_of(DatumGetTextPCopy(column_of(row, column, null)));
}

bool bool_column(std::uint64_t row, int column)
{
    bool null;
    return DatumGetBool(column_of(row, column, null));
}

void read_operations(const KeyTable &table, Registry &loaded)
{
    enum : std::uint8_t {
        method = 1,
        path_pattern,
        key_required,
        retention,
        leased,
        lease,
        ignored_fields,
        statuses
    };
    const std::uint64_t count = execute(table, Statement::read_operations, nullptr, nullptr, Eyes::newest, 0);
    MemoryContext spi_context = MemoryContextSwitchTo(loaded.memory);
    core::Arena arena = current_context_arena();
    loaded.operations = core::allocate<CachedOperation>(arena, count);
    loaded.operation_count = count;

    std::size_t segments = 0;
    auto *patterns = core::allocate<std::string_view>(arena, count);
    for (std::uint64_t row = 0; row < count; row++) {
        patterns[row] = utf8_of(text_column(row, path_pattern));
        if (core::check_pattern(patterns[row]) != core::PatternFault::none) {
            // only a row that was not written by idem_allow()
            ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
                            errmsg("invalid path pattern in table \"%s\"", operations_table_name),
                            errdetail("\"%s\" is no pattern.", cstring_of(patterns[row])),
                            errhint("Delete the row and call idem_allow().")));
        }
        segments += core::PatternTree::segments_of(patterns[row]);
    }
    loaded.tree.reserve(arena, segments);
    for (std::uint64_t row = 0; row < count; row++) {
        bool null;
        CachedOperation &operation = loaded.operations[row];
        operation.key_required = bool_column(row, key_required);
        operation.retention = interval_column(row, retention);
        operation.leased = bool_column(row, leased);
        operation.lease = interval_column(row, lease);
        operation.ignore_array = DatumGetArrayTypePCopy(column_of(row, ignored_fields, null));
        operation.ignore = ignore_list_of(operation.ignore_array);
        const Datum rules = column_of(row, statuses, null);
        operation.errors = error_rules_of(null ? nullptr : DatumGetJsonbP(rules));
        loaded.tree.add(text_column(row, method), patterns[row], static_cast<int>(row));
    }
    MemoryContextSwitchTo(spi_context);
}

void read_bindings(const KeyTable &table, Registry &loaded)
{
    const std::uint64_t count = execute(table, Statement::read_tenants, nullptr, nullptr, Eyes::newest, 0);
    MemoryContext spi_context = MemoryContextSwitchTo(loaded.memory);
    core::Arena arena = current_context_arena();
    loaded.bindings = core::allocate<Binding>(arena, count);
    loaded.binding_count = count;
    for (std::uint64_t row = 0; row < count; row++) {
        bool null;
        loaded.bindings[row] = Binding{DatumGetObjectId(column_of(row, 1, null)), text_column(row, 2)};
    }
    MemoryContextSwitchTo(spi_context);
}

int by_tenant(const void *a, const void *b)
{
    return static_cast<const TenantLimits *>(a)->tenant.compare(static_cast<const TenantLimits *>(b)->tenant);
}

void read_limits(const KeyTable &table, Registry &loaded)
{
    if (!OidIsValid(loaded.limits_table)) {
        return;
    }
    enum : std::uint8_t { tenant_id = 1, max_keys, max_in_flight };
    const std::uint64_t count = execute(table, Statement::read_limits, nullptr, nullptr, Eyes::newest, 0);
    MemoryContext spi_context = MemoryContextSwitchTo(loaded.memory);
    core::Arena arena = current_context_arena();
    loaded.limits = core::allocate<TenantLimits>(arena, count);
    for (std::uint64_t row = 0; row < count; row++) {
        bool null; // 0 is no limit
        const Limits limits{DatumGetInt32(column_of(row, max_keys, null)),
                            DatumGetInt32(column_of(row, max_in_flight, null))};
        (void)column_of(row, tenant_id, null);
        if (null) {
            loaded.limits_of_all = limits;
        } else {
            loaded.limits[loaded.limit_count++] = TenantLimits{text_column(row, tenant_id), limits};
        }
    }
    qsort(loaded.limits, loaded.limit_count, sizeof(TenantLimits), by_tenant);
    MemoryContextSwitchTo(spi_context);
}

void load(const KeyTable &table)
{
    if (registry.memory != nullptr) {
        MemoryContext old = registry.memory;
        registry.memory = nullptr;
        MemoryContextDelete(old);
    }
    registry.valid = false;
    registry_schema = table.schema;
    registry.operations_table = table_beside(table, operations_table_name);
    registry.tenants_table = table_beside(table, tenants_table_name);
    registry.limits_table = get_relname_relid(limits_table_name, table.schema);
    registry.changed = false;

    // an error drops it with the caller's memory
    Registry loaded = registry;
    loaded.memory = AllocSetContextCreate(CurrentMemoryContext, "idempotency registry", ALLOCSET_SMALL_SIZES);
    const Rights caller = begin_statements(table);
    read_operations(table, loaded);
    read_bindings(table, loaded);
    loaded.limits_of_all = Limits{};
    loaded.limit_count = 0;
    read_limits(table, loaded);
    end_statements(caller);

    MemoryContextSetParent(loaded.memory, CacheMemoryContext);
    loaded.changed = registry.changed;
    loaded.valid = !registry.changed; // else it is good for this call, and read again by the next
    registry = loaded;
}

const Registry &current_registry(const KeyTable &table)
{
    AcceptInvalidationMessages();
    if (!registry.valid || registry_schema != table.schema) {
        load(table);
    }
    return registry;
}

std::int64_t default_retention()
{
    return static_cast<std::int64_t>(settings.default_retention) * USECS_PER_SEC;
}

std::string_view upper_case(std::string_view method, char (&buffer)[core::max_method_size])
{
    for (std::size_t i = 0; i < method.size(); i++) {
        buffer[i] = core::ascii_upper(method[i]);
    }
    return {buffer, method.size()};
}

// Whoever registers one operation to give it a policy may not know that this leaves out all others.
void notice_in_use(const KeyTable &table)
{
    if (execute(table, Statement::read_operations, nullptr, nullptr, Eyes::newest, 2) == 1) {
        ereport(NOTICE, (errmsg("the registry of idempotent operations is in use now"),
                         errdetail("Requests that match none of its operations are not covered any more: the "
                                   "outcome of idem_claim() is bypass.")));
    }
}

void require_tenant_as(const Registry &current, Oid user, bool (*acts_as)(Oid user, Oid role),
                       std::string_view tenant)
{
    if (superuser_arg(user)) {
        return;
    }
    bool bound = false;
    bool member = false;
    Oid role = InvalidOid;
    for (std::size_t i = 0; i < current.binding_count; i++) {
        const Binding &binding = current.bindings[i];
        if (binding.role != role) {
            role = binding.role;
            member = acts_as(user, role);
            bound = bound || member;
        }
        if (member && binding.tenant == tenant) {
            return;
        }
    }
    if (bound) {
        ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                        errmsg("role \"%s\" may not act for tenant \"%s\"", GetUserNameFromId(user, false),
                               cstring_of(tenant)),
                        errdetail("The role is bound to other tenants."),
                        errhint("Ask the operator for idem_bind_tenant().")));
    }
}

} // namespace

Policy policy_of(const KeyTable &table, std::string_view method, std::string_view path)
{
    const Registry &current = current_registry(table);
    Policy policy{};
    if (current.operation_count == 0) {
        policy.covered = !core::idempotent_by_nature(method);
        policy.key_required = true;
        policy.retention = default_retention();
        policy.ignored = current_ignored_fields();
        return policy;
    }

    char buffer[core::max_method_size];
    const int match = current.tree.match(upper_case(method, buffer), path);
    if (match == core::PatternTree::no_match) {
        return policy;
    }
    const CachedOperation &operation = current.operations[match];
    policy.covered = true;
    policy.key_required = operation.key_required;
    policy.retention = operation.retention != 0 ? operation.retention : default_retention();
    if (operation.leased) {
        policy.lease =
            operation.lease != 0 ? operation.lease : static_cast<std::int64_t>(settings.default_lease) * 1000;
    }
    policy.ignored = ignored_fields_with(operation.ignore, operation.ignore_array);
    policy.errors = operation.errors;
    return policy;
}

void require_tenant(const KeyTable &table, std::string_view tenant)
{
    const Registry &current = current_registry(table);
    if (current.binding_count == 0) {
        return;
    }
    // ANALYZE and REFRESH call functions as the table's owner, whoever has written them
    if (InSecurityRestrictedOperation()) {
        ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                        errmsg("cannot act for tenant \"%s\" within a security-restricted operation",
                               cstring_of(tenant)),
                        errdetail("Roles are bound to tenants, and it can't be told who asks.")));
    }
    // Neither SET ROLE nor a SECURITY DEFINER function leads out of a binding. Who logs in to become one of many roles, as
    // PostgREST's authenticator does, is a member of them that inherits nothing, and not bound by that.
    const Oid user = GetUserId();
    require_tenant_as(current, user, may_act_as, tenant);
    if (GetOuterUserId() != user) {
        require_tenant_as(current, GetOuterUserId(), may_act_as, tenant);
    }
    if (GetSessionUserId() != user) {
        require_tenant_as(current, GetSessionUserId(), has_privs_of_role, tenant);
    }
}

Limits limits_of(std::string_view tenant)
{
    const TenantLimits wanted{tenant, {}};
    const auto *own =
        registry.limit_count == 0
            ? nullptr
            : static_cast<const TenantLimits *>(
                  bsearch(&wanted, registry.limits, registry.limit_count, sizeof(TenantLimits), by_tenant));
    return own != nullptr ? own->limits : registry.limits_of_all;
}

void store_operation(const KeyTable &table, const Operation &operation)
{
    LockRelationOid(table_beside(table, operations_table_name), ShareRowExclusiveLock);
    const Rights caller = begin_statements(table);
    char buffer[core::max_method_size];
    const std::string_view pattern = core::path_to_match(operation.path_pattern);
    const char nulls[] = {
        ' ', ' ',
        ' ', operation.retention == nullptr ? 'n' : ' ',
        ' ', operation.lease == nullptr ? 'n' : ' ',
        ' ', operation.statuses == nullptr ? 'n' : ' ',
    };
    Datum values[] = {
        PointerGetDatum(text_of(upper_case(operation.method, buffer))),
        PointerGetDatum(text_of(pattern.empty() ? "/" : pattern)),
        BoolGetDatum(operation.key_required),
        PointerGetDatum(operation.retention),
        BoolGetDatum(operation.leased),
        PointerGetDatum(operation.lease),
        PointerGetDatum(operation.ignore),
        PointerGetDatum(operation.statuses),
    };
    if (execute(table, Statement::update_operation, values, nulls, Eyes::newest, 0) == 0) {
        (void)execute(table, Statement::insert_operation, values, nulls, Eyes::snapshot, 0);
        notice_in_use(table);
    }
    end_statements(caller);
}

bool remove_operation(const KeyTable &table, std::string_view method, std::string_view path_pattern)
{
    LockRelationOid(table_beside(table, operations_table_name), ShareRowExclusiveLock);
    const Rights caller = begin_statements(table);
    char buffer[core::max_method_size];
    const std::string_view pattern = core::path_to_match(path_pattern);
    Datum values[] = {PointerGetDatum(text_of(upper_case(method, buffer))),
                      PointerGetDatum(text_of(pattern.empty() ? "/" : pattern))};
    const std::uint64_t removed =
        execute(table, Statement::delete_operation, values, nullptr, Eyes::newest, 0);
    end_statements(caller);
    return removed > 0;
}

void bind_tenant(const KeyTable &table, Oid role, std::string_view tenant)
{
    const Rights caller = begin_statements(table);
    Datum values[] = {ObjectIdGetDatum(role), PointerGetDatum(text_of(tenant))};
    (void)execute(table, Statement::insert_tenant, values, nullptr, Eyes::snapshot, 0);
    end_statements(caller);
}

bool unbind_tenant(const KeyTable &table, Oid role, std::string_view tenant)
{
    const Rights caller = begin_statements(table);
    Datum values[] = {ObjectIdGetDatum(role), PointerGetDatum(text_of(tenant))};
    const std::uint64_t removed = execute(table, Statement::delete_tenant, values, nullptr, Eyes::newest, 0);
    end_statements(caller);
    return removed > 0;
}

void store_limits(const KeyTable &table, std::string_view tenant, Limits limits)
{
    const Rights caller = begin_statements(table);
    Datum values[] = {PointerGetDatum(text_of(tenant)), Int32GetDatum(limits.max_keys),
                      Int32GetDatum(limits.max_in_flight)};
    const char nulls[] = {tenant.data() == nullptr ? 'n' : ' ', limits.max_keys == 0 ? 'n' : ' ',
                          limits.max_in_flight == 0 ? 'n' : ' '};
    (void)execute(table, Statement::store_limit, values, nulls, Eyes::snapshot, 0);
    end_statements(caller);
}

bool remove_limits(const KeyTable &table, std::string_view tenant)
{
    const Rights caller = begin_statements(table);
    Datum values[] = {PointerGetDatum(text_of(tenant))};
    const char nulls[] = {tenant.data() == nullptr ? 'n' : ' '};
    const std::uint64_t removed = execute(table, Statement::delete_limit, values, nulls, Eyes::newest, 0);
    end_statements(caller);
    return removed > 0;
}

void register_registry_callbacks()
{
    CacheRegisterRelcacheCallback(on_relation_change, Datum{0});
}

} // namespace idem::pg
