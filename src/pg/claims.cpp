#include "pg/claims.hpp"

#include "pg/errors.hpp"

namespace idem::pg {

namespace {

constexpr std::size_t first_slots = 8;

// Nearly every transaction makes one claim; a batch makes thousands and must not search a list.
struct ClaimTable {
    Claim *newest;
    Claim **slots;
    std::size_t slot_count; // a power of two
    std::size_t claim_count;
    Claim *small[first_slots];
};
static_assert(std::is_trivially_destructible_v<ClaimTable>);

ClaimTable claims;
std::uint64_t last_serial;

Claim **slot_of(std::uint64_t lock_hash)
{
    return &claims.slots[lock_hash & (claims.slot_count - 1)];
}

void use_slots(Claim **slots, std::size_t count)
{
    claims.slots = slots;
    claims.slot_count = count;
    for (std::size_t i = 0; i < count; i++) {
        slots[i] = nullptr;
    }
}

// Links oldest first, so that the newest claim of a key is found first in its slot.
void relink(Claim *claim)
{
    Claim *oldest_first = nullptr;
    for (; claim != nullptr; claim = claim->older) {
        claim->next_in_slot = oldest_first;
        oldest_first = claim;
    }
    while (oldest_first != nullptr) {
        Claim *next = oldest_first->next_in_slot;
        Claim **slot = slot_of(oldest_first->lock_hash);
        oldest_first->next_in_slot = *slot;
        *slot = oldest_first;
        oldest_first = next;
    }
}

// Copies behind the record, so that a claim is one allocation.
std::string_view copy_to(char *&end, std::string_view value)
{
    char *start = end;
    memcpy(start, value.data(), value.size());
    end += value.size();
    return {start, value.size()};
}

void refuse_open_claims(bool prepare)
{
    const Claim *open = nullptr;
    int count = 0;
    for (const Claim *claim = claims.newest; claim != nullptr; claim = claim->older) {
        if (claim->state == ClaimState::open) {
            open = claim;
            count++;
        }
    }
    if (open == nullptr) {
        return;
    }

    ereport(
        ERROR,
        (errcode(errcode_claim_not_settled),
         errmsg("idempotency key \"%s\" of tenant \"%s\" is claimed but neither completed nor released",
                cstring_of(open->key), cstring_of(open->tenant)),
         count == 1
             ? errdetail("%s would keep the work without its key, and a retry would do it again.",
                         prepare ? "PREPARE TRANSACTION" : "COMMIT")
             : errdetail("%s would keep the work without its key, and a retry would do it again. %d claims "
                         "of this transaction are open.",
                         prepare ? "PREPARE TRANSACTION" : "COMMIT", count),
         errhint(
             "Claim, work and idem_complete() (or idem_release()) belong in one transaction: BEGIN first, "
             "or call them in one function or DO block.")));
}

void on_transaction_event(XactEvent event, void *)
{
    if (claims.newest == nullptr) {
        return;
    }
    switch (event) {
    case XACT_EVENT_PRE_COMMIT:
        refuse_open_claims(false);
        break;
    case XACT_EVENT_PRE_PREPARE:
        refuse_open_claims(true);
        break;
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_ABORT:
    case XACT_EVENT_PREPARE:
        // the records themselves go with TopTransactionContext
        claims = ClaimTable{};
        break;
    case XACT_EVENT_PARALLEL_PRE_COMMIT:
    case XACT_EVENT_PARALLEL_COMMIT:
    case XACT_EVENT_PARALLEL_ABORT:
        break;
    }
}

void forget_newest()
{
    Claim *claim = claims.newest;
    Claim **link = slot_of(claim->lock_hash);
    while (*link != claim) {
        link = &(*link)->next_in_slot;
    }
    *link = claim->next_in_slot;
    claims.newest = claim->older;
    claims.claim_count--;
    if (claim->fingerprint.ignored_fields != nullptr) {
        pfree(claim->fingerprint.ignored_fields);
    }
    pfree(claim);
}

void on_savepoint_event(SubXactEvent event, SubTransactionId savepoint, SubTransactionId parent, void *)
{
    if (claims.newest == nullptr) {
        return;
    }
    if (event == SUBXACT_EVENT_ABORT_SUB) {
        // claims nest as savepoints do: those of the innermost one are the newest
        while (claims.newest != nullptr && claims.newest->claimed_in == savepoint) {
            forget_newest();
        }
        for (Claim *claim = claims.newest; claim != nullptr; claim = claim->older) {
            if (claim->settled_in == savepoint) {
                claim->state = ClaimState::open;
                claim->settled_in = InvalidSubTransactionId;
            }
        }
    } else if (event == SUBXACT_EVENT_COMMIT_SUB) {
        for (Claim *claim = claims.newest; claim != nullptr; claim = claim->older) {
            if (claim->claimed_in == savepoint) {
                claim->claimed_in = parent;
            }
            if (claim->settled_in == savepoint) {
                claim->settled_in = parent;
            }
        }
    }
}

} // namespace

void register_claim_callbacks()
{
    RegisterXactCallback(on_transaction_event, nullptr);
    RegisterSubXactCallback(on_savepoint_event, nullptr);
}

Claim *find_claim(std::uint64_t lock_hash, std::string_view tenant, std::string_view key)
{
    if (claims.newest == nullptr) {
        return nullptr;
    }
    for (Claim *claim = *slot_of(lock_hash); claim != nullptr; claim = claim->next_in_slot) {
        if (claim->lock_hash == lock_hash && claim->tenant == tenant && claim->key == key) {
            return claim;
        }
    }
    return nullptr;
}

int open_claims_of(std::string_view tenant)
{
    int count = 0;
    for (const Claim *claim = claims.newest; claim != nullptr; claim = claim->older) {
        count += claim->state == ClaimState::open && claim->tenant == tenant ? 1 : 0;
    }
    return count;
}

void remember_claim(const Claim &claim)
{
    MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);

    Claim *record = static_cast<Claim *>(palloc(sizeof(Claim) + claim.tenant.size() + claim.key.size()));
    char *end = reinterpret_cast<char *>(record + 1);
    *record = claim;
    record->tenant = copy_to(end, claim.tenant);
    record->key = copy_to(end, claim.key);
    if (claim.fingerprint.ignored_fields != nullptr) {
        record->fingerprint.ignored_fields =
            DatumGetArrayTypePCopy(PointerGetDatum(claim.fingerprint.ignored_fields));
    }
    record->serial = ++last_serial;
    record->state = ClaimState::open;
    record->claimed_in = GetCurrentSubTransactionId();
    record->settled_in = InvalidSubTransactionId;

    if (claims.newest == nullptr) {
        use_slots(claims.small, first_slots);
    } else if (claims.claim_count >= claims.slot_count) {
        const std::size_t count = claims.slot_count * 4;
        core::Arena arena = current_context_arena();
        use_slots(core::allocate<Claim *>(arena, count), count);
        relink(claims.newest);
    }

    record->older = claims.newest;
    Claim **slot = slot_of(record->lock_hash);
    record->next_in_slot = *slot;
    *slot = record;
    claims.newest = record;
    claims.claim_count++;

    MemoryContextSwitchTo(caller);
}

void settle_claim(Claim *claim, ClaimState state)
{
    claim->state = state;
    claim->settled_in = GetCurrentSubTransactionId();
}

} // namespace idem::pg
