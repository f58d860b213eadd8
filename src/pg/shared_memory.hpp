/*
 * What all sessions share, where the library is in shared_preload_libraries: counters, and what is known of tenants' stored keys.
 */
#pragma once

#include "pg/prelude.hpp"

namespace idem::pg {

// In _PG_init(): asks for shared memory if the server is just starting.
void prepare_shared_memory();

} // namespace idem::pg
