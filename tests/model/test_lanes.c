/* SPDX-License-Identifier: BSD-3-Clause */
/* Rooted operations over lanes of one or two small slots: no piece is overwritten
 * before all have read it, whoever is root next. */
#include "model/support/rooted.h"

static const rooted_plan short_plans[] = {
    {"lanes of 1 slot, all sequences of 2 with exchanges", 2, 1, ROOTED_ONE_PIECE,
     ROOTED_MIXED | ROOTED_ANY_ROOT, 0, 0},
    {"lanes of 2 slots, all sequences of 2 with exchanges", 2, 2, ROOTED_ONE_PIECE,
     ROOTED_MIXED | ROOTED_ANY_ROOT, 0, 0},
    {"lanes of 2 slots, messages of 2 pieces, sequences of 2", 2, 2, ROOTED_TWO_PIECES,
     0, 0, 0},
    {"lanes of 1 slot, every operation, finely", 1, 1, ROOTED_ONE_PIECE,
     ROOTED_ANY_ROOT | ROOTED_FINELY, 0, 0},
    {"lanes of 1 slot, sequences of 3", 3, 1, ROOTED_ONE_PIECE, 0, 0, 0},
    {"lanes of 2 slots, sequences of 3", 3, 2, ROOTED_ONE_PIECE, 0, 0, 0},
};

static const rooted_plan long_plans[] = {
    {"lanes of 1 slot, messages of 2 pieces, sequences of 2", 2, 1, ROOTED_TWO_PIECES,
     0, 0, 0},
    {"lanes of 1 slot, all sequences of 2 with exchanges, finely", 2, 1,
     ROOTED_ONE_PIECE, ROOTED_MIXED | ROOTED_ANY_ROOT | ROOTED_FINELY, 0, 0},
    {"lanes of 1 slot, all sequences of 3 with exchanges", 3, 1, ROOTED_ONE_PIECE,
     ROOTED_MIXED | ROOTED_ANY_ROOT, 0, 0},
    {"lanes of 2 slots, all sequences of 3 with exchanges", 3, 2, ROOTED_ONE_PIECE,
     ROOTED_MIXED | ROOTED_ANY_ROOT, 0, 0},
};

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
        honest.publish(ctx, lane, ROOTED_ONE_PIECE * 4, ROOTED_ONE_PIECE * 4);
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

typedef struct fault {
    const char *name;
    void (*spoil)(world_rank *r);
    op_choice kind;
    const char *text; /* how it shows */
} fault;

static const fault faults[] = {
    {"lanes, fault: acknowledged before it is read", release_before_reading,
     OP_BROADCAST, "wrong data"},
    {"lanes, fault: acknowledged before it is read", release_before_reading, OP_SCATTER,
     "wrong data"},
    /* The reader waits for a number that was written over. */
    {"lanes, fault: a full lane is written", ignore_full_lanes, OP_BROADCAST,
     "nobody can go on"},
    {"lanes, fault: one reader's acknowledgement is enough", ask_one_reader,
     OP_BROADCAST, "ranks disagree"},
    {"lanes, fault: published before it is written", publish_before_writing, OP_SCATTER,
     "wrong data"},
};

static void
find(const fault *f)
{
    model_op one = {f->kind, 0, ROOTED_ONE_PIECE};
    model_case how = {.store_buffers = true, .fine = true};
    sequence s = {
        .shape = {.size = ROOTED_RANKS, .slots = 1, .slot_bytes = 8},
        .length = 3,
        .choice_count = 1,
        .choices = &one,
        .spoil_rank = f->spoil,
    };

    sequence_explore(f->name, &s, &how, f->text);
}

int
main(int argc, char **argv)
{
    rooted_explore(short_plans, sizeof(short_plans) / sizeof(short_plans[0]));
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        find(&faults[i]);
    }
    if (model_is_full(argc, argv)) {
        rooted_explore(long_plans, sizeof(long_plans) / sizeof(long_plans[0]));
    }
    return 0;
}
