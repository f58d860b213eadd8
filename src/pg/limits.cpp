#include "pg/limits.hpp"

#include "core/key.hpp"
#include "pg/claims.hpp"
#include "pg/key_lock.hpp"
#include "pg/key_store.hpp"
#include "pg/registry.hpp"
#include "pg/request.hpp"

namespace idem::pg {

namespace {

// Whose keys, and against which limit.
struct Whose {
    std::uint64_t tenant; // its hash
    Oid database;
    Oid table;
    int max_keys;
};
static_assert(std::is_trivially_destructible_v<Whose>);

// What is known of a tenant's stored keys, and the count that is under way.
struct TenantKeys {
    Whose whose;
    bool known; // by a count that was finished
    bool full;
    int left; // how many more may be claimed before they are counted again
    TimestampTz good_until;
    TimestampTz kept_until; // rather than any that is not kept as long, and a count under way no longer

    TimestampTz busy_until; // whoever counts has this long; then another one goes on
    int counted;
    std::int64_t spent; // us
    std::uint16_t position_size;
    char position[core::max_key_size]; // the last key that has been counted
};
static_assert(std::is_trivially_destructible_v<TenantKeys>);

// Tenants of one set push each other out, first those that are soonest counted again.
struct TenantSet {
    slock_t mutex;
    TenantKeys tenants[4];
};
static_assert(std::is_trivially_destructible_v<TenantSet>);

constexpr std::size_t set_count = 1024;

// Shared, a claim counts no more than this, and the next one goes on. Whoever is refused can as well count more.
constexpr int slice_size = 10'000;
constexpr int slice_size_refused = 10 * slice_size;

// Tenants of few keys don't undo what has been counted of many.
constexpr std::int64_t many_kept = 600 * USECS_PER_SEC;

// The low bits of a slot's hash are its number.
constexpr std::uint64_t slot_mask = 0xFFFF;
static_assert(max_limit_in_flight <= slot_mask);

// Where this session finds a free slot first: sessions begin at different ones, and a batch goes on where it was.
std::uint64_t next_slot;

TenantSet local_sets[set_count];
TenantSet *sets = local_sets;

bool shared()
{
    return sets != local_sets;
}

void init_sets()
{
    for (std::size_t i = 0; i < set_count; i++) {
        memset(&sets[i], 0, sizeof(sets[i]));
        SpinLockInit(&sets[i].mutex);
    }
}

bool same_tenant(const Whose &a, const Whose &b)
{
    return a.tenant == b.tenant && a.database == b.database && a.table == b.table;
}

// Under the set's lock. A tenant whose limit has changed is counted anew, in its place.
TenantKeys &entry_of(TenantSet &set, const Whose &whose)
{
    TenantKeys *oldest = &set.tenants[0];
    for (TenantKeys &entry : set.tenants) {
        if (same_tenant(entry.whose, whose)) {
            oldest = &entry;
            break;
        }
        if (entry.kept_until < oldest->kept_until) {
            oldest = &entry;
        }
    }
    if (!same_tenant(oldest->whose, whose) || oldest->whose.max_keys != whose.max_keys) {
        memset(oldest, 0, sizeof(*oldest));
        oldest->whose = whose;
    }
    return *oldest;
}

struct Look {
    bool full;
    bool my_turn; // to count
    TenantKeys seen;
};
static_assert(std::is_trivially_destructible_v<Look>);

void begin_pass(TenantKeys &entry)
{
    entry.counted = 0;
    entry.spent = 0;
    entry.position_size = 0;
}

// A key that was put into the table by hand may be longer than any that is claimed: then some are counted twice.
void remember_position(TenantKeys &entry, std::string_view last_key)
{
    const std::size_t size = Min(last_key.size(), sizeof(entry.position));
    entry.position_size = static_cast<std::uint16_t>(size);
    memcpy(entry.position, last_key.data(), size);
}

// By itself, a session counts all at once, for it may not claim again.
int most_to_count(const TenantKeys &entry)
{
    const int left = entry.whose.max_keys - entry.counted;
    return shared() ? Min(left, entry.full ? slice_size_refused : slice_size) : left;
}

Look take_one(TenantSet &set, const Whose &whose, TimestampTz now)
{
    constexpr std::int64_t patience = 10 * USECS_PER_SEC;
    Look look{};
    SpinLockAcquire(&set.mutex);
    TenantKeys &entry = entry_of(set, whose);
    look.full = entry.known && entry.full;
    if ((!entry.known || now >= entry.good_until || (!entry.full && entry.left <= 0)) &&
        entry.busy_until <= now) {
        look.my_turn = true;
        if (entry.kept_until < now) {
            begin_pass(entry);
        }
        entry.busy_until = now + patience;
        look.seen = entry;
    } else if (entry.known && !entry.full) {
        entry.left--; // below zero while another one counts
    }
    SpinLockRelease(&set.mutex);
    return look;
}

// It is full a little early (1.5 %), so that the last keys of a large limit don't cost a count each.
void conclude(TenantKeys &entry, int own, TimestampTz now)
{
    constexpr std::int64_t shortest_life = USECS_PER_SEC;
    const int max_keys = entry.whose.max_keys;
    const int free = max_keys - Min(max_keys - entry.counted, own) - entry.counted;
    entry.known = true;
    entry.full = free <= max_keys / 64;
    entry.left = shared() ? free / 2 : free / 16; // by itself, a session doesn't see what the others claim
    entry.good_until = now + Max(shortest_life, entry.spent * (entry.full ? 10 : 100));
    entry.kept_until = entry.counted >= slice_size ? now + many_kept : entry.good_until;
    begin_pass(entry);
}

} // namespace

bool room_for_key(const KeyTable &table, std::string_view tenant, int max_keys)
{
    const Whose whose{key_lock_hash(tenant, {}), MyDatabaseId, table.relation, max_keys};
    TenantSet &set = sets[(whose.tenant >> 32) % set_count];
    const TimestampTz started = GetCurrentTimestamp();
    const Look look = take_one(set, whose, started);
    if (!look.my_turn) {
        return !look.full;
    }

    TenantKeys counted = look.seen;
    const int most = most_to_count(counted);
    const KeyCount slice = count_keys(table, tenant, {counted.position, counted.position_size}, most);
    const TimestampTz now = GetCurrentTimestamp();
    counted.counted += slice.count;
    counted.spent += now - started;
    counted.busy_until = 0;
    if (slice.count < most || counted.counted == max_keys) {
        conclude(counted, open_claims_of(tenant), now);
    } else {
        counted.kept_until = now + many_kept;
        remember_position(counted, slice.last_key);
    }

    SpinLockAcquire(&set.mutex);
    TenantKeys &entry = entry_of(set, whose);
    counted.left -= Max(0, look.seen.left - entry.left); // what others have claimed meanwhile
    entry = counted;
    SpinLockRelease(&set.mutex);
    return !(counted.known && counted.full);
}

std::size_t shared_limits_size()
{
    return sizeof(local_sets);
}

void share_limits(void *memory, bool fresh)
{
    sets = static_cast<TenantSet *>(memory);
    if (fresh) {
        init_sets();
    }
}

void prepare_limits()
{
    init_sets();
}

Slot take_slot(std::string_view tenant, int max_in_flight)
{
    if (next_slot == 0) {
        next_slot = static_cast<std::uint64_t>(MyProcPid);
    }
    const auto slots = static_cast<std::uint64_t>(max_in_flight);
    const std::uint64_t hash = key_lock_hash(tenant, {}) & ~slot_mask;
    for (std::uint64_t i = 0; i < slots; i++) {
        const Slot slot{true, hash | (next_slot++ % slots)};
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
