/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives, beside the collectives: operations, peers, and their turns. */
#include "backend/native/p2p.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "base/error.h"

void
tc_p2p_part_fail(tc_p2p_part *part, tc_status status, const char *format, ...)
{
    tc_p2p_op *pop = tc_p2p_op_of(part->op);
    char text[sizeof(part->op->error->message)];
    va_list args;

    if (pop->status != TC_OK) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    pop->status = tc_error_set(part->op->error, status, "%s", text);
}

static void
end_op(tc_native *comm, tc_op *op)
{
    tc_p2p_op *pop = tc_p2p_op_of(op);

    if (pop->parts != NULL) {
        free(pop->parts);
        pop->parts = NULL;
    }
    tc_native_complete_locked(comm, op, pop->status);
}

void
tc_p2p_part_end(tc_native *comm, tc_p2p_part *part)
{
    tc_op *op = part->op;

    comm->p2p->pending--;
    if (part->kind == TC_OP_RECV && op->call.source != NULL) {
        *op->call.source = part->peer;
    }
    if (--tc_p2p_op_of(op)->left == 0) {
        end_op(comm, op);
    }
}

void
tc_p2p_part_end_broken(tc_native *comm, tc_p2p_part *part)
{
    tc_p2p_op *pop = tc_p2p_op_of(part->op);

    if (pop->status == TC_OK) {
        (void)tc_native_is_broken_locked(comm);
        pop->status = tc_native_broken_error_locked(comm, part->op);
    }
    tc_p2p_part_end(comm, part);
}

const char *
tc_p2p_size_describe(uint64_t bytes, uint32_t dtype, char text[TC_P2P_SIZE_TEXT])
{
    uint64_t elem = tc_dtype_size((tc_dtype)dtype);

    snprintf(text, TC_P2P_SIZE_TEXT, "%llu %s",
             (unsigned long long)(elem > 0 ? bytes / elem : bytes),
             elem > 0 ? tc_dtype_name((tc_dtype)dtype) : "bytes of an unknown type");
    return text;
}

const char *
tc_p2p_part_describe(const tc_p2p_part *part, char *text, size_t capacity)
{
    if (part->kind == TC_OP_SEND) {
        snprintf(text, capacity, "send of %llu bytes to rank %d tag %d",
                 (unsigned long long)part->total, part->peer, part->tag);
    } else if (part->peer == TC_ANY_SOURCE) {
        snprintf(text, capacity, "recv from any rank tag %d", part->tag);
    } else {
        snprintf(text, capacity, "recv from rank %d tag %d", part->peer, part->tag);
    }
    return text;
}

/* Peers ---------------------------------------------------------------------------- */

tc_status
tc_p2p_peer_get(tc_native *comm, int32_t rank, tc_p2p_peer **peer_p, tc_error *err)
{
    tc_p2p_state *state = comm->p2p;
    tc_p2p_peer *peer = state->peers[rank];

    if (peer == NULL) {
        peer = calloc(1, sizeof(*peer));
        if (peer == NULL) {
            return tc_error_set(err, TC_ERR_NO_MEMORY, "table of messages of rank %d",
                                rank);
        }
        peer->rank = rank;
        peer->kept_end = &peer->kept;
        tc_shm_lane_open_writer(comm->segment, TC_SHM_LANE_EAGER, rank,
                                &peer->eager_out);
        tc_shm_lane_open_writer(comm->segment, TC_SHM_LANE_BULK, rank, &peer->bulk_out);
        tc_shm_lane_open_reader(comm->segment, TC_SHM_LANE_EAGER, rank,
                                &peer->eager_in);
        tc_shm_lane_open_reader(comm->segment, TC_SHM_LANE_BULK, rank, &peer->bulk_in);
        state->peers[rank] = peer;
        state->open[state->open_count++] = rank;
    }
    *peer_p = peer;
    return TC_OK;
}

/* Without memory for a peer's table its messages stay in the lane until there is some.
 */
static void
hear(tc_native *comm, int32_t rank)
{
    tc_p2p_peer *peer;

    if (rank < comm->size && rank != comm->rank &&
        tc_p2p_peer_get(comm, rank, &peer, NULL) == TC_OK) {
        peer->heard = true;
        comm->p2p->heard_count++;
    }
}

static bool
is_heard(const tc_native *comm, int32_t rank)
{
    return rank < comm->size && comm->p2p->peers[rank] != NULL &&
           comm->p2p->peers[rank]->heard;
}

void
tc_p2p_peers_discover(tc_native *comm)
{
    if (comm->p2p->heard_count == comm->size - 1) {
        return;
    }
    for (int32_t base = 0; base < comm->size; base += 64) {
        uint64_t word = tc_load_acquire_u64(&comm->self->senders[base / 64]);

        for (; word != 0; word &= word - 1) {
            int32_t rank = base + __builtin_ctzll(word);

            if (!is_heard(comm, rank)) {
                hear(comm, rank);
            }
        }
    }
}

bool
tc_p2p_peer_step(tc_native *comm, tc_p2p_peer *peer)
{
    bool moved = peer->heard && tc_p2p_recv_step(comm, peer);

    if (peer->sends.head == NULL && peer->offer_count == 0) {
        return moved;
    }
    return tc_p2p_send_step(comm, peer) || moved;
}

/* Operations ----------------------------------------------------------------------- */

static void
post_part(tc_native *comm, tc_p2p_part *part)
{
    if (part->kind == TC_OP_SEND) {
        tc_p2p_send_post(comm, part);
    } else {
        part->order = ++comm->p2p->orders;
        tc_p2p_recv_post(comm, part);
    }
}

static tc_p2p_part
part_of_call(tc_op *op)
{
    const tc_call *call = &op->call;
    bool send = call->kind == TC_OP_SEND;

    return (tc_p2p_part){
        .op = op,
        .buf = send ? (uint8_t *)(uintptr_t)call->in : call->out,
        .total = call->count * tc_dtype_size(call->dtype),
        .peer = call->root,
        .tag = call->tag,
        .kind = (uint8_t)call->kind,
        .dtype = (uint8_t)call->dtype,
    };
}

static tc_p2p_part
part_of_entry(tc_op *op, const tc_p2p *entry)
{
    return (tc_p2p_part){
        .op = op,
        .buf = entry->buf,
        .total = entry->count * tc_dtype_size(entry->dtype),
        .peer = entry->peer,
        .tag = entry->tag,
        .kind = (uint8_t)entry->kind,
        .dtype = (uint8_t)entry->dtype,
    };
}

static void
post_batch(tc_native *comm, tc_op *op)
{
    tc_p2p_op *pop = tc_p2p_op_of(op);
    uint64_t count = op->call.batch_count;

    pop->parts = calloc((size_t)count, sizeof(pop->parts[0]));
    if (pop->parts == NULL) {
        pop->status = tc_error_set(op->error, TC_ERR_NO_MEMORY, "batch of %llu parts",
                                   (unsigned long long)count);
        end_op(comm, op);
        return;
    }
    comm->p2p->pending += count;
    /* One more, so that the operation does not end while parts are still posted. */
    pop->left = count + 1;
    for (uint64_t i = 0; i < count; i++) {
        pop->parts[i] = part_of_entry(op, &op->call.batch[i]);
        post_part(comm, &pop->parts[i]);
    }
    if (--pop->left == 0) {
        end_op(comm, op);
    }
}

void
tc_native_p2p_post_locked(tc_native *comm, tc_op *op)
{
    tc_p2p_op *pop = tc_p2p_op_of(op);

    pop->status = TC_OK;
    pop->parts = NULL;
    if (op->call.kind == TC_OP_BATCH) {
        post_batch(comm, op);
        return;
    }
    pop->left = 1;
    comm->p2p->pending++;
    pop->one = part_of_call(op);
    post_part(comm, &pop->one);
}

bool
tc_native_p2p_step_locked(tc_native *comm)
{
    tc_p2p_state *state = comm->p2p;
    bool moved = false;

    if (tc_native_p2p_is_idle_locked(comm)) {
        return false;
    }
    tc_p2p_peers_discover(comm);
    state->turn++;
    for (int32_t i = 0; i < state->open_count; i++) {
        int32_t at =
            (int32_t)((state->turn + (uint32_t)i) % (uint32_t)state->open_count);

        moved = tc_p2p_peer_step(comm, state->peers[state->open[at]]) || moved;
    }
    return moved;
}

bool
tc_native_p2p_is_idle_locked(const tc_native *comm)
{
    return comm->p2p->pending == 0 && comm->p2p->debts == 0;
}

/* Life ----------------------------------------------------------------------------- */

tc_status
tc_native_p2p_create(tc_native *comm, tc_error *err)
{
    size_t size = (size_t)(uint32_t)comm->size;
    tc_p2p_state *state = calloc(1, sizeof(*state));

    comm->p2p = state;
    if (state != NULL) {
        state->peers = calloc(size, sizeof(state->peers[0]));
        state->open = calloc(size, sizeof(state->open[0]));
    }
    if (state == NULL || state->peers == NULL || state->open == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "point-to-point table of %zu ranks",
                            size);
    }
    return TC_OK;
}

void
tc_native_p2p_destroy(tc_native *comm)
{
    tc_p2p_state *state = comm->p2p;

    if (state == NULL) {
        return;
    }
    for (int32_t i = 0; i < state->open_count; i++) {
        tc_p2p_peer *peer = state->peers[state->open[i]];

        tc_p2p_kept_free(peer);
        free(peer);
    }
    free(state->open);
    free(state->peers);
    free(state);
    comm->p2p = NULL;
}
