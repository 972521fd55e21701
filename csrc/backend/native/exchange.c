/* SPDX-License-Identifier: BSD-3-Clause */
/* The small-message path: write own data beside its number, read the others', combine.
 */
#include <string.h>

#include "backend/native/state.h"
#include "base/copy.h"
#include "base/dtype.h"

static uint64_t
elem_bytes(const tc_call *call)
{
    return tc_dtype_size(call->dtype);
}

/* Whether a rank shows a block for every rank, or one buffer for all. */
static bool
shows_blocks(tc_op_kind kind)
{
    tc_op_form form = tc_op_get_form(kind);

    return form == TC_FORM_SCATTER || form == TC_FORM_EXCHANGE;
}

/* Elements of a block, or of the one buffer; the same on every rank. */
static uint64_t
shown_count(const tc_call *call)
{
    return call->kind == TC_OP_BARRIER ? 0
           : call->kind == TC_OP_ALL_TO_ALL_SINGLE
               ? tc_blocks_count(&call->in_blocks, 0)
               : call->count;
}

/* Bytes this rank shows to the others; every rank computes the same number. */
static uint64_t
shown_bytes(const tc_native *comm, const tc_call *call)
{
    uint64_t bytes = shown_count(call) * elem_bytes(call);

    return shows_blocks(call->kind) ? bytes * (uint64_t)comm->size : bytes;
}

bool
tc_native_fits_exchange(const tc_native *comm, const tc_call *call, uint64_t *bytes_p)
{
    uint64_t limit = comm->segment->layout.exchange_bytes;

    switch (call->kind) {
    case TC_OP_BARRIER:
        *bytes_p = 0;
        return true;
    case TC_OP_ALL_REDUCE:
    case TC_OP_ALL_GATHER:
    case TC_OP_ALL_GATHER_SINGLE:
    case TC_OP_REDUCE_SCATTER:
    case TC_OP_REDUCE_SCATTER_SINGLE:
    case TC_OP_ALL_TO_ALL_SINGLE:
        /* The count first: bytes of a huge one would overflow. */
        if (shown_count(call) > limit) {
            return false;
        }
        *bytes_p = shown_bytes(comm, call);
        return *bytes_p <= limit;
    default: /* rooted, or only pairs of ranks know the sizes */
        return false;
    }
}

/* Writes what the others will read: one buffer, or the blocks one behind the other. */
static void
show(const tc_native *comm, const tc_call *call, uint8_t *dst, uint64_t bytes)
{
    uint64_t elem = elem_bytes(call);

    if (!shows_blocks(call->kind)) {
        tc_shm_segment_fill(comm->segment, dst, call->in, bytes);
    } else if (call->in_blocks.ptrs == NULL) {
        tc_shm_segment_fill(comm->segment, dst, call->in_blocks.base, bytes);
    } else {
        uint64_t block = shown_count(call) * elem;

        for (int32_t r = 0; r < comm->size; r++) {
            tc_shm_segment_fill(comm->segment, dst + block * (uint64_t)r,
                                call->in_blocks.ptrs[r], block);
        }
    }
    if (call->redop == TC_REDOP_PREMUL_SUM && bytes > 0) {
        tc_reduce_scale(call->dtype, dst, dst, call->factor, bytes / elem, NULL);
    }
}

/* Where rank r's bytes of exchange `number` lie. */
static uint8_t *
data_of(const tc_native *comm, int32_t r, uint64_t number, uint64_t bytes)
{
    if (bytes <= TC_SHM_INLINE_BYTES) {
        return tc_shm_segment_rank(comm->segment, r)->headers[number % 2].data;
    }
    return tc_shm_segment_exchange(comm->segment, r, number % 2);
}

static tc_native_step
exchange_start(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);
    uint64_t number = ++comm->exchanges;
    uint64_t bytes = nop->bytes;
    tc_shm_header *header = &comm->self->headers[number % 2];

    nop->exchange = number;
    nop->arrived = 0;
    if (bytes > 0) {
        show(comm, &op->call, data_of(comm, comm->rank, number, bytes), bytes);
    }
    header->fingerprint = nop->fingerprint;
    tc_store_seq_cst_u64(&header->seq, number);
    tc_shm_ring_all(comm->segment);
    return TC_NATIVE_MOVED;
}

static void
combine_reduction(tc_native *comm, tc_op *op)
{
    const tc_call *call = &op->call;
    tc_native_op *nop = tc_native_op_of(op);
    bool blocks = shows_blocks(call->kind);
    uint64_t offset =
        blocks ? call->count * elem_bytes(call) * (uint64_t)comm->rank : 0;

    for (int32_t r = 0; r < comm->size; r++) {
        comm->srcs[r] = data_of(comm, r, nop->exchange, nop->bytes) + offset;
    }
    if (call->redop != TC_REDOP_PREMUL_SUM) {
        /* The own buffer is in the cache as it is; the own slot belongs to the others.
         */
        comm->srcs[comm->rank] =
            blocks ? tc_blocks_ptr(&call->in_blocks, comm->rank, elem_bytes(call))
                   : call->in;
    }
    nop->reduce(call->out, comm->srcs, comm->size, call->count);
}

static void
combine_blocks(tc_native *comm, tc_op *op)
{
    const tc_call *call = &op->call;
    uint64_t number = tc_native_op_of(op)->exchange;
    uint64_t bytes = tc_native_op_of(op)->bytes;
    uint64_t elem = elem_bytes(call);
    bool blocks = shows_blocks(call->kind);
    uint64_t block = blocks ? shown_count(call) * elem : bytes;
    uint64_t offset = blocks ? block * (uint64_t)comm->rank : 0;

    for (int32_t r = 0; r < comm->size; r++) {
        const uint8_t *src = data_of(comm, r, number, bytes) + offset;
        uint8_t *dst = tc_blocks_ptr(&call->out_blocks, r, elem);

        /* The own block comes from the slot too, unless it is where it has to be. */
        if (r != comm->rank || blocks || dst != call->in) {
            tc_copy_to_user(dst, src, block, false);
        }
    }
}

static tc_native_step
exchange_step(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);

    for (; nop->arrived < (uint32_t)comm->size; nop->arrived++) {
        int32_t r = (int32_t)nop->arrived;
        const tc_shm_header *header =
            &tc_shm_segment_rank(comm->segment, r)->headers[nop->exchange % 2];

        if (tc_load_acquire_u64(&header->seq) != nop->exchange) {
            nop->peer = r;
            return TC_NATIVE_BLOCKED;
        }
        if (r != comm->rank) {
            tc_shm_segment_hear(comm->segment, r);
        }
        if (header->fingerprint != nop->fingerprint) {
            tc_native_mismatch_locked(comm, op, r);
            return TC_NATIVE_FAILED;
        }
    }
    if (nop->bytes == 0) {
        return TC_NATIVE_DONE;
    }
    if (nop->reduce != NULL) {
        combine_reduction(comm, op);
    } else {
        combine_blocks(comm, op);
    }
    return TC_NATIVE_DONE;
}

static void
exchange_end(tc_native *comm, tc_op *op)
{
    (void)comm;
    (void)op;
}

const tc_native_path tc_native_exchange_path = {
    .start = exchange_start,
    .step = exchange_step,
    .end = exchange_end,
};
