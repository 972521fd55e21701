/* SPDX-License-Identifier: BSD-3-Clause */
/* Sequences of rooted operations, over lanes of few small slots. */
#ifndef TC_MODEL_ROOTED_H
#define TC_MODEL_ROOTED_H

#include "model/support/sequence.h"

enum {
    ROOTED_RANKS = 3,
    ROOTED_ONE_PIECE = 2, /* int32: a slot holds two */
    ROOTED_TWO_PIECES = 3,
};

enum {
    ROOTED_MIXED = 1, /* with barriers and all_reduces between */
    ROOTED_ANY_ROOT = 2, /* also of the first operation; otherwise that is 0 */
    ROOTED_FINELY = 4,
};

typedef struct rooted_plan {
    const char *name;
    uint32_t length;
    uint32_t slots;
    uint32_t elems;
    uint32_t flags;
    uint32_t preemptions;
    uint32_t samples;
} rooted_plan;

void
rooted_explore(const rooted_plan *plans, size_t count);

#endif
