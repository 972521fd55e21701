/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls with known results: every element tells operation, rank and place. */
#include "model/support/ops.h"

#include <stdio.h>
#include <string.h>

/* Element i that rank r gives to rank `to` in operation `number`. */
static int32_t
value_of(uint32_t number, int32_t r, int32_t to, uint32_t i)
{
    return (int32_t)(number * 100000 + (uint32_t)(r + 1) * 10000 +
                     (uint32_t)(to + 1) * 100 + i + 1);
}

static uint32_t
elems_of(const model_op *o)
{
    switch (o->choice) {
    case OP_ALL_REDUCE_SLOT:
    case OP_ALL_GATHER_SLOT:
        return OP_ELEMS;
    case OP_BARRIER:
    case OP_ALL_REDUCE_EMPTY:
        return 0;
    default:
        return o->elems;
    }
}

/* What rank r gives in a gather or gets in a scatter. */
static uint32_t
block_of(const model_op *o, int32_t r, int32_t size)
{
    bool empty = o->choice == OP_GATHER_EMPTY_RANK && r == (o->root + 1) % size;

    return empty ? 0 : elems_of(o);
}

static bool
is_gather(const model_op *o)
{
    return o->choice == OP_GATHER || o->choice == OP_GATHER_EMPTY_RANK;
}

void
op_prepare(const model_op *o, const world_rank *r, uint32_t number, op_buffers *b,
           tc_call *call)
{
    uint32_t n = elems_of(o);
    int32_t size = r->world->size;

    model_touch(b->in, (size_t)size * n * sizeof(b->in[0]));
    model_touch(b->out, (size_t)size * n * sizeof(b->out[0]));
    *call = (tc_call){.dtype = TC_INT32,
                      .redop = TC_REDOP_SUM,
                      .root = o->root,
                      .count = n,
                      .in = b->in,
                      .out = b->out};
    for (int32_t to = 0; to < size; to++) {
        for (uint32_t i = 0; i < n; i++) {
            b->in[(uint32_t)to * n + i] = value_of(number, r->rank, to, i);
        }
    }
    switch (o->choice) {
    case OP_ALL_GATHER:
    case OP_ALL_GATHER_SLOT:
        call->kind = TC_OP_ALL_GATHER_SINGLE;
        call->out_blocks = (tc_blocks){.base = b->out, .count = n};
        break;
    case OP_BARRIER:
        call->kind = TC_OP_BARRIER;
        break;
    case OP_BROADCAST:
        call->kind = TC_OP_BROADCAST;
        call->out = r->rank == o->root ? b->in : b->out;
        call->in = call->out;
        break;
    case OP_REDUCE:
        call->kind = TC_OP_REDUCE;
        break;
    case OP_GATHER:
        call->kind = TC_OP_GATHER_SINGLE;
        call->out_blocks = (tc_blocks){.base = b->out, .count = n};
        break;
    case OP_GATHER_EMPTY_RANK:
        call->kind = TC_OP_GATHER;
        call->count = block_of(o, r->rank, size);
        model_touch(b->ptrs, sizeof(b->ptrs));
        model_touch(b->counts, sizeof(b->counts));
        for (int32_t p = 0; p < size; p++) {
            b->counts[p] = block_of(o, p, size);
            b->ptrs[p] = b->out + (uint32_t)p * n;
        }
        call->out_blocks = (tc_blocks){.ptrs = b->ptrs, .counts = b->counts};
        break;
    case OP_SCATTER:
        call->kind = TC_OP_SCATTER;
        call->in_blocks = (tc_blocks){.base = b->in, .count = n};
        break;
    default:
        call->kind = TC_OP_ALL_REDUCE;
        break;
    }
}

/* Element i of block p of the right output. */
static int32_t
expected(const model_op *o, const world_rank *r, uint32_t number, int32_t p, uint32_t i)
{
    int32_t sum = 0;

    switch (o->choice) {
    case OP_ALL_GATHER:
    case OP_ALL_GATHER_SLOT:
    case OP_GATHER:
    case OP_GATHER_EMPTY_RANK:
        return value_of(number, p, 0, i);
    case OP_BROADCAST:
        return value_of(number, o->root, 0, i);
    case OP_SCATTER:
        return value_of(number, o->root, r->rank, i);
    default:
        for (int32_t q = 0; q < r->world->size; q++) {
            sum += value_of(number, q, 0, i);
        }
        return sum;
    }
}

/* Blocks of output at this rank. */
static int32_t
blocks_out(const model_op *o, const world_rank *r)
{
    bool root = r->rank == o->root;

    if (o->choice == OP_ALL_GATHER || o->choice == OP_ALL_GATHER_SLOT) {
        return r->world->size;
    }
    if (is_gather(o)) {
        return root ? r->world->size : 0;
    }
    if (o->choice == OP_REDUCE) {
        return root ? 1 : 0;
    }
    return o->choice == OP_BROADCAST && root ? 0 : 1;
}

void
op_check(const model_op *o, const world_rank *r, uint32_t number, op_buffers *b)
{
    uint32_t n = elems_of(o);
    int32_t size = r->world->size;

    for (int32_t p = 0; p < blocks_out(o, r); p++) {
        uint32_t count = is_gather(o) ? block_of(o, p, size) : n;

        for (uint32_t i = 0; i < count; i++) {
            int32_t got = b->out[(uint32_t)p * n + i];
            int32_t right = expected(o, r, number, p, i);

            if (got != right) {
                model_fail("wrong data: rank %d, operation %u (%s), block %d, element "
                           "%u: %d, expected %d",
                           r->rank, number, op_text(o), p, i, got, right);
            }
        }
    }
    memset(b, 0, sizeof(*b)); /* only what was touched is not zero */
}

const char *
op_text(const model_op *o)
{
    static const char *const names[OP_KINDS] = {
        "none",
        "all_reduce",
        "all_reduce in the slot",
        "all_gather",
        "all_gather in the slot",
        "barrier",
        "all_reduce of nothing",
        "broadcast",
        "reduce",
        "gather",
        "gather with an empty rank",
        "scatter",
    };

    return names[o->choice];
}
