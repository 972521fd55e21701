/* SPDX-License-Identifier: BSD-3-Clause */
/* All sequences of operations on all ranks, one thread a rank. */
#ifndef TC_MODEL_SEQUENCE_H
#define TC_MODEL_SEQUENCE_H

#include "model/support/ops.h"

enum { SEQUENCE_OPS = 8 };

/* What is built: at each position one of `choices`, the same on all ranks, chosen by
 * whoever comes there first, so that sequences share the states of what they have in
 * common. */
typedef struct sequence {
    world_shape shape;
    uint32_t length;
    uint32_t choice_count;
    const model_op *choices;
    uint32_t first_count; /* 0: as choice_count. Otherwise the first operation is one of
                             so many: sequences that differ by a renaming of ranks are
                             not repeated */
    /* Plants a fault: before a rank's first call, and before each of its calls. NULL:
     * none. */
    void (*spoil_rank)(world_rank *r);
    void (*spoil_call)(world_rank *r);
} sequence;

void
sequence_explore(const char *name, const sequence *s, const model_case *how,
                 const char *fault);

#endif
