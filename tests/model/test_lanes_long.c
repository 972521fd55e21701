/* SPDX-License-Identifier: BSD-3-Clause */
/* Longer sequences of rooted operations: ranks drift apart further. */
#include "model/support/rooted.h"

static const rooted_plan short_plans[] = {
    {"lanes of 2 slots, sequences of 4, 1 preemption", 4, 2, ROOTED_ONE_PIECE, 0, 1, 0},
    {"lanes of 1 slot, any sequences of 4 with exchanges", 4, 1, ROOTED_ONE_PIECE,
     ROOTED_MIXED | ROOTED_ANY_ROOT, 0, 20000},
    {"lanes of 2 slots, messages of 2 pieces, any sequences of 8", 8, 2,
     ROOTED_TWO_PIECES, ROOTED_MIXED | ROOTED_ANY_ROOT, 0, 10000},
};

static const rooted_plan long_plans[] = {
    {"lanes of 2 slots, sequences of 4", 4, 2, ROOTED_ONE_PIECE, 0, 0, 0},
    {"lanes of 1 slot, sequences of 4", 4, 1, ROOTED_ONE_PIECE, 0, 0, 0},
};

int
main(int argc, char **argv)
{
    rooted_explore(short_plans, sizeof(short_plans) / sizeof(short_plans[0]));
    if (model_is_full(argc, argv)) {
        rooted_explore(long_plans, sizeof(long_plans) / sizeof(long_plans[0]));
    }
    return 0;
}
