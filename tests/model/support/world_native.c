/* SPDX-License-Identifier: BSD-3-Clause */
/* The real life of a communicator, compiled in here: all but its start-up is used. */
#include "model/support/world.h"

#include "backend/native/native.c"

tc_native *
world_native_create(const tc_comm_config *config, tc_shm_segment *segment)
{
    tc_native *comm = NULL;
    tc_error err;

    MODEL_CHECK(alloc_comm(config, &comm, &err) == TC_OK);
    comm->number = 0;
    comm->segment = segment;
    MODEL_CHECK(finish_comm(comm, &err) == TC_OK);
    comm->mcast_out.populated = UINT32_MAX;
    for (int32_t r = 0; r < config->size; r++) {
        comm->pair_out[r].populated = UINT32_MAX;
    }
    return comm;
}
