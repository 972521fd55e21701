/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations of the models: calls with known results. */
#ifndef TC_MODEL_OPS_H
#define TC_MODEL_OPS_H

#include "model/support/world.h"

typedef enum op_choice {
    OP_NONE,
    OP_ALL_REDUCE, /* in the header's line */
    OP_ALL_REDUCE_SLOT, /* in the exchange slot */
    OP_ALL_GATHER,
    OP_ALL_GATHER_SLOT,
    OP_BARRIER,
    OP_ALL_REDUCE_EMPTY, /* zero elements: still an exchange */
    OP_BROADCAST, /* these have a root: OP_... + root * OP_ROOTED */
    OP_REDUCE,
    OP_GATHER,
    OP_GATHER_EMPTY_RANK, /* one rank gives no elements */
    OP_SCATTER,
    OP_KINDS,
} op_choice;

typedef struct model_op {
    op_choice choice;
    int32_t root;
    uint32_t elems; /* int32 of a block */
} model_op;

/* Buffers of one rank, in sparse memory of the model. */
enum { OP_ELEMS = 16 };

typedef struct op_buffers {
    int32_t in[WORLD_RANKS * OP_ELEMS];
    int32_t out[WORLD_RANKS * OP_ELEMS];
    void *ptrs[WORLD_RANKS];
    uint64_t counts[WORLD_RANKS];
} op_buffers;

/* Fills the inputs with values of the operation's number and makes the call. */
void
op_prepare(const model_op *o, const world_rank *r, uint32_t number, op_buffers *b,
           tc_call *call);

/* Checks the outputs and clears both. */
void
op_check(const model_op *o, const world_rank *r, uint32_t number, op_buffers *b);

const char *
op_text(const model_op *o);

#endif
