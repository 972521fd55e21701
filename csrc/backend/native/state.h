/* SPDX-License-Identifier: BSD-3-Clause */
/* The native engine's communicator and what each of its files offers the others. */
#ifndef TC_NATIVE_STATE_H
#define TC_NATIVE_STATE_H

#include "base/bell.h"
#include "base/clock.h"
#include "base/ring.h"
#include "coll/run.h"
#include "loop/engine.h"
#include "reduce/reduce.h"
#include "torchcomms/backend.h"
#include "transport/shm/lane.h"

typedef struct tc_native tc_native;
typedef struct tc_native_op tc_native_op;
struct tc_p2p_state;

/* What one call of a step function achieved. */
typedef enum tc_native_step {
    TC_NATIVE_DONE,
    TC_NATIVE_MOVED,
    TC_NATIVE_BLOCKED, /* `op->peer` tells by whom */
    TC_NATIVE_FAILED, /* the communicator is broken, its state tells why */
} tc_native_step;

/* How a collective is carried out. */
typedef struct tc_native_path {
    /* Once, when the operation's turn has come and it is announced; what it cannot get
     * breaks the communicator. */
    tc_native_step (*start)(tc_native *comm, tc_op *op);
    tc_native_step (*step)(tc_native *comm, tc_op *op);
    void (*end)(tc_native *comm, tc_op *op); /* releases what start took */
} tc_native_path;

/* The engine's part of a tc_op, in its `state`. */
struct tc_native_op {
    const tc_native_path *path;
    uint64_t seq; /* collective number on this communicator; 0: not started */
    uint64_t fingerprint; /* of the call, with seq */
    uint64_t deadline_ns; /* 0 until it is queued */
    uint64_t record; /* number of its line in the record */
    tc_reduce_fn reduce; /* NULL where nothing is reduced */
    int32_t peer; /* the rank it waits for, -1: none */
    bool inside; /* its issuer is in the call and takes `status` from here */
    bool finished; /* completed, or about to be */
    tc_status status; /* once finished inside */
    uint32_t arrived; /* exchange and direct: peers seen so far */
    uint32_t phase; /* direct: see direct.c */
    bool readable; /* direct: nobody seen so far has said no */
    uint64_t exchange; /* exchange: its number */
    uint64_t bytes; /* exchange and multicast: shown to the others */
    const void *input; /* plan: call.in before PREMUL_SUM replaced it */
    void *scratch; /* plan: scaled input of PREMUL_SUM */
    void **scratch_ptrs;
};

/* One communicator.
 *
 * Invariants. Everything below `busy` is read and written only by the thread that has
 * taken `busy` (see queue.c), except `inbox`, a stack that any thread pushes to.
 * Collectives run one after the other in the order of `head`; only `head` has started.
 * Operations are completed by the holder of `busy`, so none ends while a thread is
 * inside its step. */
struct tc_native {
    const tc_host *host;
    tc_engine *engine;
    tc_engine_source source;
    tc_shm_segment *segment;
    tc_shm_rank *self; /* own control part */
    int32_t rank;
    int32_t size;
    uint32_t number; /* in its process, for the record */
    uint32_t spins; /* polls of a waiter before it yields */
    uint64_t cache_bytes; /* results of what moves more are written past the caches */
    char *name;

    tc_op *inbox;
    uint32_t busy;
    tc_op *head;
    tc_op *tail;
    uint64_t seq; /* collectives started */
    uint64_t history; /* fingerprint of the last; each contains the one before it, so
                       * that a disagreement nobody noticed shows in the next call */
    uint64_t exchanges; /* of them by one exchange */
    tc_status broken; /* TC_OK until the state word was seen to be set */
    tc_error cause; /* then: what broke it */
    const void **srcs; /* `size` addresses, for reductions */
    tc_plan plan; /* of `head`, if that takes the plan path; its memory stays */
    tc_run *run; /* the same */
    tc_heap_view **views; /* by rank, NULL: none yet; all three NULL before a call
                           * that may be direct */
    const void **peer_in; /* by rank: of `head`, if its plan is direct */
    const void **peer_out;
    int32_t full_peer; /* the reader that the last full lane waited for */
    tc_lanes lanes;
    tc_shm_lane mcast_out;
    tc_shm_lane *mcast_in; /* by rank */
    tc_shm_lane *pair_out;
    tc_shm_lane *pair_in;
    struct tc_p2p_state *p2p;
};

_Static_assert(sizeof(tc_native_op) <= TC_OP_STATE_BYTES, "fits the op's state");

static inline tc_native_op *
tc_native_op_of(tc_op *op)
{
    return (tc_native_op *)(void *)op->state;
}

/* native.c ------------------------------------------------------------------------- */

/* A communicator over the segment that rank 0 serves with `leader` (still the caller's)
 * and the others join at `address`; `group` is that of a reconfigure, or NULL. */
tc_status
tc_native_open(const tc_comm_config *config, tc_shm_leader *leader, const char *address,
               const tc_shm_group *group, void **comm_p, tc_error *err);

/* child.c -------------------------------------------------------------------------- */

void
tc_native_split_begin(void *ctx, const tc_comm_config *config, const tc_split *split,
                      uint8_t bytes[TC_SPLIT_BLOB_BYTES], void **pending_p);

tc_status
tc_native_split_end(void *ctx, const tc_comm_config *config, const tc_split *split,
                    void *pending, const uint8_t *blobs, void **child_p, tc_error *err);

/* queue.c: order and progress ---------------------------------------------------- */

tc_status
tc_native_issue_collective(void *ctx, tc_op *op);

tc_status
tc_native_issue_p2p(void *ctx, tc_op *op);

tc_status
tc_native_progress(void *ctx, uint64_t now_ns);

/* The same for the engine's thread: TC_EXPIRED when nothing is outstanding. */
tc_status
tc_native_engine_progress(void *ctx, uint64_t now_ns);

void
tc_native_detach(void *ctx, tc_op *op);

/* Ends a queued operation with `status` (its error is in *op->error) and wakes its
 * waiters. The caller holds `busy`. */
void
tc_native_complete_locked(tc_native *comm, tc_op *op, tc_status status);

/* fault.c: what breaks a communicator -------------------------------------------- */

/* Sets the state word, unless it is set, and wakes everybody. `culprit` -1: no rank in
 * particular. Any thread. */
void
tc_native_break(tc_native *comm, tc_status status, int32_t culprit, const char *format,
                ...) __attribute__((format(printf, 4, 5)));

/* Whether the communicator is broken; then `comm->cause` is filled. Cheap. */
bool
tc_native_is_broken_locked(tc_native *comm);

/* The error of an operation on a broken communicator, into *op->error. */
tc_status
tc_native_broken_error_locked(tc_native *comm, tc_op *op);

/* Whether a rank has died or left the communicator; plain loads. What it published
 * before is still there: look once more before reporting it. */
bool
tc_native_peer_is_gone(const tc_native *comm, int32_t peer);

/* Breaks the communicator because `peer` is gone and `op` needs it. */
void
tc_native_report_gone(tc_native *comm, tc_op *op, int32_t peer);

/* Slow look at the collectives: other calls of peers, deadlines. */
void
tc_native_look_locked(tc_native *comm, uint64_t now_ns);

/* call.c: what a call looks like to others ----------------------------------------- */

/* Takes the next collective number for the operation and announces it. */
void
tc_native_announce_locked(tc_native *comm, tc_op *op);

/* Breaks the communicator with both sides' calls. */
void
tc_native_mismatch_locked(tc_native *comm, tc_op *op, int32_t peer);

/* Breaks the communicator if a peer has announced another call than this rank under a
 * number that both have reached: calls that needed nobody meet nowhere else. For a rank
 * that leaves; nothing is in flight. */
void
tc_native_check_history(tc_native *comm);

/* Whether `peer` has announced another call under the number of `op`. */
bool
tc_native_call_differs(const tc_native *comm, tc_op *op, int32_t peer);

/* The line of the call of this number, unless `peer` has reused it. */
tc_shm_call *
tc_native_line_of(const tc_native *comm, uint64_t seq, int32_t peer);

/* Whether `peer` has announced the call of this number or a later one. */
bool
tc_native_has_arrived(const tc_native *comm, uint64_t seq, int32_t peer);

/* "all_reduce of 8 float32 with SUM". */
void
tc_native_describe(tc_op *op, char *text, size_t capacity);

/* exchange.c, multicast.c, collective.c and direct.c: the paths -------------------- */

/* Pieces this small or smaller are not worth their headers: no path cuts them. */
enum { TC_NATIVE_LEAST_PIECE = 8 * 1024 };

/* Whether all ranks take the one-exchange path for this call; a function of what all of
 * them know. Then *bytes_p are those that each shows to the others. */
bool
tc_native_fits_exchange(const tc_native *comm, const tc_call *call, uint64_t *bytes_p);

/* The same for a broadcast of one piece. */
bool
tc_native_fits_multicast(const tc_native *comm, const tc_call *call, uint64_t *bytes_p);

/* The same for a call whose ranks may read each other's buffers. */
bool
tc_native_fits_direct(const tc_native *comm, const tc_call *call);

/* Writes into the line of such a call where its buffers lie. */
void
tc_native_show_buffers(const tc_native *comm, const tc_call *call, tc_shm_call *line);

void
tc_native_views_destroy(tc_native *comm);

/* Makes plan and run of `head`. */
tc_native_step
tc_native_plan_begin(tc_native *comm, tc_op *op, bool direct);

/* Breaks the communicator because a piece of `peer` is longer or shorter than this rank
 * expects. */
void
tc_native_report_length(tc_native *comm, int32_t peer);

/* The table through which plans reach the lanes. */
void
tc_native_lanes_init(tc_native *comm);

extern const tc_native_path tc_native_exchange_path;
extern const tc_native_path tc_native_multicast_path;
extern const tc_native_path tc_native_plan_path;
extern const tc_native_path tc_native_direct_path;

/* p2p.c: sends and receives, beside the collectives -------------------------------- */

tc_status
tc_native_p2p_create(tc_native *comm, tc_error *err);

void
tc_native_p2p_destroy(tc_native *comm);

/* Takes an accepted send, recv or batch. */
void
tc_native_p2p_post_locked(tc_native *comm, tc_op *op);

/* Moves what can be moved; true when something moved. Completes what has ended. */
bool
tc_native_p2p_step_locked(tc_native *comm);

/* Deadlines and dead peers of everything pending. */
void
tc_native_p2p_look_locked(tc_native *comm, uint64_t now_ns);

/* Ends everything pending with the communicator's cause. */
void
tc_native_p2p_fail_locked(tc_native *comm);

bool
tc_native_p2p_is_idle_locked(const tc_native *comm);

#endif
