/*
 * The only door to PostgreSQL's headers, and the one place that knows how the versions 15 to 18 differ.
 *
 * Include it first: postgres.h must come before any standard header. It redefines names of <cstdio> and
 * <cerrno> with macros, so a file of src/pg includes no other libc header than what comes through here.
 */
#pragma once

// 15 exports everything or, with -fvisibility=hidden, nothing; 16 and later define this themselves.
#ifndef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
#endif

extern "C" {
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/detoast.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/skey.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogutils.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation_d.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "commands/trigger.h"
#include "common/string.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/nodes.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "port/atomics.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/plancache.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
#include "utils/varlena.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
}

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/arena.hpp"

namespace idem::pg {

// The extra data of a GUC's check hook has to come from where guc.c will free it.
inline void *guc_allocate(std::size_t size)
{
#if PG_VERSION_NUM >= 160000
    return guc_malloc(LOG, size);
#else
    return malloc(size);
#endif
}

inline void guc_release(void *memory)
{
#if PG_VERSION_NUM >= 160000
    guc_free(memory);
#else
    free(memory);
#endif
}

// The setting of this name as the server knows it now; null: none.
inline const config_generic *setting_named(const char *name)
{
#if PG_VERSION_NUM >= 160000
    return find_option(name, false, true, LOG);
#else
    config_generic **all = get_guc_variables();
    for (int i = 0; i < GetNumConfigOptions(); i++) {
        if (pg_strcasecmp(all[i]->name, name) == 0) {
            return all[i];
        }
    }
    return nullptr;
#endif
}

// Does the user have the role's rights, or can he take them by SET ROLE? Since 16 who has made a role is a member of it that can do neither.
inline bool may_act_as(Oid user, Oid role)
{
#if PG_VERSION_NUM >= 160000
    return has_privs_of_role(user, role) || member_can_set_role(user, role);
#else
    return is_member_of_role_nosuper(user, role);
#endif
}

// Memory of the current context, for the core; the context's owner drops it.
inline core::Arena current_context_arena()
{
    return core::Arena{
        nullptr, [](void *, std::size_t size) -> void * { return palloc_extended(size, MCXT_ALLOC_HUGE); }};
}

// A text or bytea argument without its header; it lives as long as the argument.
inline std::string_view bytes_of(const varlena *value)
{
    return {VARDATA_ANY(value), static_cast<std::size_t>(VARSIZE_ANY_EXHDR(value))};
}

// Of a jbvString: it lives as long as its document.
inline std::string_view string_of(const JsonbValue &value)
{
    return {value.val.string.val, static_cast<std::size_t>(value.val.string.len)};
}

inline text *text_of(std::string_view value)
{
    return cstring_to_text_with_len(value.data(), static_cast<int>(value.size()));
}

inline bytea *bytea_of(const void *bytes, std::size_t size)
{
    auto *value = static_cast<bytea *>(palloc(VARHDRSZ + size));
    SET_VARSIZE(value, VARHDRSZ + size);
    memcpy(VARDATA(value), bytes, size);
    return value;
}

// A month counts as 30 days and a day as 24 hours, as the server compares intervals; what is beyond some 290,000
// years is cut there.
inline std::int64_t microseconds_of(const Interval *value)
{
    const auto days = static_cast<std::int64_t>(value->month) * DAYS_PER_MONTH + value->day;
    std::int64_t result;
    if (__builtin_mul_overflow(days, static_cast<std::int64_t>(USECS_PER_DAY), &result) ||
        __builtin_add_overflow(result, value->time, &result)) {
        return days < 0 ? PG_INT64_MIN : PG_INT64_MAX;
    }
    return result;
}

// As hours, minutes and seconds.
inline Interval *interval_of(std::int64_t microseconds)
{
    auto *value = static_cast<Interval *>(palloc0(sizeof(Interval)));
    value->time = microseconds;
    return value;
}

// For a message's %s.
inline char *cstring_of(std::string_view value)
{
    return pnstrdup(value.data(), value.size());
}

// Text of the database's encoding as UTF-8: itself where there is nothing to convert. Raises 22021 for bytes that
// are not UTF-8 in a database of encoding SQL_ASCII.
inline std::string_view utf8_of(std::string_view text)
{
    const char *utf8 = pg_server_to_any(text.data(), static_cast<int>(text.size()), PG_UTF8);
    return {utf8, utf8 == text.data() ? text.size() : strlen(utf8)};
}

} // namespace idem::pg
