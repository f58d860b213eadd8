/*
 * What happened, counted: for the whole server where the library is in shared_preload_libraries, else for this
 * backend only. Counts calls, whether or not their transaction commits; a crash or restart begins anew.
 */
#pragma once

#include "pg/prelude.hpp"

namespace idem::pg {

enum class Counter : std::uint8_t {
    claims,
    replays,
    conflicts,
    mismatches,
    rejections,
    bypasses,
    take_overs,
    completions,
    releases,
    purged,
};
constexpr std::size_t counter_count = static_cast<std::size_t>(Counter::purged) + 1;

void count(Counter counter, std::uint64_t by = 1);

struct Counts {
    bool whole_server;
    TimestampTz since;
    std::uint64_t values[counter_count];
};
static_assert(std::is_trivially_destructible_v<Counts>);

Counts current_counts();

// In _PG_init().
void prepare_counters();

// Their place in shared memory (pg/shared_memory.hpp).
std::size_t shared_counters_size();
void share_counters(void *memory, bool fresh);

} // namespace idem::pg
