/* SPDX-License-Identifier: BSD-3-Clause */
/* Rooted operations over lanes of one or two small slots: no piece is overwritten
 * before all have read it, whoever is root next. */
#include <string.h>

#include "model/support/sequence.h"

enum {
    ROOTED_KINDS = 4,
    RANKS = 3,
    ROOTED = ROOTED_KINDS * RANKS,
    MIXED = 2,
    ONE_PIECE = 2, /* int32: a slot holds two */
    TWO_PIECES = 3,
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
    for (int32_t root = 0; root < RANKS; root++) {
        for (int32_t kind = 0; kind < ROOTED_KINDS; kind++) {
            ops[root * ROOTED_KINDS + kind] =
                (model_op){rooted_kinds[kind], root, elems};
        }
    }
    ops[ROOTED] = (model_op){OP_BARRIER, 0, 0};
    ops[ROOTED + 1] = (model_op){OP_ALL_REDUCE, 0, 2};
}

typedef struct plan {
    const char *name;
    uint32_t length;
    uint32_t slots;
    uint32_t elems;
    bool mixed; /* with exchanges between */
    bool any_root; /* also for the first operation */
    model_case how;
} plan;

static void
explore(const plan *p)
{
    sequence s = {
        .shape = {.size = RANKS, .slots = p->slots, .slot_bytes = 8},
        .length = p->length,
        .choice_count = p->mixed ? ROOTED + MIXED : ROOTED,
        .choices = ops,
        .first_count = p->any_root ? 0 : ROOTED_KINDS,
    };

    make_ops(p->elems);
    sequence_explore(p->name, &s, &p->how, NULL);
}

/* Planted faults
 * ----------------------------------------------------------------------- */

static tc_lanes honest;

static const void *
peek_and_release(void *ctx, int32_t lane, bool mcast, uint64_t total, uint32_t *bytes_p,
                 tc_status *status_p)
{
    const void *slot = honest.peek(ctx, lane, mcast, total, bytes_p, status_p);

    if (slot != NULL) {
        honest.release(ctx, lane, mcast);
    }
    return slot;
}

static void
release_nothing(void *ctx, int32_t lane, bool mcast)
{
    (void)ctx;
    (void)lane;
    (void)mcast;
}

static void
release_before_reading(world_rank *r)
{
    honest = r->native->lanes;
    r->native->lanes.peek = peek_and_release;
    r->native->lanes.release = release_nothing;
}

static void *
reserve_always(void *ctx, int32_t lane)
{
    tc_native *comm = ctx;
    void *slot = honest.reserve(ctx, lane);
    const tc_shm_lane *l =
        lane == TC_LANE_MCAST ? &comm->mcast_out : &comm->pair_out[lane];

    return slot != NULL ? slot : l->data + (l->next % l->slots) * l->slot_bytes;
}

static void
ignore_full_lanes(world_rank *r)
{
    honest = r->native->lanes;
    r->native->lanes.reserve = reserve_always;
}

static void
ask_one_reader(world_rank *r)
{
    r->native->mcast_out.readers = 1;
}

static void *
reserve_and_publish(void *ctx, int32_t lane)
{
    void *slot = honest.reserve(ctx, lane);

    if (slot != NULL) {
        honest.publish(ctx, lane, ONE_PIECE * 4, ONE_PIECE * 4);
    }
    return slot;
}

static void
publish_nothing(void *ctx, int32_t lane, uint32_t bytes, uint64_t total)
{
    (void)ctx;
    (void)lane;
    (void)bytes;
    (void)total;
}

static void
publish_before_writing(world_rank *r)
{
    honest = r->native->lanes;
    r->native->lanes.reserve = reserve_and_publish;
    r->native->lanes.publish = publish_nothing;
}

static void
find(const char *name, void (*spoil)(world_rank *r), op_choice kind, const char *text)
{
    model_op one = {kind, 0, ONE_PIECE};
    model_case how = {.store_buffers = true, .fine = true};
    sequence s = {
        .shape = {.size = RANKS, .slots = 1, .slot_bytes = 8},
        .length = 3,
        .choice_count = 1,
        .choices = &one,
        .spoil_rank = spoil,
    };

    sequence_explore(name, &s, &how, text);
}

/* ----------------------------------------------------------------------------------------
 */

int
main(int argc, char **argv)
{
    static const plan short_plans[] = {
        {"lanes of 1 slot, all sequences of 2 with exchanges",
         2,
         1,
         ONE_PIECE,
         true,
         true,
         {.store_buffers = true}},
        {"lanes of 2 slots, all sequences of 2 with exchanges",
         2,
         2,
         ONE_PIECE,
         true,
         true,
         {.store_buffers = true}},
        {"lanes of 2 slots, messages of 2 pieces, sequences of 2",
         2,
         2,
         TWO_PIECES,
         false,
         false,
         {.store_buffers = true}},
        {"lanes of 1 slot, every operation, finely",
         1,
         1,
         ONE_PIECE,
         false,
         true,
         {.store_buffers = true, .fine = true}},
        {"lanes of 1 slot, sequences of 3",
         3,
         1,
         ONE_PIECE,
         false,
         false,
         {.store_buffers = true}},
        {"lanes of 2 slots, sequences of 3",
         3,
         2,
         ONE_PIECE,
         false,
         false,
         {.store_buffers = true}},
        {"lanes of 2 slots, sequences of 4, one preemption",
         4,
         2,
         ONE_PIECE,
         false,
         false,
         {.store_buffers = true, .preemptions = 1}},
        {"lanes of 1 slot, any sequences of 4 with exchanges",
         4,
         1,
         ONE_PIECE,
         true,
         true,
         {.store_buffers = true, .samples = 20000}},
        {"lanes of 2 slots, messages of 2 pieces, any sequences of 8",
         8,
         2,
         TWO_PIECES,
         true,
         true,
         {.store_buffers = true, .samples = 10000}},
    };
    static const plan long_plans[] = {
        {"lanes of 1 slot, messages of 2 pieces, sequences of 2",
         2,
         1,
         TWO_PIECES,
         false,
         false,
         {.store_buffers = true}},
        {"lanes of 1 slot, all sequences of 2 with exchanges, finely",
         2,
         1,
         ONE_PIECE,
         true,
         true,
         {.store_buffers = true, .fine = true}},
        {"lanes of 1 slot, all sequences of 3 with exchanges",
         3,
         1,
         ONE_PIECE,
         true,
         true,
         {.store_buffers = true}},
        {"lanes of 2 slots, all sequences of 3 with exchanges",
         3,
         2,
         ONE_PIECE,
         true,
         true,
         {.store_buffers = true}},
        {"lanes of 2 slots, sequences of 4",
         4,
         2,
         ONE_PIECE,
         false,
         false,
         {.store_buffers = true}},
        {"lanes of 1 slot, sequences of 4",
         4,
         1,
         ONE_PIECE,
         false,
         false,
         {.store_buffers = true}},
    };

    for (size_t i = 0; i < sizeof(short_plans) / sizeof(short_plans[0]); i++) {
        explore(&short_plans[i]);
    }
    find("lanes, fault: acknowledged before it is read", release_before_reading,
         OP_BROADCAST, "wrong data");
    find("lanes, fault: acknowledged before it is read", release_before_reading,
         OP_SCATTER, "wrong data");
    find("lanes, fault: a full lane is written", ignore_full_lanes, OP_BROADCAST,
         "ranks disagree");
    find("lanes, fault: one reader's acknowledgement is enough", ask_one_reader,
         OP_BROADCAST, "ranks disagree");
    find("lanes, fault: published before it is written", publish_before_writing,
         OP_SCATTER, "wrong data");
    if (model_is_full(argc, argv)) {
        for (size_t i = 0; i < sizeof(long_plans) / sizeof(long_plans[0]); i++) {
            explore(&long_plans[i]);
        }
    }
    return 0;
}
