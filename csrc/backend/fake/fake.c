/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the backend that moves nothing. */
#include "backend/fake/fake.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/error.h"

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

/* Handles only have to differ. */
static tc_status
fake_endpoint_open(const tc_comm_config *config, void **endpoint_p,
                   char handle_p[TC_INIT_HANDLE_BYTES], tc_error *err)
{
    static uint64_t count;
    uint64_t number = tc_fetch_add_relaxed_u64(&count, 1);

    (void)config;
    (void)err;
    snprintf(handle_p, TC_INIT_HANDLE_BYTES, "fake:%d:%" PRIu64, (int)getpid(), number);
    *endpoint_p = &fake_comm;
    return TC_OK;
}

static void
fake_endpoint_close(void *endpoint)
{
    (void)endpoint;
}

static tc_status
fake_endpoint_check(void *endpoint, const char *handle, tc_error *err)
{
    (void)endpoint;
    if (strncmp(handle, "fake:", strlen("fake:")) != 0) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "not an init handle of this backend");
    }
    return TC_OK;
}

static tc_status
fake_reconfigure(void *endpoint, const tc_comm_config *config,
                 const tc_members *members, void **comm_p, tc_error *err)
{
    (void)endpoint;
    (void)members;
    return fake_create(config, comm_p, err);
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
    .flags = TC_BACKEND_SOLITARY,
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
    .endpoint_open = fake_endpoint_open,
    .endpoint_close = fake_endpoint_close,
    .endpoint_check = fake_endpoint_check,
    .reconfigure = fake_reconfigure,
};

const tc_backend *
tc_fake_backend(void)
{
    return &fake;
}
