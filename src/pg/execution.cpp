#include "pg/execution.hpp"

#include "core/status.hpp"
#include "pg/claiming.hpp"
#include "pg/errors.hpp"
#include "pg/settling.hpp"

namespace idem::pg {

namespace {

[[noreturn]] void refuse_lease(const char *caller, const char *detail)
{
    ereport(ERROR, (errcode(errcode_leased_operation),
                    errmsg("cannot run a leased operation with %s()", caller), errdetail("%s", detail),
                    errhint("Claim it with idem_claim(), commit, and complete it with its token.")));
}

// The registry may be read anew while the handler runs.
core::ErrorRules copy_of(const core::ErrorRules &rules)
{
    if (rules.count == 0) {
        return {};
    }
    core::Arena arena = current_context_arena();
    auto *copy = core::allocate<core::ErrorRule>(arena, rules.count);
    memcpy(copy, rules.rules, rules.count * sizeof(core::ErrorRule));
    return {copy, rules.count};
}

Execution execution_of(const Answer &answer)
{
    Execution execution{};
    execution.outcome = core::outcome_name(answer.outcome);
    execution.attempt = answer.attempt;
    execution.response = answer.response;
    return execution;
}

// A handler may not make the answer of one request that of another.
Claim *require_same_claim(const KeyTable &table, const KeyName &name, std::uint64_t serial)
{
    Claim *claim = require_open_claim(table, name);
    if (claim->serial != serial) {
        ereport(ERROR, (errcode(errcode_already_settled),
                        errmsg("idempotency key \"%s\" of tenant \"%s\" is already released",
                               cstring_of(name.key), cstring_of(name.tenant)),
                        errdetail("The handler has released it and claimed it again."),
                        errhint("Leave claim and completion to the function that runs the handler.")));
    }
    return claim;
}

// The first answer has all headers, what is stored has not; says what became of the key.
std::string_view settle(const KeyTable &table, const KeyName &name, std::uint64_t serial,
                        const Response &response, Jsonb *storable)
{
    Claim *claim = require_same_claim(table, name, serial);
    if (core::status_unstored(response.status)) {
        release_claim(claim);
        return "released";
    }
    Response stored = response;
    stored.headers = storable;
    const StoredKey run = finished_run(name, stored);
    complete_claim(table, name, claim, run);
    return core::row_status_name(run.status);
}

} // namespace

Execution execute_request(const KeyTable &table, const KeyName &name, const Request &request, Oid handler_oid,
                          const char *caller)
{
    const Handler handler = check_handler(handler_oid, table.schema);
    require_body_kind(handler, request);
    require_tenant(table, name.tenant);
    const Policy policy = policy_of(table, request.method, request.path);
    const bool leased = policy.lease != 0;
    const core::ErrorRules rules = copy_of(policy.errors);

    const Answer answer = claim(table, name, request, policy, 0, caller);
    const bool claimed = answer.outcome == core::Outcome::claimed;
    Execution execution = execution_of(answer);
    if (!claimed && answer.outcome != core::Outcome::bypass) {
        return execution;
    }
    if (leased) {
        refuse_lease(caller, "The operation is registered as leased: its work is more than one transaction.");
    }
    if (answer.checkpoint != nullptr) {
        refuse_lease(caller,
                     "A leased run of this key has stopped at a checkpoint, and this one would repeat "
                     "the steps before it.");
    }

    const std::uint64_t serial = claimed ? require_open_claim(table, name)->serial : 0;
    execution.response = run_handler(handler, request, rules, claimed ? name : KeyName{});
    Jsonb *storable =
        execution.response.headers == nullptr ? nullptr : storable_headers(execution.response.headers);
    if (claimed) {
        execution.outcome = settle(table, name, serial, execution.response, storable);
    }
    return execution;
}

} // namespace idem::pg
