/* SPDX-License-Identifier: BSD-3-Clause */
/* Large calls whose ranks may read each other's buffers: where all of them lie in heaps
 * that all can map a direct plan runs, else the one with lanes. */
#include <stdlib.h>

#include "backend/native/state.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/log.h"

/* From here on a buffer is worth the exchange of two words. */
#define LEAST_BYTES (UINT64_C(1) << 20)

/* Values of `phase`. All ranks go through the same ones, since they decide by the same
 * lines. No line is reused meanwhile: nobody ends such a call without all others. */
enum {
    ARRIVING, /* waits until all have made the call and shown their buffers */
    AGREEING, /* waits until all have said whether they can read them */
    RUNNING,
};

bool
tc_native_fits_direct(const tc_native *comm, const tc_call *call)
{
    uint64_t count = call->count;

    switch (call->kind) {
    case TC_OP_ALL_REDUCE:
        break;
    case TC_OP_ALL_GATHER_SINGLE:
    case TC_OP_REDUCE_SCATTER_SINGLE:
        count *= (uint64_t)comm->size;
        break;
    default:
        return false;
    }
    /* PREMUL_SUM reads a scaled copy. */
    return comm->size > 1 && call->redop != TC_REDOP_PREMUL_SUM &&
           count >= LEAST_BYTES / tc_dtype_size(call->dtype);
}

/* What peers read of the call: its input, and of all_reduce its output too. */
static const void *
input_of(const tc_call *call)
{
    return call->kind != TC_OP_REDUCE_SCATTER_SINGLE ? call->in
           : call->in_blocks.ptrs == NULL            ? call->in_blocks.base
                                                     : NULL;
}

static uint64_t
input_bytes(const tc_native *comm, const tc_call *call)
{
    uint64_t bytes = call->count * tc_dtype_size(call->dtype);

    return call->kind == TC_OP_REDUCE_SCATTER_SINGLE ? bytes * (uint64_t)comm->size
                                                     : bytes;
}

void
tc_native_show_buffers(const tc_native *comm, const tc_call *call, tc_shm_call *line)
{
    tc_heap *heap = tc_engine_heap(comm->engine);
    uint64_t bytes = input_bytes(comm, call);
    tc_heap_place in = tc_heap_locate(heap, input_of(call), bytes);
    tc_heap_place out = {0};

    if (call->kind == TC_OP_ALL_REDUCE) {
        out = tc_heap_locate(heap, call->out, bytes);
    }
    line->in_region = in.region;
    line->in_offset = in.offset;
    line->out_region = out.region;
    line->out_offset = out.offset;
    line->verdict = 0;
}

static bool
can_be_read(const tc_shm_call *line, tc_op_kind kind)
{
    return line->in_region != 0 && (kind != TC_OP_ALL_REDUCE || line->out_region != 0);
}

static bool
all_can_be_read(const tc_native *comm, const tc_op *op, uint64_t seq)
{
    for (int32_t r = 0; r < comm->size; r++) {
        if (!can_be_read(tc_native_line_of(comm, seq, r), op->call.kind)) {
            return false;
        }
    }
    return true;
}

static tc_status
reserve_views(tc_native *comm, tc_error *err)
{
    size_t n = (size_t)(uint32_t)comm->size;

    if (comm->views != NULL) {
        return TC_OK;
    }
    comm->peer_in = calloc(n, sizeof(comm->peer_in[0]));
    comm->peer_out = calloc(n, sizeof(comm->peer_out[0]));
    comm->views = calloc(n, sizeof(comm->views[0]));
    if (comm->peer_in == NULL || comm->peer_out == NULL || comm->views == NULL) {
        tc_native_views_destroy(comm);
        return tc_error_set(err, TC_ERR_NO_MEMORY, "views of the heaps of %zu ranks",
                            n);
    }
    return TC_OK;
}

void
tc_native_views_destroy(tc_native *comm)
{
    for (int32_t r = 0; comm->views != NULL && r < comm->size; r++) {
        tc_heap_view_destroy(comm->views[r]);
    }
    free(comm->views);
    free(comm->peer_in);
    free(comm->peer_out);
    comm->views = NULL;
    comm->peer_in = NULL;
    comm->peer_out = NULL;
}

/* Finds the buffers of rank r here. */
static tc_status
map_peer(tc_native *comm, const tc_call *call, const tc_shm_call *line, int32_t r,
         tc_error *err)
{
    uint64_t bytes = input_bytes(comm, call);

    if (comm->views[r] == NULL) {
        TC_TRY(tc_heap_view_create(comm->segment->pages[r], &comm->views[r], err));
    }
    TC_TRY(tc_heap_view_find(comm->views[r],
                             (tc_heap_place){line->in_region, line->in_offset}, bytes,
                             &comm->peer_in[r], err));
    if (call->kind == TC_OP_ALL_REDUCE) {
        TC_TRY(tc_heap_view_find(comm->views[r],
                                 (tc_heap_place){line->out_region, line->out_offset},
                                 bytes, &comm->peer_out[r], err));
    }
    return TC_OK;
}

static bool
map_all(tc_native *comm, tc_op *op)
{
    uint64_t seq = tc_native_op_of(op)->seq;
    tc_error err;

    if (reserve_views(comm, &err) != TC_OK) {
        TC_LOG(NATIVE, DEBUG, "communicator '%s': %s", comm->name, err.message);
        return false;
    }
    for (int32_t r = 0; r < comm->size; r++) {
        if (r != comm->rank &&
            map_peer(comm, &op->call, tc_native_line_of(comm, seq, r), r, &err) !=
                TC_OK) {
            TC_LOG(NATIVE, DEBUG, "communicator '%s': buffers of rank %d: %s",
                   comm->name, r, err.message);
            return false;
        }
    }
    return true;
}

static tc_native_step
run_plan(tc_native *comm, tc_op *op, bool direct)
{
    tc_native_op_of(op)->phase = RUNNING;
    return tc_native_plan_begin(comm, op, direct);
}

static tc_native_step
say_whether_readable(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);
    bool mapped = map_all(comm, op);

    tc_store_seq_cst_u64(&tc_native_line_of(comm, nop->seq, comm->rank)->verdict,
                         2 * nop->seq + (mapped ? 1 : 0));
    tc_shm_ring_all(comm->segment);
    nop->phase = AGREEING;
    nop->arrived = 0;
    nop->readable = mapped;
    return TC_NATIVE_MOVED;
}

static tc_native_step
await_calls(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);

    for (; nop->arrived < (uint32_t)comm->size; nop->arrived++) {
        int32_t r = (int32_t)nop->arrived;

        if (!tc_native_has_arrived(comm, nop->seq, r)) {
            nop->peer = r;
            return TC_NATIVE_BLOCKED;
        }
        if (tc_native_line_of(comm, nop->seq, r)->fingerprint != nop->fingerprint) {
            tc_native_mismatch_locked(comm, op, r);
            return TC_NATIVE_FAILED;
        }
    }
    return all_can_be_read(comm, op, nop->seq) ? say_whether_readable(comm, op)
                                               : run_plan(comm, op, false);
}

static tc_native_step
await_verdicts(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);

    for (; nop->arrived < (uint32_t)comm->size; nop->arrived++) {
        int32_t r = (int32_t)nop->arrived;
        uint64_t verdict =
            tc_load_acquire_u64(&tc_native_line_of(comm, nop->seq, r)->verdict);

        if (verdict / 2 != nop->seq) {
            nop->peer = r;
            return TC_NATIVE_BLOCKED;
        }
        nop->readable = nop->readable && verdict % 2 != 0;
    }
    return run_plan(comm, op, nop->readable);
}

static tc_native_step
direct_start(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);

    nop->phase = ARRIVING;
    nop->arrived = 0;
    nop->scratch = NULL;
    /* Others may sleep until this rank has come. */
    tc_store_seq_cst_u64(&tc_native_line_of(comm, nop->seq, comm->rank)->seq, nop->seq);
    tc_shm_ring_all(comm->segment);
    return TC_NATIVE_MOVED;
}

static tc_native_step
direct_step(tc_native *comm, tc_op *op)
{
    switch (tc_native_op_of(op)->phase) {
    case ARRIVING:
        return await_calls(comm, op);
    case AGREEING:
        return await_verdicts(comm, op);
    default:
        return tc_native_plan_path.step(comm, op);
    }
}

static void
direct_end(tc_native *comm, tc_op *op)
{
    tc_native_plan_path.end(comm, op);
}

const tc_native_path tc_native_direct_path = {
    .start = direct_start,
    .step = direct_step,
    .end = direct_end,
};
