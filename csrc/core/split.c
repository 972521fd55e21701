/* SPDX-License-Identifier: BSD-3-Clause */
/* Children of a communicator: the two halves of a split and the exchange between them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "core/hints.h"
#include "core/object.h"

/* Every rank's blob to every rank, by the parent's own all_gather. */
static tc_status
exchange_blobs(tc_comm *comm, const uint8_t *blob, uint8_t *blobs,
               const tc_interrupt *interrupt, tc_error *err)
{
    tc_call call = {
        .kind = TC_OP_ALL_GATHER_SINGLE,
        .dtype = TC_UINT8,
        .count = TC_SPLIT_BLOB_BYTES,
        .in = blob,
        .out_blocks = {.base = blobs, .count = TC_SPLIT_BLOB_BYTES},
    };
    tc_work *work;
    tc_status status = tc_comm_issue(comm, &call, 0, &work, err);

    if (status == TC_PENDING) {
        do {
            status = tc_work_wait(work, TC_DEADLINE_NONE, interrupt, err);
            /* The buffers are this function's: it stays until the exchange ends. */
        } while (status == TC_INTERRUPTED && tc_work_result(work, NULL) == TC_PENDING);
        tc_work_release(work);
    }
    return status;
}

static tc_status
split_with(tc_comm *comm, tc_comm *child, const tc_split *split,
           const tc_split_options *options, tc_error *err)
{
    const tc_backend *backend = comm->backend;
    uint8_t *blobs = malloc((size_t)(uint32_t)comm->size * TC_SPLIT_BLOB_BYTES);
    uint8_t blob[TC_SPLIT_BLOB_BYTES] = {0};
    void **ctx_p = &child->membership->ctx;
    void *pending = NULL;
    tc_comm_config config;
    tc_status status;

    if (blobs == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "exchange of a split of %d ranks",
                            comm->size);
    }
    tc_comm_fill_config(child, &options->interrupt, &config);
    backend->split_begin(comm->membership->ctx, &config, split, blob, &pending);
    status = exchange_blobs(comm, blob, blobs, &options->interrupt, err);
    if (status != TC_OK) {
        backend->split_end(comm->membership->ctx, &config, split, pending, NULL, ctx_p,
                           NULL);
    } else {
        status = backend->split_end(comm->membership->ctx, &config, split, pending,
                                    blobs, ctx_p, err);
    }
    free(blobs);
    return status;
}

/* Also finds this rank's place in the child. */
static tc_status
check_split(const tc_comm *comm, const tc_split *split, int32_t *child_rank_p,
            tc_error *err)
{
    TC_TRY(tc_comm_check_usable(comm, err));
    if (comm->backend->split_begin == NULL || comm->backend->split_end == NULL) {
        return tc_error_set(err, TC_ERR_UNSUPPORTED,
                            "split not implemented for communicator '%s'", comm->name);
    }
    return tc_split_check(split, comm->rank, comm->size, child_rank_p, err);
}

/* The name of a child, from malloc. */
static char *
name_child(const tc_comm *comm, const tc_split_options *options)
{
    int32_t smallest = options->rank_count > 0 ? options->ranks[0] : -1;
    size_t room = strlen(options->name) + 16;
    char *name = malloc(room);

    for (int32_t i = 1; i < options->rank_count; i++) {
        smallest = options->ranks[i] < smallest ? options->ranks[i] : smallest;
    }
    if (name != NULL) {
        bool numbered = (comm->backend->flags & TC_BACKEND_NUMBERS_CHILDREN) != 0;

        snprintf(name, room, numbered && smallest >= 0 ? "%s_%d" : "%s", options->name,
                 smallest);
    }
    return name;
}

tc_status
tc_comm_check_split(const tc_comm *comm, const tc_split_options *options, tc_error *err)
{
    tc_split split = {options->ranks, options->rank_count};
    int32_t child_rank;

    return check_split(comm, &split, &child_rank, err);
}

tc_status
tc_comm_split(tc_comm *comm, const tc_split_options *options, tc_comm **child_p,
              tc_error *err)
{
    tc_split split = {options->ranks, options->rank_count};
    tc_comm_options child_options = {
        .backend = comm->backend_name,
        .rank = -1,
        .size = options->rank_count,
        .device = comm->device,
        .timeout_ns =
            options->timeout_ns != 0 ? options->timeout_ns : tc_comm_timeout(comm),
        .abort_process = options->abort_process != NULL ? *options->abort_process
                                                        : comm->abort_process,
        .hints = options->hints != NULL ? options->hints : comm->hints,
        .hint_count = options->hints != NULL ? options->hint_count : comm->hint_count,
    };
    tc_comm *child = NULL;
    char *name;
    tc_status status;

    *child_p = NULL;
    TC_TRY(check_split(comm, &split, &child_options.rank, err));
    name = name_child(comm, options);
    if (name == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "child '%s'", options->name);
    }
    child_options.name = name;
    status = tc_comm_alloc(&child_options, comm->backend, comm->engine, &child, err);
    free(name);
    if (status != TC_OK) {
        return status;
    }
    status = split_with(comm, child, &split, options, err);
    if (status != TC_OK || child->membership->ctx == NULL) {
        tc_comm_free(child);
        return status;
    }
    if (options->hints != NULL) {
        tc_hints_check(comm->backend, child->name, child->hints, child->hint_count);
    }
    *child_p = child;
    return TC_OK;
}
