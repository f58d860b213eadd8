/*
 * The extension's own SQLSTATEs, class ID: misuse by the application. docs/errors.md says when each comes and
 * what to do. A client's mistake is never an error but an outcome of idem_claim() with its HTTP answer.
 */
#pragma once

#include "pg/prelude.hpp"

namespace idem::pg {

constexpr int errcode_claim_not_settled = MAKE_SQLSTATE('I', 'D', '0', '0', '1');
constexpr int errcode_not_claimed = MAKE_SQLSTATE('I', 'D', '0', '0', '2');
constexpr int errcode_already_settled = MAKE_SQLSTATE('I', 'D', '0', '0', '3');
constexpr int errcode_stale_token = MAKE_SQLSTATE('I', 'D', '0', '0', '4');
constexpr int errcode_unexpected_token = MAKE_SQLSTATE('I', 'D', '0', '0', '5');
constexpr int errcode_retryable_after_writes = MAKE_SQLSTATE('I', 'D', '0', '0', '6');
constexpr int errcode_response_too_large = MAKE_SQLSTATE('I', 'D', '0', '0', '7');
constexpr int errcode_response_not_stored = MAKE_SQLSTATE('I', 'D', '0', '0', '8');
constexpr int errcode_invalid_argument = MAKE_SQLSTATE('I', 'D', '0', '0', '9');
constexpr int errcode_missing_token = MAKE_SQLSTATE('I', 'D', '0', '1', '0');
constexpr int errcode_bad_answer = MAKE_SQLSTATE('I', 'D', '0', '1', '1');
constexpr int errcode_leased_operation = MAKE_SQLSTATE('I', 'D', '0', '1', '2');

} // namespace idem::pg
