/* SPDX-License-Identifier: BSD-3-Clause */
/* The one engine that runs plans, piece by piece, over the lanes of any transport. */
#ifndef TC_COLL_RUN_H
#define TC_COLL_RUN_H

#include "coll/plan.h"

/* A lane as a plan run sees it. `lane` is the other rank for a pair lane, TC_LANE_MCAST
 * for the own multicast lane on the writing side; for reading, `mcast` tells the
 * multicast lane of rank `lane` from the pair lane of rank `lane`. */
#define TC_LANE_MCAST (-1)

/* The lanes of one communicator. None of these waits.
 *
 * Invariant: a slot that `reserve` returned belongs to the writer until `publish`, then
 * to its readers until each has called `release`. Pieces of a lane arrive in the order
 * they were published. */
typedef struct tc_lanes {
    void *ctx;
    /* A slot to write the next piece into, or NULL while the lane is full. Asked again
     * before `publish`, it returns the same slot. */
    void *(*reserve)(void *ctx, int32_t lane);
    /* Copies into a reserved slot. */
    void (*fill)(void *ctx, void *slot, const void *src, size_t bytes);
    /* Hands the reserved slot with its first `bytes` bytes to the readers. `total` is
     * the step's byte count, by which the reader recognises a mismatch. */
    void (*publish)(void *ctx, int32_t lane, uint32_t bytes, uint64_t total);
    /* The oldest piece not yet released and its length, or NULL while there is none.
     * *status_p is TC_OK, or an error where the piece belongs to another call or its
     * sender announced another total than `total` (the transport keeps the details). */
    const void *(*peek)(void *ctx, int32_t lane, bool mcast, uint64_t total,
                        uint32_t *bytes_p, tc_status *status_p);
    void (*release)(void *ctx, int32_t lane, bool mcast);
} tc_lanes;

typedef void (*tc_run_reduce_fn)(void *dst, const void *const *srcs, int n,
                                 size_t count);

/* State of one running plan, made for one call and used by one thread at a time.
 *
 * A step moves in pieces of `piece_bytes`, the last one shorter; a step of 0 bytes
 * moves one empty piece. Both sides of a lane cut alike, so all ranks have to give the
 * same `piece_bytes`: a whole number of elements, no more than a slot holds. */
typedef struct tc_run tc_run;

/* What a run is made from. `plan`, `call` and `lanes` are borrowed until
 * tc_run_destroy. The buffers of the call may be the same where the algorithm says so.
 * `reduce` may be NULL where the plan has no REDUCE step; it is called with one source
 * per rank, in rank order, of which this rank's may be the destination. A plan whose
 * steps move `cache_bytes` or more writes past the caches what it copies to the user's
 * memory (docs/design/copies.md). `peer_in` and
 * `peer_out` have the inputs and outputs of the other ranks by rank, where the plan is
 * a direct one, and are borrowed as long. */
typedef struct tc_run_config {
    const tc_plan *plan;
    const tc_call *call;
    const tc_lanes *lanes;
    tc_run_reduce_fn reduce;
    const void *const *peer_in;
    const void *const *peer_out;
    int32_t rank;
    int32_t size;
    uint32_t piece_bytes;
    uint64_t cache_bytes;
} tc_run_config;

/* *run_p is NULL, or a run made before, whose memory serves again if it is enough;
 * after an error it cannot be stepped. */
tc_status
tc_run_create(const tc_run_config *config, tc_run **run_p, tc_error *err);

/* May be called in mid-run; what is in the lanes stays there. NULL is allowed. */
void
tc_run_destroy(tc_run *run);

/* Moves what can be moved now, at most TC_RUN_PIECES pieces. TC_OK: the plan is
 * complete; TC_PENDING: not yet, with *moved_p telling whether anything moved and,
 * where nothing did, *peer_p a rank it waits for (-1: none known), preferably one from
 * which nothing has come yet. Negative: the error of a peek, or TC_ERR_MISMATCH for a
 * piece of another length than this side expects; *peer_p is the rank it came from, the
 * run cannot go on. Never waits. */
tc_status
tc_run_step(tc_run *run, bool *moved_p, int32_t *peer_p);

/* How many pieces a call of tc_run_step moves before it lets its caller look at abort
 * flags and deadlines. */
#define TC_RUN_PIECES 64u

/* The first step that is not complete, for records and errors; -1: none. */
int32_t
tc_run_current(const tc_run *run);

#endif
