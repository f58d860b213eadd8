/*
 * Work in a subtransaction, so that its error undoes it and no more. The one PG_TRY of this library.
 */
#pragma once

#include "pg/prelude.hpp"

namespace idem::pg {

// Calls work(context); keeps what it did if it returns true, else undoes it. An error undoes it too and is returned,
// else null. Both run in the current memory context, and what `work` allocates there stays.
ErrorData *attempt(bool (*work)(void *context), void *context);

} // namespace idem::pg
