/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds the ranks of a model and drives their calls. */
#include "model/support/world.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/native/native.h"

/* The core forgives a second completion; the model does not. */
static void
complete_once(tc_op *op, tc_status status)
{
    const tc_work *work = (const tc_work *)op;

    MODEL_CHECK(work->refs > 0 && work->state == TC_WORK_INPROGRESS);
    tc_work_complete(op, status);
}

static const tc_host host = {
    .struct_size = sizeof(tc_host),
    .complete = complete_once,
};

/* Waiters sleep at once: spins and yields only make more states of the same kind. */
static void
parking_without_spins(void *ctx, tc_parking *parking)
{
    tc_native_backend()->parking(ctx, parking);
    parking->spins = 0;
    parking->yields = 0;
}

static uint64_t
lay_lanes(tc_shm_lane_shape *shape, uint64_t offset, uint64_t count)
{
    shape->control_bytes =
        (uint64_t)(TC_SHM_MAX_SLOTS + shape->readers + TC_SHM_GRANTS) * TC_SHM_LINE;
    shape->stride = shape->control_bytes +
                    ((uint64_t)shape->slots * shape->slot_bytes + TC_SHM_LINE - 1) /
                        TC_SHM_LINE * TC_SHM_LINE;
    shape->offset = offset;
    return offset + shape->stride * count;
}

/* As tc_shm_layout_compute, but small. */
static tc_shm_layout
lay_out(const world_shape *shape)
{
    uint64_t ranks = (uint64_t)shape->size;
    tc_shm_layout l = {.size = shape->size, .exchange_bytes = TC_SHM_LINE};
    uint64_t at = TC_SHM_PAGE;

    l.rank_offset = at;
    l.rank_stride = (sizeof(tc_shm_rank) + TC_SHM_LINE - 1) / TC_SHM_LINE * TC_SHM_LINE;
    at += l.rank_stride * ranks;
    l.exchange_offset = at;
    l.exchange_stride = 2 * (uint64_t)l.exchange_bytes;
    at += l.exchange_stride * ranks;
    for (int kind = 0; kind < TC_SHM_LANE_KINDS; kind++) {
        bool mcast = kind == TC_SHM_LANE_MCAST;

        l.lanes[kind] =
            (tc_shm_lane_shape){.slots = shape->slots,
                                .slot_bytes = shape->slot_bytes,
                                .readers = mcast ? (uint32_t)shape->size - 1 : 1};
        at = lay_lanes(&l.lanes[kind], at, mcast ? ranks : ranks * ranks);
    }
    l.bytes = at;
    return l;
}

static void
name_lanes(const tc_shm_segment *s, tc_shm_lane_kind kind, int32_t from, int32_t to)
{
    const tc_shm_lane_shape *shape = &s->layout.lanes[kind];
    const uint8_t *at = s->base + tc_shm_layout_lane(&s->layout, kind, from, to);
    const char *word = kind == TC_SHM_LANE_MCAST ? "mcast" : "pair";

    model_name(at, TC_SHM_MAX_SLOTS * TC_SHM_LINE, "%s %d>%d piece", word, from, to);
    model_name(at + TC_SHM_MAX_SLOTS * TC_SHM_LINE, shape->readers * TC_SHM_LINE,
               "%s %d>%d ack", word, from, to);
}

static void
name_segment(const tc_shm_segment *s)
{
    model_name(s->base, 4, "state word");
    for (int32_t r = 0; r < s->layout.size; r++) {
        const tc_shm_rank *rank = tc_shm_segment_rank(s, r);

        model_name(&rank->headers[0], sizeof(rank->headers[0]), "rank %d header 0", r);
        model_name(&rank->headers[1], sizeof(rank->headers[1]), "rank %d header 1", r);
        model_name(rank->calls, sizeof(rank->calls), "rank %d calls", r);
        name_lanes(s, TC_SHM_LANE_MCAST, r, 0);
        for (int32_t to = 0; to < s->layout.size; to++) {
            name_lanes(s, TC_SHM_LANE_PAIR, r, to);
        }
    }
}

/* All threads of a rank; no other rank writes its memory. */
static uint8_t
world_group(const world_rank *r)
{
    return (uint8_t)(r->rank + 1);
}

static void
create_rank(world *w, world_rank *r, const tc_shm_segment *shared, tc_page **pages)
{
    tc_shm_segment *segment;
    char name[] = "model";
    tc_comm_options options = {
        .backend = name,
        .name = name,
        .rank = r->rank,
        .size = w->size,
        .timeout_ns = UINT64_C(1000000000),
    };
    tc_interrupt never = {0};
    tc_comm_config config;
    tc_error err;

    model_group(world_group(r));
    segment = model_memory(sizeof(*segment));
    *segment = *shared;
    segment->rank = r->rank;
    segment->pages = pages;
    segment->pid = (int32_t)getpid();
    MODEL_CHECK(tc_comm_alloc(&options, &w->backend, r->engine, &r->comm, &err) ==
                TC_OK);
    tc_comm_fill_config(r->comm, &never, &config);
    config.host = &host;
    r->native = world_native_create(&config, segment);
    r->comm->membership->ctx = r->native;
    model_name(&r->native->busy, 4, "rank %d busy", r->rank);
    model_name(&r->native->inbox, 8, "rank %d inbox", r->rank);
    model_name(&r->native->source, sizeof(r->native->source), "rank %d source",
               r->rank);
    model_name(r->native, sizeof(*r->native), "rank %d native", r->rank);
    model_name(r->comm, sizeof(*r->comm), "rank %d comm", r->rank);
    model_name(r->comm->membership, sizeof(*r->comm->membership), "rank %d membership",
               r->rank);
    model_group(0);
}

world *
world_create(const world_shape *shape)
{
    world *w = model_memory(sizeof(*w));
    tc_page **pages = model_memory(WORLD_RANKS * sizeof(pages[0]));
    tc_shm_segment shared = {.layout = lay_out(shape), .fd = -1};
    tc_reduce_fn fn;
    tc_error err;

    model_sparse(w, sizeof(*w)); /* constant */
    /* Whatever the library finds out once, it finds out here. */
    MODEL_CHECK(tc_reduce_find(TC_INT32, TC_REDOP_SUM, &fn, &err) == TC_OK);
    w->size = shape->size;
    w->backend = *tc_native_backend();
    w->backend.parking = parking_without_spins;
    shared.base = model_memory(shared.layout.bytes);
    model_sparse(shared.base, shared.layout.bytes);
    name_segment(&shared);
    for (int32_t r = 0; r < w->size; r++) {
        w->ranks[r].rank = r;
        w->ranks[r].world = w;
        w->ranks[r].engine = world_engine_create(r, &pages[r]);
    }
    for (int32_t r = 0; r < w->size; r++) {
        create_rank(w, &w->ranks[r], &shared, pages);
    }
    return w;
}

void
world_thread(const world_rank *r, const char *name, model_body_fn body, void *arg)
{
    model_group(world_group(r));
    model_thread(name, body, arg);
    model_group(0);
}

void
world_engine_thread(world_rank *r)
{
    char name[24];

    snprintf(name, sizeof(name), "engine %d", r->rank);
    world_thread(r, name, world_engine_run, r->engine);
}

tc_status
world_issue(world_rank *r, const tc_call *call, tc_work **work_p, tc_error *err)
{
    return tc_comm_issue(r->comm, call, 0, work_p, err);
}

tc_status
world_poll(world_rank *r, tc_work *work, tc_error *err)
{
    tc_status status;

    while (tc_work_get_state(work) == TC_WORK_INPROGRESS) {
        model_pause();
        model_watch();
        while (r->comm->backend->progress(r->native, 0) == TC_OK) {
        }
    }
    model_watch();
    status = tc_work_result(work, err);
    tc_work_release(work);
    return status;
}

tc_status
world_wait(world_rank *r, tc_work *work, tc_error *err)
{
    tc_status status;

    (void)r;
    status = tc_work_wait(work, TC_DEADLINE_NONE, NULL, err);
    tc_work_release(work);
    return status;
}

void
world_tidy(world_rank *r)
{
    tc_work *spare = r->comm->membership->spare;

    if (spare != NULL) {
        memset(&spare->op.call, 0, sizeof(spare->op.call));
        memset(spare->op.state, 0, sizeof(spare->op.state));
        spare->op.next = NULL;
        spare->state = 0;
        spare->status = 0;
    }
    memset(r->native->srcs, 0, (size_t)r->native->size * sizeof(r->native->srcs[0]));
    r->native->full_peer = -1;
    r->comm->membership->issued = 0;
    r->comm->membership->ended = 0;
    model_watch();
}
