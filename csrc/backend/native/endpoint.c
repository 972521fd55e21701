/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a communicator is found that has no ranks yet, and how its peers meet there. */
#include "backend/native/endpoint.h"

#include "backend/native/state.h"
#include "base/error.h"

_Static_assert((int)TC_SHM_ADDRESS_BYTES <= (int)TC_INIT_HANDLE_BYTES, "fits a handle");

/* The endpoint is the listener of a leader: whoever is rank 0 of the next membership
 * serves there, the others find its address in its handle. */
tc_status
tc_native_endpoint_open(const tc_comm_config *config, void **endpoint_p,
                        char handle_p[TC_INIT_HANDLE_BYTES], tc_error *err)
{
    tc_shm_leader *leader;

    (void)config;
    TC_TRY(tc_shm_leader_open(&leader, handle_p, err));
    *endpoint_p = leader;
    return TC_OK;
}

void
tc_native_endpoint_close(void *endpoint)
{
    tc_shm_leader_close(endpoint);
}

tc_status
tc_native_endpoint_check(void *endpoint, const char *handle, tc_error *err)
{
    (void)endpoint;
    if (tc_shm_address_check(handle, NULL) != TC_OK) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "not an init handle of this backend");
    }
    return TC_OK;
}

/* FNV-1a over the handles with their ends; a list has to differ visibly, nobody attacks
 * it. Never 0. */
static uint64_t
digest_of(const tc_members *members, int32_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (int32_t r = 0; r < size; r++) {
        const char *at = members->handles[r];

        do {
            hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
        } while (*at++ != '\0');
    }
    return hash | 1;
}

tc_status
tc_native_reconfigure(void *endpoint, const tc_comm_config *config,
                      const tc_members *members, void **comm_p, tc_error *err)
{
    tc_shm_group group = {
        .generation = members->uuid,
        .digest = digest_of(members, config->size),
        .addresses = members->handles,
    };

    return tc_native_open(config, endpoint, members->handles[0], &group, comm_p, err);
}
