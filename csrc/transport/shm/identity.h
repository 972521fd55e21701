/* SPDX-License-Identifier: BSD-3-Clause */
/* What tells one host, or one network namespace of it, from another. */
#ifndef TC_SHM_IDENTITY_H
#define TC_SHM_IDENTITY_H

#include "torchcomms/types.h"
#include "wire/shm_address.h"

/* Fills boot id, host id and network namespace; what the kernel does not tell stays
 * empty or 0. Fails only where TORCHCOMM_HOST_ID cannot be used. */
tc_status
tc_shm_identity_read(tc_wire_shm_address *address_p, tc_error *err);

/* TC_OK unless `leader` is known to be on another host than `own`. */
tc_status
tc_shm_identity_check(const tc_wire_shm_address *leader, const tc_wire_shm_address *own,
                      int32_t rank, tc_error *err);

#endif
