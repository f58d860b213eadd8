/*
 * The secrets that fingerprints are made with, where idempotency.fingerprint_secret_file names a file of them.
 *
 * A file and not a setting: a setting's value is shown to any role before the library is loaded, and to the log and
 * pg_stat_statements when it is set. The file is read by each session when it first needs it, and again after a reload.
 * What can't be read makes the claim fail: a fingerprint without the secret would be what the operator wanted to prevent.
 */
#pragma once

#include "pg/prelude.hpp"

#include "core/keyed_fingerprint.hpp"

namespace idem::pg {

// The first one is what new fingerprints are made with; none at all where the setting is empty. Raises F0000.
const core::SecretList &fingerprint_secrets();

// To be called when the setting is set, which a reload does.
void forget_fingerprint_secrets();

} // namespace idem::pg
