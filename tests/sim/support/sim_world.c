/* SPDX-License-Identifier: BSD-3-Clause */
/* In-memory lanes with few slots, and a scheduler that tries to lock them up. */
#include "sim/support/sim_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "support/check.h"

#define POISON 0xdd
#define STALL_PERCENT 40u

typedef struct piece_mark {
    uint32_t bytes;
    uint32_t call;
    uint64_t total;
} piece_mark;

typedef struct lane {
    uint64_t published;
    uint64_t freed; /* released by all readers */
    uint64_t *read; /* by rank; of a pair lane only the entry of its reader counts */
    piece_mark *marks;
    char *slots;
    bool reserved;
} lane;

typedef struct rank_state {
    sim_world *world;
    int32_t rank;
    uint32_t call; /* index of the case it is in */
    tc_lanes lanes;
    tc_plan plan;
    tc_run *run;
    sim_traffic traffic;
} rank_state;

struct sim_world {
    int32_t size;
    uint32_t slots;
    uint32_t piece_bytes;
    bool stall;
    uint32_t random;
    lane *pairs; /* [writer * size + reader] */
    lane *mcasts;
    rank_state *ranks;
    int32_t *preference; /* ranks in the order in which they are tried */
    sim_case *const *cases;
    uint32_t case_count;
};

/* Lanes ---------------------------------------------------------------------------- */

static bool
stalls(sim_world *w)
{
    return w->stall && sim_random(&w->random) % 100 < STALL_PERCENT;
}

static lane *
lane_out(const rank_state *me, int32_t to)
{
    sim_world *w = me->world;

    if (to == TC_LANE_MCAST) {
        return &w->mcasts[me->rank];
    }
    CHECK(to >= 0 && to < w->size && to != me->rank);
    return &w->pairs[me->rank * w->size + to];
}

static lane *
lane_in(const rank_state *me, int32_t from, bool mcast)
{
    sim_world *w = me->world;

    CHECK(from >= 0 && from < w->size && from != me->rank);
    return mcast ? &w->mcasts[from] : &w->pairs[from * w->size + me->rank];
}

static char *
slot_of(const sim_world *w, const lane *l, uint64_t number)
{
    return l->slots + (number % w->slots) * w->piece_bytes;
}

static void *
reserve(void *ctx, int32_t to)
{
    rank_state *me = ctx;
    lane *l = lane_out(me, to);

    if (l->published - l->freed == me->world->slots || stalls(me->world)) {
        return NULL;
    }
    l->reserved = true;
    return slot_of(me->world, l, l->published);
}

static void
fill(void *ctx, void *slot, const void *src, size_t bytes)
{
    (void)ctx;
    memcpy(slot, src, bytes);
}

static void
publish(void *ctx, int32_t to, uint32_t bytes, uint64_t total)
{
    rank_state *me = ctx;
    lane *l = lane_out(me, to);
    sim_flow *flow =
        to == TC_LANE_MCAST ? &me->traffic.mcast_out : &me->traffic.pair_out;

    CHECK(l->reserved);
    CHECK(bytes <= me->world->piece_bytes);
    l->reserved = false;
    l->marks[l->published % me->world->slots] =
        (piece_mark){.bytes = bytes, .call = me->call, .total = total};
    l->published++;
    flow->bytes += bytes;
    flow->pieces++;
}

static const void *
peek(void *ctx, int32_t from, bool mcast, uint64_t total, uint32_t *bytes_p,
     tc_status *status_p)
{
    rank_state *me = ctx;
    lane *l = lane_in(me, from, mcast);
    uint64_t number = l->read[me->rank];
    const piece_mark *mark = &l->marks[number % me->world->slots];

    *status_p = TC_OK;
    if (number == l->published || stalls(me->world)) {
        return NULL;
    }
    if (mark->call != me->call || mark->total != total) {
        *status_p = TC_ERR_MISMATCH;
        return NULL;
    }
    *bytes_p = mark->bytes;
    return slot_of(me->world, l, number);
}

static void
release(void *ctx, int32_t from, bool mcast)
{
    rank_state *me = ctx;
    sim_world *w = me->world;
    lane *l = lane_in(me, from, mcast);
    sim_flow *flow = mcast ? &me->traffic.mcast_in : &me->traffic.pair_in;
    uint64_t slowest;

    CHECK(l->read[me->rank] < l->published);
    flow->bytes += l->marks[l->read[me->rank] % w->slots].bytes;
    flow->pieces++;
    l->read[me->rank]++;
    slowest = l->read[me->rank];
    for (int32_t r = 0; mcast && r < w->size; r++) {
        if (r != from && l->read[r] < slowest) {
            slowest = l->read[r];
        }
    }
    for (; l->freed < slowest; l->freed++) {
        memset(slot_of(w, l, l->freed), POISON, w->piece_bytes);
    }
}

static void
lane_init(const sim_world *w, lane *l)
{
    l->read = calloc((size_t)w->size, sizeof(*l->read));
    l->marks = calloc(w->slots, sizeof(*l->marks));
    l->slots = malloc((size_t)w->slots * w->piece_bytes);
    CHECK(l->read != NULL && l->marks != NULL && l->slots != NULL);
    memset(l->slots, POISON, (size_t)w->slots * w->piece_bytes);
}

static void
lane_deinit(lane *l)
{
    free(l->read);
    free(l->marks);
    free(l->slots);
}

sim_world *
sim_world_create(int32_t size, uint32_t slots, uint32_t piece_bytes)
{
    size_t n = (size_t)size;
    sim_world *w = calloc(1, sizeof(*w));

    CHECK(w != NULL);
    w->size = size;
    w->slots = slots;
    w->piece_bytes = piece_bytes;
    w->pairs = calloc(n * n, sizeof(*w->pairs));
    w->mcasts = calloc(n, sizeof(*w->mcasts));
    w->ranks = calloc(n, sizeof(*w->ranks));
    w->preference = calloc(n, sizeof(*w->preference));
    CHECK(w->pairs != NULL && w->mcasts != NULL && w->ranks != NULL);
    CHECK(w->preference != NULL);
    for (int32_t i = 0; i < size * size; i++) {
        lane_init(w, &w->pairs[i]);
    }
    for (int32_t r = 0; r < size; r++) {
        lane_init(w, &w->mcasts[r]);
        w->ranks[r].world = w;
        w->ranks[r].rank = r;
        w->ranks[r].lanes = (tc_lanes){.ctx = &w->ranks[r],
                                       .reserve = reserve,
                                       .fill = fill,
                                       .publish = publish,
                                       .peek = peek,
                                       .release = release};
    }
    return w;
}

void
sim_world_destroy(sim_world *w)
{
    for (int32_t i = 0; i < w->size * w->size; i++) {
        lane_deinit(&w->pairs[i]);
    }
    for (int32_t r = 0; r < w->size; r++) {
        lane_deinit(&w->mcasts[r]);
    }
    free(w->pairs);
    free(w->mcasts);
    free(w->ranks);
    free(w->preference);
    free(w);
}

const tc_lanes *
sim_world_lanes(sim_world *w, int32_t r)
{
    return &w->ranks[r].lanes;
}

void
sim_world_set_call(sim_world *w, int32_t r, uint32_t call)
{
    w->ranks[r].call = call;
}

/* Ranks ---------------------------------------------------------------------------- */

static bool
rank_done(const rank_state *me)
{
    return me->call == me->world->case_count;
}

static void
rank_start(rank_state *me)
{
    sim_case *c;
    tc_plan_shape shape;

    if (rank_done(me)) {
        return;
    }
    c = me->world->cases[me->call];
    shape = sim_case_shape(c, me->rank);
    me->traffic = (sim_traffic){0};
    CHECK(tc_plan_create(&shape, &me->plan, NULL) == TC_OK);
    CHECK(tc_run_create(&(tc_run_config){.plan = &me->plan,
                                         .call = &c->ranks[me->rank].call,
                                         .lanes = &me->lanes,
                                         .reduce = sim_case_reduce(c),
                                         .peer_in = c->peer_in,
                                         .peer_out = c->peer_out,
                                         .rank = me->rank,
                                         .size = me->world->size,
                                         .piece_bytes = me->world->piece_bytes},
                        &me->run, NULL) == TC_OK);
}

static bool
rank_finish(rank_state *me)
{
    sim_case *c = me->world->cases[me->call];
    sim_traffic want = sim_case_traffic(c, me->rank, me->world->piece_bytes);

    CHECK(tc_run_current(me->run) == -1);
    if (!sim_case_finish(c, me->rank)) {
        return false;
    }
    if (memcmp(&want, &me->traffic, sizeof(want)) != 0) {
        fprintf(stderr,
                "rank %d of %d: out %llu and %llu bytes, wanted %llu and %llu\n",
                (int)me->rank, (int)me->world->size,
                (unsigned long long)me->traffic.pair_out.bytes,
                (unsigned long long)me->traffic.mcast_out.bytes,
                (unsigned long long)want.pair_out.bytes,
                (unsigned long long)want.mcast_out.bytes);
        return false;
    }
    tc_run_destroy(me->run);
    tc_plan_destroy(&me->plan);
    me->run = NULL;
    me->call++;
    rank_start(me);
    return true;
}

/* Runs a rank once; a call that ends is followed by the next one later. */
static bool
rank_step(rank_state *me, bool *moved_p)
{
    int32_t peer = -2;
    tc_status status;

    *moved_p = false;
    if (rank_done(me)) {
        return true;
    }
    status = tc_run_step(me->run, moved_p, &peer);
    if (status == TC_OK) {
        *moved_p = true;
        return rank_finish(me);
    }
    if (status != TC_PENDING || peer < -1 || peer >= me->world->size ||
        peer == me->rank) {
        fprintf(stderr, "rank %d of %d: status %d, peer %d\n", (int)me->rank,
                (int)me->world->size, (int)status, (int)peer);
        return false;
    }
    return true;
}

/* Order ---------------------------------------------------------------------------- */

static bool
all_done(const sim_world *w)
{
    for (int32_t r = 0; r < w->size; r++) {
        if (!rank_done(&w->ranks[r])) {
            return false;
        }
    }
    return true;
}

static bool
report_lockup(const sim_world *w)
{
    for (int32_t r = 0; r < w->size; r++) {
        const rank_state *me = &w->ranks[r];
        char text[128] = "done";

        if (!rank_done(me)) {
            int32_t index = tc_run_current(me->run);

            tc_plan_describe(&me->plan.steps[index], (uint32_t)index, text,
                             sizeof(text));
        }
        fprintf(stderr, "locked up: rank %d, call %u, %s\n", (int)r, me->call, text);
    }
    return false;
}

/* Each rank once; *moved_p tells whether any could. With `restart` the pass ends with
 * the first rank that moved, so that those behind it run only when those before
 * cannot. */
static bool
pass(sim_world *w, bool restart, bool *moved_p)
{
    *moved_p = false;
    for (int32_t i = 0; i < w->size; i++) {
        bool moved;

        if (!rank_step(&w->ranks[w->preference[i]], &moved)) {
            return false;
        }
        *moved_p = *moved_p || moved;
        if (moved && restart) {
            break;
        }
    }
    return true;
}

static void
choose_preference(sim_world *w, sim_order order)
{
    int32_t *ranks = w->preference;

    for (int32_t i = 0; i < w->size; i++) {
        ranks[i] = order == SIM_HIGHEST ? w->size - 1 - i : i;
    }
    for (int32_t i = w->size - 1; order == SIM_RANDOM_RANK && i > 0; i--) {
        int32_t j = (int32_t)(sim_random(&w->random) % (uint32_t)(i + 1));
        int32_t swapped = ranks[i];

        ranks[i] = ranks[j];
        ranks[j] = swapped;
    }
}

/* Some ranks at random, with lanes that seem full or empty at times. */
static bool
run_stalled(sim_world *w)
{
    bool ok = true;

    w->stall = true;
    for (int32_t i = 0; ok && i < 4 * w->size; i++) {
        bool moved;

        ok = rank_step(&w->ranks[sim_random(&w->random) % (uint32_t)w->size], &moved);
    }
    w->stall = false;
    return ok;
}

static bool
run_ordered(sim_world *w, sim_order order)
{
    bool restart = order != SIM_ROUND_ROBIN && order != SIM_RANDOM;
    bool ok = true;

    choose_preference(w, order);
    while (ok && !all_done(w)) {
        bool moved = false;

        ok = (order != SIM_RANDOM || run_stalled(w)) && pass(w, restart, &moved);
        if (ok && !moved && !all_done(w)) {
            ok = report_lockup(w);
        }
    }
    return ok;
}

static bool
lanes_empty(const sim_world *w)
{
    for (int32_t i = 0; i < w->size * w->size; i++) {
        if (w->pairs[i].published != w->pairs[i].freed) {
            fprintf(stderr, "a piece is left from rank %d to rank %d\n",
                    (int)(i / w->size), (int)(i % w->size));
            return false;
        }
    }
    for (int32_t r = 0; r < w->size; r++) {
        if (w->mcasts[r].published != w->mcasts[r].freed) {
            fprintf(stderr, "a piece is left from rank %d to all\n", (int)r);
            return false;
        }
    }
    return true;
}

bool
sim_world_run(sim_world *w, sim_case *const *cases, uint32_t case_count,
              sim_order order, uint32_t seed)
{
    w->cases = cases;
    w->case_count = case_count;
    w->random = seed;
    for (int32_t r = 0; r < w->size; r++) {
        w->ranks[r].call = 0;
        rank_start(&w->ranks[r]);
    }
    return run_ordered(w, order) && lanes_empty(w);
}
