/* SPDX-License-Identifier: BSD-3-Clause */
/* Life of a work: taken, issued, completed once, waited for, given back. */
#include "core/work.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/object.h"

static size_t
array_bytes(const tc_blocks *blocks, int32_t size)
{
    size_t n = 0;

    n += blocks->ptrs != NULL ? (size_t)size * sizeof(blocks->ptrs[0]) : 0;
    n += blocks->counts != NULL ? (size_t)size * sizeof(blocks->counts[0]) : 0;
    return n;
}

/* Moves the arrays of `blocks` to *at_p and that forward. */
static void
copy_arrays(tc_blocks *blocks, int32_t size, char **at_p)
{
    if (blocks->ptrs != NULL) {
        size_t n = (size_t)size * sizeof(blocks->ptrs[0]);

        blocks->ptrs = memcpy(*at_p, blocks->ptrs, n);
        *at_p += n;
    }
    if (blocks->counts != NULL) {
        size_t n = (size_t)size * sizeof(blocks->counts[0]);

        blocks->counts = memcpy(*at_p, blocks->counts, n);
        *at_p += n;
    }
}

/* The backend may need the call's arrays after the issuer has returned. */
static bool
own_arrays(tc_work *work, int32_t size)
{
    tc_call *call = &work->op.call;
    size_t batch = call->batch_count * sizeof(call->batch[0]);
    size_t bytes = array_bytes(&call->in_blocks, size) +
                   array_bytes(&call->out_blocks, size) + batch;
    char *at;

    work->arrays = work->inline_arrays;
    if (bytes == 0) {
        return true;
    }
    if (bytes > sizeof(work->inline_arrays)) {
        work->arrays = malloc(bytes);
        if (work->arrays == NULL) {
            return false;
        }
    }
    at = work->arrays;
    copy_arrays(&call->in_blocks, size, &at);
    copy_arrays(&call->out_blocks, size, &at);
    if (batch > 0) {
        call->batch = memcpy(at, call->batch, batch);
    }
    return true;
}

static void
drop_arrays(tc_work *work)
{
    if (work->arrays != work->inline_arrays) {
        free(work->arrays);
    }
    work->arrays = NULL;
}

tc_work *
tc_work_take(tc_comm *comm, tc_membership *membership, const tc_call *call)
{
    tc_work *work = tc_exchange_acq_rel_ptr(&membership->spare, NULL);

    if (work == NULL) {
        work = malloc(sizeof(*work));
        if (work == NULL) {
            return NULL;
        }
        work->comm = comm;
        work->membership = membership;
        work->op.error = &work->error;
    }
    work->op.call = *call;
    work->owner = (tc_owner){0};
    work->status = TC_PENDING;
    work->watches = NULL;
    tc_store_relaxed_u32(&work->failure_seen, 0);
    tc_store_relaxed_u32(&work->refs, 2);
    tc_store_relaxed_u32(&work->state, TC_WORK_INPROGRESS);
    if (!own_arrays(work, comm->size)) {
        free(work);
        return NULL;
    }
    return work;
}

void
tc_work_put(tc_membership *membership, tc_work *work)
{
    drop_arrays(work);
    if (!tc_cas_acq_rel_ptr(&membership->spare, NULL, work)) {
        free(work);
    }
}

void
tc_work_retain(tc_work *work)
{
    tc_fetch_add_seq_cst_u32(&work->refs, 1);
}

void
tc_work_release(tc_work *work)
{
    tc_membership *membership = work->membership;
    tc_comm *comm = work->comm;

    if (tc_fetch_sub_seq_cst_u32(&work->refs, 1) != 1) {
        return;
    }
    if (work->owner.release != NULL) {
        work->owner.release(work->owner.ptr);
    }
    tc_work_put(membership, work);
    tc_membership_release(membership);
    tc_comm_release(comm);
}

void
tc_work_set_owner(tc_work *work, tc_owner owner)
{
    work->owner = owner;
}

uint32_t
tc_work_backend_flags(const tc_work *work)
{
    return work->membership->backend->flags;
}

tc_work_state
tc_work_get_state(const tc_work *work)
{
    return (tc_work_state)tc_load_acquire_u32(&work->state);
}

tc_status
tc_work_result(const tc_work *work, tc_error *err)
{
    if (tc_work_get_state(work) == TC_WORK_INPROGRESS) {
        return TC_PENDING;
    }
    if (work->status != TC_OK && err != NULL) {
        *err = work->error;
    }
    return work->status;
}

/* What `watches` is once the work has ended. */
static tc_work_watch ended;

/* The memory of each is its owner's again as soon as it is called. */
static void
run_watches(tc_work_watch *newest)
{
    tc_work_watch *oldest = NULL;

    while (newest != NULL) {
        tc_work_watch *next = newest->next;

        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        tc_work_watch *next = oldest->next;

        oldest->fn(oldest->ctx);
        oldest = next;
    }
}

void
tc_work_complete(tc_op *op, tc_status status)
{
    tc_work *work = (tc_work *)op;
    tc_membership *membership = work->membership;
    tc_work_state end = status == TC_OK            ? TC_WORK_COMPLETED
                        : status == TC_ERR_TIMEOUT ? TC_WORK_TIMEDOUT
                                                   : TC_WORK_ERROR;

    work->status = status;
    /* A backend completes once; the swap keeps a fault of its own from ending twice. */
    if (tc_cas_acq_rel_u32(&work->state, TC_WORK_INPROGRESS, end)) {
        run_watches(tc_exchange_acq_rel_ptr(&work->watches, &ended));
        tc_fetch_add_relaxed_u64(&membership->ended, 1);
        tc_work_release(work);
    }
}

void
tc_work_on_end(tc_work *work, tc_work_watch *watch)
{
    do {
        watch->next = tc_load_acquire_ptr(&work->watches);
        if (watch->next == &ended) {
            watch->fn(watch->ctx);
            return;
        }
    } while (!tc_cas_acq_rel_ptr(&work->watches, watch->next, watch));
}

static bool
work_is_done(const void *ctx)
{
    return tc_work_get_state(ctx) != TC_WORK_INPROGRESS;
}

tc_status
tc_work_wait(tc_work *work, uint64_t timeout_ns, const tc_interrupt *interrupt,
             tc_error *err)
{
    tc_membership *membership = work->membership;
    uint64_t deadline = TC_DEADLINE_NONE;

    if (timeout_ns != TC_DEADLINE_NONE) {
        deadline = tc_deadline_after(tc_clock_ns(), timeout_ns);
    }
    if (!work_is_done(work)) {
        tc_status status =
            tc_membership_wait(membership, work_is_done, work, deadline, interrupt);

        if (status != TC_OK) {
            membership->backend->detach(membership->ctx, &work->op);
            return status == TC_EXPIRED
                       ? tc_error_set(err, status, "wait of %.3f s ran out",
                                      (double)timeout_ns / TC_NSEC_PER_SEC)
                       : status;
        }
    }
    return tc_work_result(work, err);
}
