/* SPDX-License-Identifier: BSD-3-Clause */
/* The one exchange: no slot is written while a reader may still need it. */
#include "model/support/sequence.h"

static const model_op small_ops[] = {
    {OP_ALL_REDUCE, 0, 2},
    {OP_ALL_GATHER, 0, 1},
    {OP_BARRIER, 0, 0},
    {OP_ALL_REDUCE_EMPTY, 0, 0},
};

/* The data is in the header's line or in the slot, in turns and at random. */
static const model_op slot_ops[] = {
    {OP_ALL_REDUCE, 0, 2},
    {OP_ALL_REDUCE_SLOT, 0, OP_ELEMS},
    {OP_ALL_GATHER_SLOT, 0, OP_ELEMS},
};

/* Numbers 2, 4, 6, ...: all exchanges use one parity. */
static void
use_one_parity(world_rank *r)
{
    r->native->exchanges++;
}

/* The header's number first, the data behind it. */
static void
publish_first(world_rank *r)
{
    uint64_t number = r->native->exchanges + 1;

    tc_store_seq_cst_u64(&r->native->self->headers[number % 2].seq, number);
}

static void
explore(const char *name, int32_t size, uint32_t length, bool slots, bool fine)
{
    model_case how = {.store_buffers = true, .fine = fine};
    sequence s = {
        .shape = {.size = size, .slots = 2, .slot_bytes = 8},
        .length = length,
        .choice_count = slots ? 3 : 4,
        .choices = slots ? slot_ops : small_ops,
    };

    sequence_explore(name, &s, &how, NULL);
}

static void
find(const char *name, void (*spoil)(world_rank *r), const char *text)
{
    model_case how = {.store_buffers = true};
    sequence s = {
        .shape = {.size = 3, .slots = 2, .slot_bytes = 8},
        .length = 2,
        .choice_count = 1,
        .choices = small_ops,
        .spoil_call = spoil,
    };

    sequence_explore(name, &s, &how, text);
}

int
main(int argc, char **argv)
{
    explore("exchange, 3 ranks, all sequences of 4", 3, 4, false, false);
    explore("exchange in slots, 3 ranks, all sequences of 3", 3, 3, true, false);
    explore("exchange, 3 ranks, all sequences of 2, finely", 3, 2, false, true);
    explore("exchange, 2 ranks, all sequences of 5, finely", 2, 5, false, true);
    if (model_is_full(argc, argv)) {
        explore("exchange, 3 ranks, all sequences of 5", 3, 5, false, false);
        explore("exchange in slots, 3 ranks, all sequences of 5", 3, 5, true, false);
        explore("exchange, 3 ranks, all sequences of 4, finely", 3, 4, false, true);
        explore("exchange, 4 ranks, all sequences of 2", 4, 2, false, false);
    }
    find("exchange, fault: one parity", use_one_parity, "wrong data");
    find("exchange, fault: published before written", publish_first, "operation");
    return 0;
}
