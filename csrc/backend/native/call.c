/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers, fingerprints and announcements of collectives, and what a mismatch says. */
#include <stdio.h>
#include <string.h>

#include "backend/native/state.h"
#include "base/dtype.h"

/* One round of a 64-bit mixer: multiply by an odd constant and fold the high half. */
static uint64_t
mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 32);
}

static uint64_t
mix_counts(uint64_t hash, const tc_blocks *blocks, int32_t size)
{
    for (int32_t r = 0; r < size; r++) {
        hash = mix(hash, tc_blocks_count(blocks, r));
    }
    return hash;
}

/* The count that every rank has to agree on; 0 where only pairs of ranks do. */
static uint64_t
common_count(const tc_native *comm, const tc_call *call)
{
    switch (call->kind) {
    case TC_OP_ALL_GATHER_V:
        return mix_counts(0, &call->out_blocks, comm->size);
    case TC_OP_REDUCE_SCATTER_V:
        return mix_counts(0, &call->in_blocks, comm->size);
    case TC_OP_ALL_TO_ALL_SINGLE:
        return tc_blocks_count(&call->in_blocks, 0);
    case TC_OP_ALL_TO_ALL:
    case TC_OP_ALL_TO_ALL_V_SINGLE:
    case TC_OP_SCATTER:
    case TC_OP_GATHER:
    case TC_OP_GATHER_SINGLE:
    case TC_OP_BARRIER:
        return 0;
    default:
        return call->count;
    }
}

/* What a reader of an error wants to see: elements, not a hash of them. */
static uint64_t
shown_count(const tc_call *call)
{
    return call->kind == TC_OP_ALL_TO_ALL_SINGLE ? tc_blocks_count(&call->in_blocks, 0)
                                                 : call->count;
}

void
tc_native_announce_locked(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);
    const tc_call *call = &op->call;
    uint64_t seq = ++comm->seq;
    tc_shm_call *line = &comm->self->calls[seq % TC_SHM_CALLS];
    int32_t root = tc_op_is_rooted(call->kind) ? call->root : -1;
    tc_redop redop = tc_op_reduces(call->kind) ? call->redop : TC_REDOP_COUNT;
    tc_dtype dtype = call->kind == TC_OP_BARRIER ? TC_BOOL : call->dtype;
    uint64_t small = (uint64_t)call->kind | (uint64_t)dtype << 8 |
                     (uint64_t)redop << 16 | (uint64_t)(uint32_t)root << 32;

    nop->seq = seq;
    nop->fingerprint = mix(mix(small, common_count(comm, call)), comm->history);
    comm->history = nop->fingerprint;
    tc_store_relaxed_u64(&line->seq, 0);
    line->fingerprint = nop->fingerprint;
    line->count = shown_count(call);
    line->kind = (uint8_t)call->kind;
    line->dtype = (uint8_t)dtype;
    line->redop = (uint8_t)redop;
    line->root = root;
    if (nop->path == &tc_native_direct_path) {
        tc_native_show_buffers(comm, call, line);
    }
    tc_store_release_u64(&line->seq, seq);
}

tc_shm_call *
tc_native_line_of(const tc_native *comm, uint64_t seq, int32_t peer)
{
    return &tc_shm_segment_rank(comm->segment, peer)->calls[seq % TC_SHM_CALLS];
}

bool
tc_native_call_differs(const tc_native *comm, tc_op *op, int32_t peer)
{
    const tc_native_op *nop = tc_native_op_of(op);
    const tc_shm_call *line = tc_native_line_of(comm, nop->seq, peer);
    uint64_t fingerprint;

    if (tc_load_acquire_u64(&line->seq) != nop->seq) {
        return false;
    }
    fingerprint = line->fingerprint;
    return fingerprint != nop->fingerprint &&
           tc_load_acquire_u64(&line->seq) == nop->seq;
}

bool
tc_native_has_arrived(const tc_native *comm, uint64_t seq, int32_t peer)
{
    return tc_load_acquire_u64(&tc_native_line_of(comm, seq, peer)->seq) >= seq;
}

static void
describe_line(const tc_shm_call *line, char *text, size_t capacity)
{
    int used = snprintf(text, capacity, "%s", tc_op_name((tc_op_kind)line->kind));

    if (line->kind != TC_OP_BARRIER && used > 0 && (size_t)used < capacity) {
        used += snprintf(text + used, capacity - (size_t)used, " of %llu %s",
                         (unsigned long long)line->count,
                         tc_dtype_name((tc_dtype)line->dtype));
    }
    if (line->redop < TC_REDOP_COUNT && used > 0 && (size_t)used < capacity) {
        used += snprintf(text + used, capacity - (size_t)used, " with %s",
                         tc_redop_name((tc_redop)line->redop));
    }
    if (line->root >= 0 && used > 0 && (size_t)used < capacity) {
        snprintf(text + used, capacity - (size_t)used, ", root %d", line->root);
    }
}

void
tc_native_describe(tc_op *op, char *text, size_t capacity)
{
    const tc_call *call = &op->call;
    tc_shm_call line = {
        .count = shown_count(call),
        .kind = (uint8_t)call->kind,
        .dtype = (uint8_t)call->dtype,
        .redop = (uint8_t)(tc_op_reduces(call->kind) ? call->redop : TC_REDOP_COUNT),
        .root = tc_op_is_rooted(call->kind) ? call->root : -1,
    };

    describe_line(&line, text, capacity);
}

/* A copy of what rank r has announced under this number; false when that is gone. */
static bool
read_line(const tc_native *comm, uint64_t seq, int32_t r, tc_shm_call *copy_p)
{
    const tc_shm_call *line = tc_native_line_of(comm, seq, r);

    if (tc_load_acquire_u64(&line->seq) != seq) {
        return false;
    }
    *copy_p = *line;
    return tc_load_acquire_u64(&line->seq) == seq;
}

/* Of the calls up to `last` that both have announced and still show, the first that
 * differs: since fingerprints are chained, all after it do. 0: none. */
static uint64_t
first_difference(const tc_native *comm, uint64_t last, int32_t peer, tc_shm_call *own_p,
                 tc_shm_call *other_p)
{
    uint64_t first = 0;
    tc_shm_call own, other;

    for (uint64_t s = last; s > 0 && last - s < TC_SHM_CALLS; s--) {
        if (read_line(comm, s, comm->rank, &own) && read_line(comm, s, peer, &other) &&
            own.fingerprint != other.fingerprint) {
            first = s;
            *own_p = own;
            *other_p = other;
        }
    }
    return first;
}

static void
report_mismatch(tc_native *comm, uint64_t seq, const char *mine, int32_t peer,
                const char *theirs)
{
    tc_native_break(comm, TC_ERR_MISMATCH, peer,
                    "ranks disagree on collective %llu: rank %d called %s, rank %d "
                    "called %s",
                    (unsigned long long)seq, comm->rank, mine, peer, theirs);
}

/* True when a difference was found and reported. */
static bool
report_difference(tc_native *comm, uint64_t last, int32_t peer)
{
    char mine[128];
    char theirs[128];
    tc_shm_call own, other;
    uint64_t seq = first_difference(comm, last, peer, &own, &other);

    if (seq != 0) {
        describe_line(&own, mine, sizeof(mine));
        describe_line(&other, theirs, sizeof(theirs));
        report_mismatch(comm, seq, mine, peer, theirs);
    }
    return seq != 0;
}

void
tc_native_mismatch_locked(tc_native *comm, tc_op *op, int32_t peer)
{
    uint64_t seq = tc_native_op_of(op)->seq;

    if (!report_difference(comm, seq, peer)) {
        char mine[128];

        tc_native_describe(op, mine, sizeof(mine));
        report_mismatch(comm, seq, mine, peer, "a call it has left behind");
    }
}

void
tc_native_check_history(tc_native *comm)
{
    for (int32_t r = 0; r < comm->size; r++) {
        if (r != comm->rank && report_difference(comm, comm->seq, r)) {
            return;
        }
    }
}
