/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for buffers, made by a backend. */
#ifndef TC_CORE_MEMORY_H
#define TC_CORE_MEMORY_H

#include "core/comm.h"

/* Whether the backend makes memory for this device type; false for an unknown one. */
bool
tc_memory_is_supported(const char *backend, tc_device_type device);

/* At least `bytes` bytes from the backend of that name. TC_ERR_UNSUPPORTED where it
 * makes none or is not known. */
tc_status
tc_memory_alloc(const char *backend, tc_device device, struct tc_engine *engine,
                uint64_t bytes, tc_memory *memory_p, tc_error *err);

/* The same from the backend, for the device and in the process of a communicator, also
 * a finalized one. */
bool
tc_comm_has_memory(const tc_comm *comm);

tc_status
tc_comm_memory_alloc(const tc_comm *comm, uint64_t bytes, tc_memory *memory_p,
                     tc_error *err);

#endif
