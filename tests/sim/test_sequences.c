/* SPDX-License-Identifier: BSD-3-Clause */
/* Random sequences of collectives on the same lanes, ranks running ahead of others. */
#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "sim/support/sim_world.h"
#include "support/check.h"

#define SEQUENCE 7

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROUNDS 8
#else
#define ROUNDS 50
#endif

static sim_spec
random_spec(int32_t size, uint32_t *random)
{
    /* BROADCAST to GATHER_SINGLE: without send and recv, which have no plan. */
    uint32_t kind_count = TC_OP_GATHER_SINGLE - TC_OP_BROADCAST + 1;
    sim_spec spec = {.size = size};

    spec.kind = (tc_op_kind)(TC_OP_BROADCAST + sim_random(random) % kind_count);
    spec.root = (int32_t)(sim_random(random) % (uint32_t)size);
    spec.count = sim_random(random) % 40;
    if (sim_kind_uneven(spec.kind) && sim_random(random) % 2 == 0) {
        spec.count = SIM_UNEVEN;
    }
    spec.in_place = sim_random(random) % 2 == 0;
    spec.direct = sim_kind_direct(spec.kind) && sim_random(random) % 2 == 0;
    spec.seed = sim_random(random);
    return spec;
}

static void
run_sequence(int32_t size, uint32_t seed)
{
    uint32_t random = seed;
    uint32_t slots = 1 + sim_random(&random) % 4;
    uint32_t piece_bytes = 4 * (1 + sim_random(&random) % 9);
    sim_order order = (sim_order)(sim_random(&random) % SIM_ORDER_COUNT);
    sim_world *w = sim_world_create(size, slots, piece_bytes);
    sim_case *cases[SEQUENCE];

    for (int i = 0; i < SEQUENCE; i++) {
        sim_spec spec = random_spec(size, &random);

        cases[i] = sim_case_create(&spec);
    }
    if (!sim_world_run(w, cases, SEQUENCE, order, seed)) {
        fprintf(stderr, "sequence with seed %u, size %d:", seed, (int)size);
        for (int i = 0; i < SEQUENCE; i++) {
            fprintf(stderr, " %s%s", cases[i]->spec.direct ? "direct " : "",
                    tc_op_name(cases[i]->spec.kind));
        }
        fprintf(stderr, "\n");
        exit(1);
    }
    for (int i = 0; i < SEQUENCE; i++) {
        sim_case_destroy(cases[i]);
    }
    sim_world_destroy(w);
}

int
main(void)
{
    static const int32_t sizes[] = {1, 2, 3, 4, 5, 8, 13, 33};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (uint32_t round = 0; round < ROUNDS; round++) {
            run_sequence(sizes[i], 1000 * round + (uint32_t)i);
        }
    }
    return 0;
}
