#include "pg/limits.hpp"

#include "pg/key_lock.hpp"
#include "pg/key_store.hpp"
#include "pg/registry.hpp"
#include "pg/request.hpp"

namespace idem::pg {

namespace {

// What this session found when it last counted a tenant's keys.
struct Count {
    std::uint64_t tenant; // its hash
    int max_keys;         // 0: nothing was counted here
    int left;             // how many more it may claim before it counts again
    bool full;
    TimestampTz good_until;
};
static_assert(std::is_trivially_destructible_v<Count>);

// A tenant that comes into another one's place is counted anew.
constexpr std::size_t remembered_tenants = 256;
Count counts[remembered_tenants];

// The low bits of a slot's hash are its number.
constexpr std::uint64_t slot_mask = 0xFFFF;
static_assert(max_limit_in_flight <= slot_mask);

std::uint64_t tenant_hash(std::string_view tenant)
{
    return key_lock_hash(tenant, {}) & ~slot_mask;
}

// It is full a little early (1.5 %), so that the last keys of a large limit don't cost a count each.
Count count_of(const KeyTable &table, std::string_view tenant, std::uint64_t hash, int max_keys)
{
    constexpr std::int64_t shortest_life = USECS_PER_SEC;
    const TimestampTz started = GetCurrentTimestamp();
    const int free = max_keys - count_keys(table, tenant, max_keys);
    const TimestampTz now = GetCurrentTimestamp();

    Count count{};
    count.tenant = hash;
    count.max_keys = max_keys;
    count.full = free <= max_keys / 64;
    count.left = free / 16; // the other sessions claim too
    count.good_until = now + Max(shortest_life, (now - started) * 100);
    return count;
}

} // namespace

bool room_for_key(const KeyTable &table, std::string_view tenant, int max_keys)
{
    const std::uint64_t hash = tenant_hash(tenant);
    Count &count = counts[(hash >> 16) % remembered_tenants];
    const bool known =
        count.tenant == hash && count.max_keys == max_keys && GetCurrentTimestamp() < count.good_until;
    if (!known || (!count.full && count.left == 0)) {
        count = count_of(table, tenant, hash, max_keys);
    } else if (!count.full) {
        count.left--;
    }
    return !count.full;
}

Slot take_slot(std::string_view tenant, int max_in_flight)
{
    // sessions begin at different slots, so that a free one is mostly the first that is tried
    const auto first = static_cast<std::uint64_t>(MyProcPid);
    const auto slots = static_cast<std::uint64_t>(max_in_flight);
    const std::uint64_t hash = tenant_hash(tenant);
    for (std::uint64_t i = 0; i < slots; i++) {
        const Slot slot{true, hash | ((first + i) % slots)};
        if (try_slot_lock(slot.hash)) {
            return slot;
        }
    }
    return Slot{};
}

void release_slot(const Slot &slot)
{
    if (slot.taken) {
        release_slot_lock(slot.hash);
    }
}

} // namespace idem::pg
