/* SPDX-License-Identifier: BSD-3-Clause */
/* Every collective for every rank count from 1 to 33, simulated with few slots.
 *
 * TC_SIM_EVERY=k (or the first argument) runs one in k of the combinations; sanitizer
 * builds have a default of their own, being 5 to 20 times slower. */
#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "sim/support/sim_world.h"
#include "support/check.h"

#define MAX_RANKS 33
#define ALL_ROOTS_UP_TO 8
#define SAMPLED_ROOTS 4
/* Above ALL_ROOTS_UP_TO ranks one in so many combinations runs, to save time. */
#define SAMPLE_LARGE 6u

#if defined(__SANITIZE_THREAD__)
#define EVERY_DEFAULT 61u
#elif defined(__SANITIZE_ADDRESS__)
#define EVERY_DEFAULT 23u
#else
#define EVERY_DEFAULT 1u
#endif

static const tc_op_kind kinds[] = {
    TC_OP_BROADCAST,
    TC_OP_ALL_REDUCE,
    TC_OP_REDUCE,
    TC_OP_ALL_GATHER,
    TC_OP_ALL_GATHER_V,
    TC_OP_ALL_GATHER_SINGLE,
    TC_OP_REDUCE_SCATTER,
    TC_OP_REDUCE_SCATTER_V,
    TC_OP_REDUCE_SCATTER_SINGLE,
    TC_OP_ALL_TO_ALL_SINGLE,
    TC_OP_ALL_TO_ALL_V_SINGLE,
    TC_OP_ALL_TO_ALL,
    TC_OP_BARRIER,
    TC_OP_SCATTER,
    TC_OP_GATHER,
    TC_OP_GATHER_SINGLE,
};

/* Elements of 4 bytes in a piece, slots in a lane. The largest is larger than any
 * message here. */
static const struct lane_form {
    uint32_t piece_elems;
    uint32_t slots;
} forms[] = {{1, 1}, {1, 3}, {3, 1}, {3, 2}, {16, 1}, {16, 4}, {1024, 1}, {1024, 2}};

#define FORM_COUNT (sizeof(forms) / sizeof(forms[0]))

typedef struct progress {
    sim_world *worlds[FORM_COUNT];
    uint32_t every;
    uint32_t random;
    uint64_t runs;
} progress;

static void
run_one(progress *p, const sim_spec *spec, size_t form, sim_order order)
{
    sim_case *c = sim_case_create(spec);

    if (!sim_world_run(p->worlds[form], &c, 1, order, spec->seed)) {
        fprintf(stderr,
                "%s, size %d, root %d, count %lld, in place %d, direct %d, seed %u, "
                "pieces of %u elements, %u slots, order %d\n",
                tc_op_name(spec->kind), (int)spec->size, (int)spec->root,
                (long long)spec->count, (int)spec->in_place, (int)spec->direct,
                spec->seed, forms[form].piece_elems, forms[form].slots, (int)order);
        exit(1);
    }
    sim_case_destroy(c);
    p->runs++;
}

static void
run_forms(progress *p, sim_spec *spec)
{
    uint32_t every = p->every * (spec->size > ALL_ROOTS_UP_TO ? SAMPLE_LARGE : 1);

    for (size_t form = 0; form < FORM_COUNT; form++) {
        uint32_t x = sim_random(&p->random);

        if (x / SIM_ORDER_COUNT % every == 0) {
            spec->seed = sim_random(&p->random);
            run_one(p, spec, form, (sim_order)(x % SIM_ORDER_COUNT));
        }
    }
}

static void
run_counts(progress *p, sim_spec *spec)
{
    uint64_t n = (uint64_t)spec->size;
    bool tensor = spec->kind == TC_OP_ALL_REDUCE || spec->kind == TC_OP_REDUCE ||
                  spec->kind == TC_OP_BROADCAST;
    const uint64_t tensors[] = {0, 1, n - 1, n + 1, 5 * n + 3};
    const uint64_t blocks[] = {0, 1, 3, 17, SIM_UNEVEN};

    for (int i = 0; i < 5; i++) {
        spec->count = tensor ? tensors[i] : blocks[i];
        if (spec->count == SIM_UNEVEN && !sim_kind_uneven(spec->kind)) {
            continue;
        }
        for (int in_place = 0; in_place < 2; in_place++) {
            spec->in_place = in_place != 0;
            run_forms(p, spec);
        }
    }
}

static void
run_roots(progress *p, tc_op_kind kind, int32_t size)
{
    sim_spec spec = {.kind = kind, .size = size};

    if (!tc_op_is_rooted(kind)) {
        run_counts(p, &spec);
        if (sim_kind_direct(kind)) {
            spec.direct = true;
            run_counts(p, &spec);
        }
    } else if (size <= ALL_ROOTS_UP_TO) {
        for (spec.root = 0; spec.root < size; spec.root++) {
            run_counts(p, &spec);
        }
    } else {
        const int32_t roots[SAMPLED_ROOTS] = {
            0, size - 1, (int32_t)(sim_random(&p->random) % (uint32_t)size),
            (int32_t)(sim_random(&p->random) % (uint32_t)size)};

        for (int i = 0; i < SAMPLED_ROOTS; i++) {
            spec.root = roots[i];
            run_counts(p, &spec);
        }
    }
}

/* Messages of many pieces: longer than what one tc_run_step moves. */
static void
run_long(progress *p, int32_t size)
{
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        sim_spec spec = {.kind = kinds[k],
                         .size = size,
                         .root = size - 1,
                         .count = 500,
                         .in_place = k % 2 == 0};

        for (int order = 0; order < SIM_ORDER_COUNT; order++) {
            spec.seed = sim_random(&p->random);
            run_one(p, &spec, (size_t)order % FORM_COUNT, (sim_order)order);
            if (sim_kind_direct(kinds[k])) {
                spec.direct = true;
                run_one(p, &spec, (size_t)order % FORM_COUNT, (sim_order)order);
                spec.direct = false;
            }
        }
    }
}

int
main(int argc, char **argv)
{
    const char *every = argc > 1 ? argv[1] : getenv("TC_SIM_EVERY");
    progress p = {.every = EVERY_DEFAULT, .random = 1};

    if (every != NULL) {
        p.every = (uint32_t)strtoul(every, NULL, 10);
        CHECK(p.every > 0);
    }
    for (int32_t size = 1; size <= MAX_RANKS; size++) {
        for (size_t form = 0; form < FORM_COUNT; form++) {
            p.worlds[form] =
                sim_world_create(size, forms[form].slots, 4 * forms[form].piece_elems);
        }
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
            run_roots(&p, kinds[k], size);
        }
        if (size <= 5) {
            run_long(&p, size);
        }
        for (size_t form = 0; form < FORM_COUNT; form++) {
            sim_world_destroy(p.worlds[form]);
        }
    }
    printf("%llu collectives simulated\n", (unsigned long long)p.runs);
    CHECK(p.runs > 1000 / p.every);
    return 0;
}
