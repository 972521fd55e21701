/* SPDX-License-Identifier: BSD-3-Clause */
/* All choices of rooted operation and root. */
#include "model/support/rooted.h"

enum {
    ROOTED_KINDS = 4,
    ROOTED = ROOTED_KINDS * ROOTED_RANKS,
    MIXED = 2,
};

static const op_choice rooted_kinds[ROOTED_KINDS] = {
    OP_BROADCAST,
    OP_REDUCE,
    OP_GATHER_EMPTY_RANK,
    OP_SCATTER,
};

/* All of root 0 first, then the other roots, then what has none. */
static model_op ops[ROOTED + MIXED];

static void
make_ops(uint32_t elems)
{
    for (int32_t root = 0; root < ROOTED_RANKS; root++) {
        for (int32_t kind = 0; kind < ROOTED_KINDS; kind++) {
            ops[root * ROOTED_KINDS + kind] =
                (model_op){rooted_kinds[kind], root, elems};
        }
    }
    ops[ROOTED] = (model_op){OP_BARRIER, 0, 0};
    ops[ROOTED + 1] = (model_op){OP_ALL_REDUCE, 0, 2};
}

static void
explore(const rooted_plan *p)
{
    bool mixed = (p->flags & ROOTED_MIXED) != 0;
    model_case how = {
        .store_buffers = true,
        .fine = (p->flags & ROOTED_FINELY) != 0,
        .preemptions = p->preemptions,
        .samples = p->samples,
    };
    sequence s = {
        .shape = {.size = ROOTED_RANKS, .slots = p->slots, .slot_bytes = 8},
        .length = p->length,
        .choice_count = mixed ? ROOTED + MIXED : ROOTED,
        .choices = ops,
        .first_count = (p->flags & ROOTED_ANY_ROOT) != 0 ? 0 : ROOTED_KINDS,
    };

    make_ops(p->elems);
    sequence_explore(p->name, &s, &how, NULL);
}

void
rooted_explore(const rooted_plan *plans, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        explore(&plans[i]);
    }
}
