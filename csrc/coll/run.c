/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a plan piece by piece: sweeps over its unfinished steps, one piece a step. */
#include "coll/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/dtype.h"
#include "base/error.h"

/* One step in progress. */
typedef struct run_step {
    uint64_t done; /* bytes */
    char *src;
    char *dst;
    int32_t behind; /* the step that has the lane before this one; -1: none */
    bool finished;
} run_step;

struct tc_run {
    size_t capacity; /* bytes of this and all arrays behind it */
    const tc_plan *plan;
    const tc_lanes *lanes;
    tc_run_reduce_fn reduce;
    const void *const *peer_in;
    const tc_call *call;
    size_t elem_bytes;
    int32_t rank;
    int32_t size;
    uint32_t piece_bytes;
    bool large; /* its copies to the user's memory go past the caches */
    uint32_t active_count;
    uint32_t cursor; /* where in `active` the next sweep starts */
    uint32_t *active; /* the unfinished steps, in plan order */
    run_step *steps;
    /* Of the REDUCE that has the lanes, the pieces seen so far; a piece stays where it
     * is until released, so its address is good until then. By rank, NULL: not yet
     * seen. */
    const void **srcs;
};

/* The last step, in plan order, that uses a lane; only while a run is being made. */
typedef struct lane_users {
    int32_t *to; /* pair lane to the rank */
    int32_t *from; /* pair lane from the rank */
    int32_t *mcast; /* multicast lane of the rank; one's own: as its writer */
    int32_t reduced; /* the last REDUCE, which uses all `from` */
} lane_users;

static int32_t
swap_user(int32_t *user, int32_t index)
{
    int32_t before = *user;

    *user = index;
    return before;
}

static int32_t
take_lane(lane_users *users, const tc_step *step, int32_t index, int32_t rank)
{
    int32_t before;

    switch (step->kind) {
    case TC_STEP_SEND:
        return swap_user(&users->to[step->peer], index);
    case TC_STEP_RECV:
        before = swap_user(&users->from[step->peer], index);
        return before > users->reduced ? before : users->reduced;
    case TC_STEP_REDUCE:
        /* RECVs before it are looked at when it runs: there can be many. */
        return swap_user(&users->reduced, index);
    case TC_STEP_MCAST:
        return swap_user(&users->mcast[rank], index);
    case TC_STEP_MRECV:
        return swap_user(&users->mcast[step->peer], index);
    case TC_STEP_COPY:
    case TC_STEP_READ:
    case TC_STEP_REDUCE_READ:
        break;
    }
    return -1;
}

/* Of a place in a buffer whose blocks lie side by side. */
static uint64_t
place_offset(const tc_place *place, const tc_call *call, size_t elem_bytes)
{
    uint64_t block = (uint64_t)(uint32_t)place->block * elem_bytes;

    switch (place->space) {
    case TC_SPACE_IN_BLOCKS:
        return block * call->in_blocks.count + place->offset;
    case TC_SPACE_OUT_BLOCKS:
        return block * call->out_blocks.count + place->offset;
    default:
        return place->offset;
    }
}

/* NULL for a buffer without an address. */
static char *
peer_address(const tc_run_config *config, const tc_step *step, size_t elem_bytes)
{
    bool out =
        step->src.space == TC_SPACE_OUT || step->src.space == TC_SPACE_OUT_BLOCKS;
    const void *base = (out ? config->peer_out : config->peer_in)[step->peer];

    return base == NULL ? NULL
                        : (char *)(uintptr_t)base +
                              place_offset(&step->src, config->call, elem_bytes);
}

static char *
place_address(const tc_place *place, const tc_call *call, size_t elem_bytes)
{
    const void *base = NULL;

    switch (place->space) {
    case TC_SPACE_NONE:
        break;
    case TC_SPACE_IN:
        base = call->in;
        break;
    case TC_SPACE_OUT:
        base = call->out;
        break;
    case TC_SPACE_IN_BLOCKS:
        base = tc_blocks_ptr(&call->in_blocks, place->block, elem_bytes);
        break;
    case TC_SPACE_OUT_BLOCKS:
        base = tc_blocks_ptr(&call->out_blocks, place->block, elem_bytes);
        break;
    }
    return base == NULL ? NULL : (char *)base + place->offset;
}

static tc_status
check_config(const tc_run_config *config, size_t elem_bytes, tc_error *err)
{
    const tc_plan *plan = config->plan;

    if (elem_bytes == 0 || config->piece_bytes == 0 ||
        config->piece_bytes % elem_bytes != 0) {
        return tc_error_set(err, TC_ERR_INTERNAL,
                            "pieces of %u bytes with elements of %zu bytes",
                            config->piece_bytes, elem_bytes);
    }
    for (uint32_t i = 0; i < plan->step_count; i++) {
        tc_step_kind kind = plan->steps[i].kind;

        if ((kind == TC_STEP_READ || kind == TC_STEP_REDUCE_READ) &&
            (config->peer_in == NULL || config->peer_out == NULL)) {
            return tc_error_set(err, TC_ERR_INTERNAL,
                                "step %u reads buffers of others, which are not given",
                                i);
        }
        if ((kind == TC_STEP_REDUCE || kind == TC_STEP_REDUCE_READ) &&
            config->reduce == NULL) {
            return tc_error_set(err, TC_ERR_INTERNAL,
                                "step %u reduces, without a function for it", i);
        }
    }
    return TC_OK;
}

static uint64_t
moved_bytes(const tc_plan *plan)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < plan->step_count; i++) {
        sum += plan->steps[i].bytes;
    }
    return sum;
}

/* Room for the run and its arrays at *run_p. */
static tc_status
reserve(const tc_run_config *config, tc_run **run_p, tc_error *err)
{
    size_t ranks = (size_t)config->size;
    size_t count = config->plan->step_count;
    size_t bytes = sizeof(tc_run) + count * (sizeof(run_step) + sizeof(uint32_t)) +
                   ranks * (sizeof(void *) + 3 * sizeof(int32_t));
    tc_run *run;

    if (*run_p != NULL && (*run_p)->capacity >= bytes) {
        return TC_OK;
    }
    run = malloc(bytes);
    if (run == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "run of a plan with %zu steps",
                            count);
    }
    run->capacity = bytes;
    free(*run_p);
    *run_p = run;
    return TC_OK;
}

tc_status
tc_run_create(const tc_run_config *config, tc_run **run_p, tc_error *err)
{
    size_t elem_bytes = tc_dtype_size(config->call->dtype);
    size_t ranks = (size_t)config->size;
    size_t count = config->plan->step_count;
    lane_users users = {.reduced = -1};
    tc_run *run;

    TC_TRY(check_config(config, elem_bytes, err));
    TC_TRY(reserve(config, run_p, err));
    run = *run_p;
    *run = (tc_run){.capacity = run->capacity,
                    .plan = config->plan,
                    .lanes = config->lanes,
                    .reduce = config->reduce,
                    .peer_in = config->peer_in,
                    .call = config->call,
                    .elem_bytes = elem_bytes,
                    .rank = config->rank,
                    .size = config->size,
                    .piece_bytes = config->piece_bytes,
                    .large = moved_bytes(config->plan) >= config->cache_bytes,
                    .active_count = (uint32_t)count};
    /* Ordered by falling alignment. */
    run->steps = (run_step *)(run + 1);
    run->srcs = (const void **)(run->steps + count);
    users.to = (int32_t *)(run->srcs + ranks);
    users.from = users.to + ranks;
    users.mcast = users.from + ranks;
    run->active = (uint32_t *)(users.mcast + ranks);
    memset(run->srcs, 0, ranks * sizeof(*run->srcs));
    memset(users.to, 0xff, 3 * ranks * sizeof(*users.to)); /* all -1 */
    for (uint32_t i = 0; i < count; i++) {
        const tc_step *step = &config->plan->steps[i];

        run->active[i] = i;
        run->steps[i] =
            (run_step){.src = step->kind == TC_STEP_READ
                                  ? peer_address(config, step, elem_bytes)
                                  : place_address(&step->src, config->call, elem_bytes),
                       .dst = place_address(&step->dst, config->call, elem_bytes),
                       .behind = take_lane(&users, step, (int32_t)i, config->rank)};
    }
    return TC_OK;
}

void
tc_run_destroy(tc_run *run)
{
    free(run);
}

int32_t
tc_run_current(const tc_run *run)
{
    return run->active_count == 0 ? -1 : (int32_t)run->active[0];
}

/* The peer of a blocked step, for the report of who is waited for. */
typedef struct blocked {
    int32_t peer;
    bool silent; /* nothing of that step has moved yet */
} blocked;

static void
note_blocked(blocked *by, int32_t peer, uint64_t done)
{
    bool silent = done == 0;

    if (by->peer < 0 || (silent && !by->silent)) {
        *by = (blocked){.peer = peer, .silent = silent};
    }
}

/* A REDUCE reads the lanes that earlier RECVs may still need. */
static bool
receives_unfinished(const tc_run *run, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (run->plan->steps[i].kind == TC_STEP_RECV && !run->steps[i].finished) {
            return true;
        }
    }
    return false;
}

static bool
all_finished(const tc_run *run, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (!run->steps[i].finished) {
            return false;
        }
    }
    return true;
}

static bool
may_move(const tc_run *run, uint32_t index, uint64_t piece)
{
    const tc_step *step = &run->plan->steps[index];
    int32_t behind = run->steps[index].behind;

    if (behind >= 0 && !run->steps[behind].finished) {
        return false;
    }
    if (step->after >= 0) {
        const run_step *ahead = &run->steps[step->after];

        if (!ahead->finished && ahead->done < run->steps[index].done + piece) {
            return false;
        }
    }
    if (step->after == TC_AFTER_ALL && !all_finished(run, index)) {
        return false;
    }
    return step->kind != TC_STEP_REDUCE || !receives_unfinished(run, index);
}

/* The piece at the head of a lane: TC_OK with its address, TC_PENDING while there is
 * none, or what is wrong with it. */
static tc_status
peek_piece(const tc_run *run, int32_t lane, bool mcast, uint64_t total, uint32_t piece,
           const void **slot_p)
{
    tc_status status = TC_OK;
    uint32_t bytes = 0;
    const void *slot =
        run->lanes->peek(run->lanes->ctx, lane, mcast, total, &bytes, &status);

    if (status != TC_OK) {
        return status;
    }
    if (slot == NULL) {
        return TC_PENDING;
    }
    if (bytes != piece) {
        return TC_ERR_MISMATCH;
    }
    *slot_p = slot;
    return TC_OK;
}

static tc_status
move_copy(const tc_run *run, uint32_t index, uint32_t piece)
{
    run_step *state = &run->steps[index];

    if (state->src == state->dst) {
        state->done = run->plan->steps[index].bytes - piece;
    } else {
        tc_copy_to_user(state->dst + state->done, state->src + state->done, piece,
                        run->large);
    }
    return TC_OK;
}

static tc_status
move_out(const tc_run *run, uint32_t index, uint32_t piece, blocked *by)
{
    const tc_step *step = &run->plan->steps[index];
    const run_step *state = &run->steps[index];
    int32_t lane = step->kind == TC_STEP_MCAST ? TC_LANE_MCAST : step->peer;
    void *slot = run->lanes->reserve(run->lanes->ctx, lane);

    if (slot == NULL) {
        if (step->peer >= 0) {
            note_blocked(by, step->peer, state->done);
        }
        return TC_PENDING;
    }
    if (piece > 0) { /* an empty buffer may be NULL */
        run->lanes->fill(run->lanes->ctx, slot, state->src + state->done, piece);
    }
    run->lanes->publish(run->lanes->ctx, lane, piece, step->bytes);
    return TC_OK;
}

static tc_status
move_in(const tc_run *run, uint32_t index, uint32_t piece, blocked *by)
{
    const tc_step *step = &run->plan->steps[index];
    const run_step *state = &run->steps[index];
    bool mcast = step->kind == TC_STEP_MRECV;
    const void *slot = NULL;
    tc_status status = peek_piece(run, step->peer, mcast, step->bytes, piece, &slot);

    if (status == TC_PENDING) {
        note_blocked(by, step->peer, state->done);
        return status;
    }
    if (status != TC_OK) {
        by->peer = step->peer;
        return status;
    }
    tc_copy_to_user(state->dst + state->done, slot, piece, run->large);
    run->lanes->release(run->lanes->ctx, step->peer, mcast);
    return TC_OK;
}

static tc_status
move_reduce(const tc_run *run, uint32_t index, uint32_t piece, blocked *by)
{
    const tc_step *step = &run->plan->steps[index];
    const run_step *state = &run->steps[index];
    bool complete = true;

    for (int32_t r = 0; r < run->size; r++) {
        tc_status status;

        if (r == run->rank || run->srcs[r] != NULL) {
            continue;
        }
        status = peek_piece(run, r, false, step->bytes, piece, &run->srcs[r]);
        if (status == TC_PENDING) {
            note_blocked(by, r, state->done);
            complete = false;
        } else if (status != TC_OK) {
            by->peer = r;
            return status;
        }
    }
    if (!complete) {
        return TC_PENDING;
    }
    if (piece > 0) {
        run->srcs[run->rank] = state->src + state->done;
        run->reduce(state->dst + state->done, run->srcs, run->size,
                    piece / run->elem_bytes);
    }
    for (int32_t r = 0; r < run->size; r++) {
        run->srcs[r] = NULL;
        if (r != run->rank) {
            run->lanes->release(run->lanes->ctx, r, false);
        }
    }
    return TC_OK;
}

static tc_status
move_read(const tc_run *run, uint32_t index, uint32_t piece)
{
    const run_step *state = &run->steps[index];

    tc_copy_to_user(state->dst + state->done, state->src + state->done, piece,
                    run->large);
    return TC_OK;
}

static tc_status
move_reduce_read(const tc_run *run, uint32_t index, uint32_t piece)
{
    const tc_step *step = &run->plan->steps[index];
    const run_step *state = &run->steps[index];
    uint64_t offset = place_offset(&step->src, run->call, run->elem_bytes);

    if (piece == 0) {
        return TC_OK;
    }
    for (int32_t r = 0; r < run->size; r++) {
        run->srcs[r] = r == run->rank
                           ? state->src + state->done
                           : (const char *)run->peer_in[r] + offset + state->done;
    }
    run->reduce(state->dst + state->done, run->srcs, run->size,
                piece / run->elem_bytes);
    memset(run->srcs, 0, (size_t)run->size * sizeof(*run->srcs));
    return TC_OK;
}

/* Moves the next piece of a step. TC_OK: moved, TC_PENDING: blocked. */
static tc_status
move_piece(tc_run *run, uint32_t index, blocked *by)
{
    const tc_step *step = &run->plan->steps[index];
    run_step *state = &run->steps[index];
    uint64_t left = step->bytes - state->done;
    uint32_t piece = left < run->piece_bytes ? (uint32_t)left : run->piece_bytes;
    tc_status status = TC_PENDING;

    if (!may_move(run, index, piece)) {
        return TC_PENDING;
    }
    switch (step->kind) {
    case TC_STEP_COPY:
        status = move_copy(run, index, piece);
        break;
    case TC_STEP_SEND:
    case TC_STEP_MCAST:
        status = move_out(run, index, piece, by);
        break;
    case TC_STEP_RECV:
    case TC_STEP_MRECV:
        status = move_in(run, index, piece, by);
        break;
    case TC_STEP_REDUCE:
        status = move_reduce(run, index, piece, by);
        break;
    case TC_STEP_READ:
        status = move_read(run, index, piece);
        break;
    case TC_STEP_REDUCE_READ:
        status = move_reduce_read(run, index, piece);
        break;
    }
    if (status == TC_OK) {
        state->done += piece;
        state->finished = state->done == step->bytes;
    }
    return status;
}

/* One piece of each unfinished step from the cursor on, until `budget` pieces have
 * moved. Finished steps leave `active`. */
static tc_status
sweep(tc_run *run, uint32_t budget, uint32_t *moved_p, blocked *by)
{
    uint32_t i = run->cursor;
    uint32_t kept = i;
    uint32_t moved = 0;
    tc_status status = TC_OK;

    while (i < run->active_count && moved < budget) {
        uint32_t index = run->active[i];

        status = move_piece(run, index, by);
        if (status < 0) {
            break;
        }
        if (status == TC_OK) {
            moved++;
        }
        if (!run->steps[index].finished) {
            run->active[kept++] = index;
        }
        i++;
    }
    run->cursor = i == run->active_count ? 0 : kept;
    if (kept < i) {
        memmove(run->active + kept, run->active + i,
                (run->active_count - i) * sizeof(*run->active));
        run->active_count -= i - kept;
    }
    *moved_p = moved;
    return status < 0 ? status : TC_OK;
}

tc_status
tc_run_step(tc_run *run, bool *moved_p, int32_t *peer_p)
{
    blocked by = {.peer = -1};
    uint32_t budget = TC_RUN_PIECES;
    tc_status status = TC_OK;

    while (run->active_count > 0 && budget > 0) {
        bool whole = run->cursor == 0;
        uint32_t moved = 0;

        by = (blocked){.peer = -1};
        status = sweep(run, budget, &moved, &by);
        budget -= moved;
        if (status < 0 || (moved == 0 && whole)) {
            break;
        }
    }
    *moved_p = budget < TC_RUN_PIECES;
    *peer_p = by.peer;
    if (status < 0) {
        return status;
    }
    return run->active_count == 0 ? TC_OK : TC_PENDING;
}
