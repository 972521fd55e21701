/* SPDX-License-Identifier: BSD-3-Clause */
/* Which hints of a communicator somebody reads. */
#ifndef TC_CORE_HINTS_H
#define TC_CORE_HINTS_H

#include "torchcomms/backend.h"

/* One warning in the log that names the hints which nobody will read, and those that
 * the backend knows; nothing where all are known. */
void
tc_hints_check(const tc_backend *backend, const char *comm_name, const tc_hint *hints,
               size_t count);

#endif
