/* SPDX-License-Identifier: BSD-3-Clause */
/* The path of everything larger: a plan, run over the lanes of the segment. */
#include <stdlib.h>
#include <string.h>

#include "backend/native/state.h"
#include "base/dtype.h"
#include "base/error.h"

static tc_shm_lane *
lane_of(tc_native *comm, int32_t lane, bool mcast)
{
    return mcast ? &comm->mcast_in[lane] : &comm->pair_in[lane];
}

static tc_shm_lane *
writing_lane_of(tc_native *comm, int32_t lane)
{
    return lane == TC_LANE_MCAST ? &comm->mcast_out : &comm->pair_out[lane];
}

static void *
lane_reserve(void *ctx, int32_t lane)
{
    tc_native *comm = ctx;
    tc_shm_lane *out = writing_lane_of(comm, lane);
    void *slot = tc_shm_lane_reserve(out);

    if (slot == NULL) {
        comm->full_peer = tc_shm_lane_slowest(out);
    }
    return slot;
}

static void
lane_fill(void *ctx, void *slot, const void *src, size_t bytes)
{
    tc_native *comm = ctx;

    tc_shm_segment_fill(comm->segment, slot, src, bytes);
}

static void
lane_publish(void *ctx, int32_t lane, uint32_t bytes, uint64_t total)
{
    tc_native *comm = ctx;
    tc_shm_piece piece = {
        .fingerprint = tc_native_op_of(comm->head)->fingerprint,
        .total = total,
        .bytes = bytes,
    };

    tc_shm_lane_publish(writing_lane_of(comm, lane), &piece);
}

static const void *
lane_peek(void *ctx, int32_t lane, bool mcast, uint64_t total, uint32_t *bytes_p,
          tc_status *status_p)
{
    tc_native *comm = ctx;
    const uint8_t *data = NULL;
    const tc_shm_piece *piece = tc_shm_lane_peek(lane_of(comm, lane, mcast), &data);

    *status_p = TC_OK;
    if (piece == NULL) {
        return NULL;
    }
    if (piece->fingerprint != tc_native_op_of(comm->head)->fingerprint) {
        tc_native_mismatch_locked(comm, comm->head, lane);
        *status_p = TC_ERR_MISMATCH;
    } else if (piece->total != total) {
        char call[128];

        tc_native_describe(comm->head, call, sizeof(call));
        tc_native_break(comm, TC_ERR_MISMATCH, lane,
                        "%s: rank %d expects %llu bytes from rank %d, which sends %llu",
                        call, comm->rank, (unsigned long long)total, lane,
                        (unsigned long long)piece->total);
        *status_p = TC_ERR_MISMATCH;
    }
    *bytes_p = piece->bytes;
    return data;
}

static void
lane_release(void *ctx, int32_t lane, bool mcast)
{
    tc_shm_lane_release(lane_of(ctx, lane, mcast));
}

void
tc_native_lanes_init(tc_native *comm)
{
    comm->lanes = (tc_lanes){
        .ctx = comm,
        .reserve = lane_reserve,
        .fill = lane_fill,
        .publish = lane_publish,
        .peek = lane_peek,
        .release = lane_release,
    };
}

static uint32_t
power_of_two_above(uint64_t value)
{
    uint32_t power = TC_NATIVE_LEAST_PIECE;

    while (power < value) {
        power *= 2;
    }
    return power;
}

/* The piece, the same on every rank: a whole slot, or half of the largest transfer
 * where all ranks know that, so that one piece is written while the other is read. */
static uint32_t
piece_bytes(const tc_native *comm, const tc_call *call)
{
    uint32_t slot = comm->segment->layout.lanes[TC_SHM_LANE_PAIR].slot_bytes;
    uint64_t bytes = call->count * tc_dtype_size(call->dtype);
    uint32_t piece;

    switch (call->kind) {
    case TC_OP_ALL_REDUCE:
        bytes /= (uint64_t)comm->size;
        break;
    case TC_OP_BROADCAST:
    case TC_OP_REDUCE:
    case TC_OP_ALL_GATHER_SINGLE:
    case TC_OP_REDUCE_SCATTER_SINGLE:
        break;
    default:
        return slot;
    }
    if (bytes >= slot * 2) {
        return slot; /* before the power overflows */
    }
    piece = power_of_two_above((bytes + 1) / 2);
    return piece < slot ? piece : slot;
}

/* PREMUL_SUM: a scaled copy takes the place of the input, which is left alone. */
static tc_status
scale_input(const tc_native *comm, tc_op *op, tc_error *err)
{
    tc_call *call = &op->call;
    tc_native_op *nop = tc_native_op_of(op);
    uint64_t elem = tc_dtype_size(call->dtype);
    bool blocks = tc_op_get_form(call->kind) == TC_FORM_SCATTER;
    uint64_t count = blocks ? 0 : call->count;
    uint8_t *at;

    for (int32_t r = 0; blocks && r < comm->size; r++) {
        count += tc_blocks_count(&call->in_blocks, r);
    }
    at = malloc(count * elem + 1);
    nop->scratch = at;
    if (at == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "scaled input of %llu bytes",
                            (unsigned long long)(count * elem));
    }
    if (!blocks) {
        call->in = at;
        return tc_reduce_scale(call->dtype, at, nop->input, call->factor, count, err);
    }
    nop->scratch_ptrs = malloc((size_t)comm->size * sizeof(void *));
    if (nop->scratch_ptrs == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "scaled input of %d blocks",
                            comm->size);
    }
    for (int32_t r = 0; r < comm->size; r++) {
        uint64_t n = tc_blocks_count(&call->in_blocks, r);

        TC_TRY(tc_reduce_scale(call->dtype, at,
                               tc_blocks_ptr(&call->in_blocks, r, elem), call->factor,
                               n, err));
        nop->scratch_ptrs[r] = at;
        at += n * elem;
    }
    call->in_blocks.ptrs = nop->scratch_ptrs;
    return TC_OK;
}

/* Makes the memory present that the steps will write to. */
static tc_status
prepare_lanes(tc_native *comm, const tc_plan *plan, uint32_t piece, tc_error *err)
{
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const tc_step *step = &plan->steps[i];
        uint32_t bytes = step->bytes < piece ? (uint32_t)step->bytes : piece;

        if (step->kind == TC_STEP_SEND) {
            TC_TRY(tc_shm_lane_prepare(&comm->pair_out[step->peer], comm->segment,
                                       bytes, err));
        } else if (step->kind == TC_STEP_MCAST) {
            TC_TRY(tc_shm_lane_prepare(&comm->mcast_out, comm->segment, bytes, err));
        }
    }
    return TC_OK;
}

static tc_status
make_run(tc_native *comm, tc_op *op, bool direct, tc_error *err)
{
    tc_native_op *nop = tc_native_op_of(op);
    tc_call *call = &op->call;
    uint32_t piece = piece_bytes(comm, call);
    tc_plan_shape shape = {
        .kind = call->kind,
        .rank = comm->rank,
        .size = comm->size,
        .root = call->root,
        .elem_bytes = tc_dtype_size(call->dtype),
        .count = call->count,
        .in_blocks = &call->in_blocks,
        .out_blocks = &call->out_blocks,
        .direct = direct,
    };

    TC_TRY(tc_plan_create(&shape, &comm->plan, err));
    if (nop->reduce != NULL && call->redop == TC_REDOP_PREMUL_SUM) {
        TC_TRY(scale_input(comm, op, err));
    }
    TC_TRY(prepare_lanes(comm, &comm->plan, piece, err));
    return tc_run_create(&(tc_run_config){.plan = &comm->plan,
                                          .call = call,
                                          .lanes = &comm->lanes,
                                          .reduce = nop->reduce,
                                          .peer_in = comm->peer_in,
                                          .peer_out = comm->peer_out,
                                          .rank = comm->rank,
                                          .size = comm->size,
                                          .piece_bytes = piece,
                                          .cache_bytes = comm->cache_bytes},
                         &comm->run, err);
}

tc_native_step
tc_native_plan_begin(tc_native *comm, tc_op *op, bool direct)
{
    tc_native_op *nop = tc_native_op_of(op);
    tc_error err;

    nop->scratch = NULL;
    nop->scratch_ptrs = NULL;
    nop->input = op->call.in;
    if (make_run(comm, op, direct, &err) != TC_OK) {
        tc_native_break(comm, err.status, comm->rank, "rank %d: %s", comm->rank,
                        err.message);
        return TC_NATIVE_FAILED;
    }
    return TC_NATIVE_MOVED;
}

static tc_native_step
plan_start(tc_native *comm, tc_op *op)
{
    return tc_native_plan_begin(comm, op, false);
}

void
tc_native_report_length(tc_native *comm, int32_t peer)
{
    tc_native_break(comm, TC_ERR_MISMATCH, peer,
                    "rank %d got a piece of another length than it expects from rank "
                    "%d",
                    comm->rank, peer);
}

static tc_native_step
plan_step(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);
    bool moved = false;
    tc_status status;

    comm->full_peer = -1;
    status = tc_run_step(comm->run, &moved, &nop->peer);
    if (status == TC_OK) {
        return TC_NATIVE_DONE;
    }
    if (status < 0) {
        tc_native_report_length(comm, nop->peer);
        return TC_NATIVE_FAILED;
    }
    if (nop->peer < 0) {
        nop->peer = comm->full_peer;
    }
    return moved ? TC_NATIVE_MOVED : TC_NATIVE_BLOCKED;
}

static void
plan_end(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);

    (void)comm;
    if (nop->scratch != NULL) {
        free(nop->scratch);
        free(nop->scratch_ptrs);
    }
}

const tc_native_path tc_native_plan_path = {
    .start = plan_start,
    .step = plan_step,
    .end = plan_end,
};
