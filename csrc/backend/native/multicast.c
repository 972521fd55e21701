/* SPDX-License-Identifier: BSD-3-Clause */
/* The path of a small broadcast: one piece in the root's multicast lane.
 *
 * It moves what the plan of a broadcast would move, piece for piece, without making a
 * plan: that costs more than the message itself (docs/design/small_path.md). */
#include "backend/native/state.h"
#include "base/copy.h"
#include "base/dtype.h"

bool
tc_native_fits_multicast(const tc_native *comm, const tc_call *call, uint64_t *bytes_p)
{
    uint32_t slot = comm->segment->layout.lanes[TC_SHM_LANE_MCAST].slot_bytes;
    uint32_t most = slot < TC_NATIVE_LEAST_PIECE ? slot : TC_NATIVE_LEAST_PIECE;

    if (call->kind != TC_OP_BROADCAST || call->count > most) {
        return false; /* the count first: bytes of a huge one would overflow */
    }
    *bytes_p = call->count * tc_dtype_size(call->dtype);
    return *bytes_p <= most;
}

static bool
is_root(const tc_native *comm, const tc_op *op)
{
    return op->call.root == comm->rank;
}

static tc_native_step
multicast_start(tc_native *comm, tc_op *op)
{
    uint32_t bytes = (uint32_t)tc_native_op_of(op)->bytes;
    tc_error err;

    if (comm->size > 1 && is_root(comm, op) &&
        tc_shm_lane_prepare(&comm->mcast_out, comm->segment, bytes, &err) != TC_OK) {
        tc_native_break(comm, err.status, comm->rank, "rank %d: %s", comm->rank,
                        err.message);
        return TC_NATIVE_FAILED;
    }
    return TC_NATIVE_MOVED;
}

static tc_native_step
write_piece(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);
    void *slot = comm->lanes.reserve(comm, TC_LANE_MCAST);

    if (slot == NULL) {
        nop->peer = comm->full_peer;
        return TC_NATIVE_BLOCKED;
    }
    tc_shm_segment_fill(comm->segment, slot, op->call.in, nop->bytes);
    comm->lanes.publish(comm, TC_LANE_MCAST, (uint32_t)nop->bytes, nop->bytes);
    return TC_NATIVE_DONE;
}

static tc_native_step
read_piece(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);
    int32_t root = op->call.root;
    uint32_t bytes = 0;
    tc_status status;
    const void *slot = comm->lanes.peek(comm, root, true, nop->bytes, &bytes, &status);

    if (status != TC_OK) {
        return TC_NATIVE_FAILED;
    }
    if (slot == NULL) {
        nop->peer = root;
        return TC_NATIVE_BLOCKED;
    }
    if (bytes != nop->bytes) {
        tc_native_report_length(comm, root);
        return TC_NATIVE_FAILED;
    }
    tc_copy_to_user(op->call.out, slot, bytes, false);
    comm->lanes.release(comm, root, true);
    return TC_NATIVE_DONE;
}

static tc_native_step
multicast_step(tc_native *comm, tc_op *op)
{
    if (comm->size == 1) {
        return TC_NATIVE_DONE;
    }
    return is_root(comm, op) ? write_piece(comm, op) : read_piece(comm, op);
}

static void
multicast_end(tc_native *comm, tc_op *op)
{
    (void)comm;
    (void)op;
}

const tc_native_path tc_native_multicast_path = {
    .start = multicast_start,
    .step = multicast_step,
    .end = multicast_end,
};
