/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the backend that moves nothing. */
#include "backend/fake/fake.h"

/* Its communicators have no state: the address only has to differ from NULL. */
static char fake_comm;

static tc_status
fake_create(const tc_comm_config *config, void **comm_p, tc_error *err)
{
    (void)config;
    (void)err;
    *comm_p = &fake_comm;
    return TC_OK;
}

static void
fake_split_begin(void *comm, const tc_comm_config *config, const tc_split *split,
                 uint8_t blob[TC_SPLIT_BLOB_BYTES], void **pending_p)
{
    (void)comm;
    (void)config;
    (void)split;
    (void)blob;
    *pending_p = NULL;
}

static tc_status
fake_split_end(void *comm, const tc_comm_config *config, const tc_split *split,
               void *pending, const uint8_t *blobs, void **child_p, tc_error *err)
{
    (void)comm;
    (void)config;
    (void)pending;
    (void)blobs;
    (void)err;
    if (split->rank_count > 0) {
        *child_p = &fake_comm;
    }
    return TC_OK;
}

static void
fake_abort(void *comm)
{
    (void)comm;
}

static tc_status
fake_issue(void *comm, tc_op *op)
{
    (void)comm;
    (void)op;
    return TC_OK;
}

static const tc_backend fake = {
    .struct_size = sizeof(tc_backend),
    .abi = TC_BACKEND_ABI,
    .name = "fake",
    .version = "1",
    .device_type = TC_DEVICE_ANY,
    .comm_create = fake_create,
    .split_begin = fake_split_begin,
    .split_end = fake_split_end,
    .comm_abort = fake_abort,
    .issue =
        {
            [TC_OP_SEND] = fake_issue,
            [TC_OP_RECV] = fake_issue,
            [TC_OP_BROADCAST] = fake_issue,
            [TC_OP_ALL_REDUCE] = fake_issue,
            [TC_OP_REDUCE] = fake_issue,
            [TC_OP_ALL_GATHER] = fake_issue,
            [TC_OP_ALL_GATHER_V] = fake_issue,
            [TC_OP_ALL_GATHER_SINGLE] = fake_issue,
            [TC_OP_REDUCE_SCATTER] = fake_issue,
            [TC_OP_REDUCE_SCATTER_V] = fake_issue,
            [TC_OP_REDUCE_SCATTER_SINGLE] = fake_issue,
            [TC_OP_ALL_TO_ALL_SINGLE] = fake_issue,
            [TC_OP_ALL_TO_ALL_V_SINGLE] = fake_issue,
            [TC_OP_ALL_TO_ALL] = fake_issue,
            [TC_OP_BARRIER] = fake_issue,
            [TC_OP_SCATTER] = fake_issue,
            [TC_OP_GATHER] = fake_issue,
            [TC_OP_GATHER_SINGLE] = fake_issue,
            [TC_OP_BATCH] = fake_issue,
        },
};

const tc_backend *
tc_fake_backend(void)
{
    return &fake;
}
