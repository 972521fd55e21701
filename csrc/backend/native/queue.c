/* SPDX-License-Identifier: BSD-3-Clause */
/* Order and progress: who moves a communicator, and what is moved next. */
#include "base/dtype.h"
#include "base/error.h"
#include "backend/native/state.h"

/* Polls of a synchronous call in its caller, about 2 us: so long the Python face keeps
 * the GIL (engine facts, section 9). */
#define TRY_POLLS 40
/* Passes that moved something before the caller gets to look at signals. */
#define TRY_PASSES 64
/* Collectives one pass may finish. */
#define PASS_OPS 16

/* Values of `busy`. WANTED: somebody found it held and may have gone to sleep over it,
 * so who frees it rings the bell. */
enum { FREE, HELD, WANTED };

static bool
try_lock(tc_native *comm)
{
    while (!tc_cas_acq_rel_u32(&comm->busy, FREE, HELD)) {
        if (tc_load_relaxed_u32(&comm->busy) == WANTED ||
            tc_cas_acq_rel_u32(&comm->busy, HELD, WANTED)) {
            return false;
        }
    }
    return true;
}

static void
unlock(tc_native *comm)
{
    if (tc_exchange_acq_rel_u32(&comm->busy, FREE) == WANTED) {
        tc_bell_ring(&comm->segment->pages[comm->rank]->bell);
    }
}

static void
record_begin(tc_native *comm, tc_op *op)
{
    tc_ring *ring = &tc_engine_page(comm->engine)->ring;
    tc_native_op *nop = tc_native_op_of(op);
    tc_ring_entry *entry = tc_ring_begin(ring, &nop->record);

    entry->end_tick = 0;
    entry->count = op->call.count;
    entry->seq = 0;
    entry->comm = comm->number;
    entry->kind = (uint8_t)op->call.kind;
    entry->dtype = (uint8_t)op->call.dtype;
    entry->redop = (uint8_t)op->call.redop;
    entry->state = TC_RING_ISSUED;
    entry->root = op->call.root;
    entry->step = 0;
    tc_ring_publish(entry, nop->record);
}

static void
record_end(tc_native *comm, tc_op *op, tc_status status)
{
    const tc_native_op *nop = tc_native_op_of(op);

    tc_ring_end(&tc_engine_page(comm->engine)->ring, nop->record, nop->seq,
                status == TC_OK ? TC_RING_COMPLETED : TC_RING_FAILED);
}

void
tc_native_complete_locked(tc_native *comm, tc_op *op, tc_status status)
{
    tc_bell *bell = &comm->segment->pages[comm->rank]->bell;

    tc_native_op *nop = tc_native_op_of(op);

    record_end(comm, op, status);
    nop->finished = true;
    if (nop->inside) {
        nop->status = status;
        return;
    }
    comm->host->complete(op, status);
    tc_bell_ring(bell);
}

static void
append_locked(tc_native *comm, tc_op *op)
{
    op->next = NULL;
    if (comm->head == NULL) {
        comm->head = op;
    } else {
        comm->tail->next = op;
    }
    comm->tail = op;
}

static tc_op *
pop_locked(tc_native *comm)
{
    tc_op *op = comm->head;

    comm->head = op->next;
    if (tc_native_op_of(op)->seq != 0) {
        tc_native_op_of(op)->path->end(comm, op);
    }
    return op;
}

static bool
is_p2p(tc_op_kind kind)
{
    tc_op_form form = tc_op_get_form(kind);

    return form == TC_FORM_SEND || form == TC_FORM_RECV || form == TC_FORM_BATCH;
}

static void
accept_locked(tc_native *comm, tc_op *op)
{
    if (is_p2p(op->call.kind)) {
        tc_native_p2p_post_locked(comm, op);
    } else {
        append_locked(comm, op);
    }
}

static void
push_inbox(tc_native *comm, tc_op *op)
{
    do {
        op->next = tc_load_acquire_ptr(&comm->inbox);
    } while (!tc_cas_acq_rel_ptr(&comm->inbox, op->next, op));
}

/* The inbox is a stack: turned over, it is in the order of issue. */
static bool
drain_inbox_locked(tc_native *comm)
{
    tc_op *op;
    tc_op *ordered = NULL;

    if (tc_load_acquire_ptr(&comm->inbox) == NULL) {
        return false;
    }
    op = tc_exchange_acq_rel_ptr(&comm->inbox, NULL);
    while (op != NULL) {
        tc_op *next = op->next;

        op->next = ordered;
        ordered = op;
        op = next;
    }
    while (ordered != NULL) {
        tc_op *next = ordered->next;

        accept_locked(comm, ordered);
        ordered = next;
    }
    return true;
}

/* One step of the collective whose turn it is. */
static tc_native_step
step_head_locked(tc_native *comm)
{
    tc_op *op = comm->head;
    tc_native_op *nop = tc_native_op_of(op);
    tc_native_step step;
    int32_t gone;

    if (nop->seq == 0) {
        if (tc_native_is_broken_locked(comm)) {
            return TC_NATIVE_FAILED;
        }
        nop->peer = -1;
        tc_native_announce_locked(comm, op);
        if (nop->path->start(comm, op) == TC_NATIVE_FAILED) {
            return TC_NATIVE_FAILED;
        }
    }
    step = nop->path->step(comm, op);
    if (step != TC_NATIVE_BLOCKED) {
        return step;
    }
    gone = tc_native_peer_is_gone(comm, nop->peer) ? nop->peer : -1;
    if (gone < 0 && !tc_native_is_broken_locked(comm)) {
        return TC_NATIVE_BLOCKED;
    }
    /* What a peer published before it died, left or broke the communicator counts. */
    step = nop->path->step(comm, op);
    if (step == TC_NATIVE_BLOCKED && gone >= 0 && nop->peer == gone) {
        tc_native_report_gone(comm, op, gone);
    }
    return step == TC_NATIVE_BLOCKED && tc_native_is_broken_locked(comm)
               ? TC_NATIVE_FAILED
               : step;
}

/* Ends everything with the communicator's cause. */
static void
fail_all_locked(tc_native *comm)
{
    (void)tc_native_is_broken_locked(comm);
    while (comm->head != NULL) {
        tc_op *op = pop_locked(comm);

        tc_native_complete_locked(comm, op, tc_native_broken_error_locked(comm, op));
    }
    tc_native_p2p_fail_locked(comm);
}

/* Moves the collectives; true when something moved. */
static bool
step_collectives_locked(tc_native *comm)
{
    bool moved = false;

    for (int i = 0; i < PASS_OPS && comm->head != NULL; i++) {
        tc_native_step step = step_head_locked(comm);

        if (step == TC_NATIVE_BLOCKED) {
            return moved;
        }
        moved = true;
        if (step == TC_NATIVE_MOVED) {
            return true;
        }
        if (step == TC_NATIVE_FAILED) {
            fail_all_locked(comm);
            return true;
        }
        tc_native_complete_locked(comm, pop_locked(comm), TC_OK);
    }
    return moved;
}

static bool
is_idle_locked(const tc_native *comm)
{
    return comm->head == NULL && tc_native_p2p_is_idle_locked(comm);
}

static bool
progress_locked(tc_native *comm, uint64_t now_ns)
{
    bool moved = drain_inbox_locked(comm);

    moved = step_collectives_locked(comm) || moved;
    moved = tc_native_p2p_step_locked(comm) || moved;
    if (moved || is_idle_locked(comm)) {
        return moved;
    }
    if (now_ns != 0) {
        tc_native_look_locked(comm, now_ns);
        tc_native_p2p_look_locked(comm, now_ns);
    }
    if (tc_native_is_broken_locked(comm)) {
        fail_all_locked(comm);
        return true;
    }
    return false;
}

tc_status
tc_native_progress(void *ctx, uint64_t now_ns)
{
    tc_native *comm = ctx;
    bool moved;

    if (!try_lock(comm)) {
        return TC_PENDING;
    }
    moved = progress_locked(comm, now_ns);
    unlock(comm);
    return moved ? TC_OK : TC_PENDING;
}

tc_status
tc_native_engine_progress(void *ctx, uint64_t now_ns)
{
    tc_native *comm = ctx;
    bool moved;
    bool idle;

    if (!try_lock(comm)) {
        return TC_PENDING;
    }
    moved = progress_locked(comm, now_ns);
    idle = is_idle_locked(comm);
    unlock(comm);
    return moved ? TC_OK : idle ? TC_EXPIRED : TC_PENDING;
}

void
tc_native_detach(void *ctx, tc_op *op)
{
    tc_native *comm = ctx;

    (void)op;
    tc_engine_kick(comm->engine, &comm->source);
}

static void
set_deadline(tc_op *op)
{
    tc_native_op_of(op)->deadline_ns = tc_deadline_after(tc_clock_ns(), op->timeout_ns);
}

/* Steps a collective that was alone in the queue, in its caller. TC_PENDING: it is left
 * to whoever waits or to the engine. */
static tc_status
try_alone_locked(tc_native *comm, tc_op *op)
{
    int polls = op->call.async || comm->spins == 0 ? 1 : TRY_POLLS;
    int passes = op->call.async ? 1 : TRY_PASSES;

    for (int i = 0; i < polls && passes > 0; i++) {
        tc_native_step step = step_head_locked(comm);

        if (step == TC_NATIVE_DONE) {
            pop_locked(comm);
            record_end(comm, op, TC_OK);
            return TC_OK;
        }
        if (step == TC_NATIVE_FAILED) {
            (void)tc_native_is_broken_locked(comm);
            pop_locked(comm);
            record_end(comm, op, comm->broken);
            return tc_native_broken_error_locked(comm, op);
        }
        if (step == TC_NATIVE_MOVED) {
            i = -1;
            passes--;
        } else {
            tc_cpu_relax();
        }
    }
    set_deadline(op);
    return TC_PENDING;
}

static const tc_native_path *
pick_path(const tc_native *comm, const tc_call *call, uint64_t *bytes_p)
{
    return tc_native_fits_exchange(comm, call, bytes_p)    ? &tc_native_exchange_path
           : tc_native_fits_multicast(comm, call, bytes_p) ? &tc_native_multicast_path
           : tc_native_fits_direct(comm, call)             ? &tc_native_direct_path
                                                           : &tc_native_plan_path;
}

/* What only this backend can refuse; picks the path. */
static tc_status
prepare_collective(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);
    const tc_call *call = &op->call;

    nop->seq = 0;
    nop->reduce = NULL;
    nop->inside = false;
    nop->finished = false;
    nop->deadline_ns = TC_DEADLINE_NONE;
    if (tc_op_reduces(call->kind)) {
        TC_TRY(tc_reduce_find(call->dtype, call->redop, &nop->reduce, op->error));
    } else {
        op->call.redop = TC_REDOP_SUM; /* what is not used must not steer */
    }
    nop->path = pick_path(comm, call, &nop->bytes);
    return TC_OK;
}

static tc_status
check_process(const tc_native *comm, tc_op *op)
{
    if (!tc_engine_is_ours(comm->engine)) {
        return tc_error_set(op->error, TC_ERR_FORKED,
                            "%s on communicator '%s' in a forked child: only the "
                            "process that made a communicator can use it",
                            tc_op_name(op->call.kind), comm->name);
    }
    return TC_OK;
}

/* Leaves the operation to the queue. */
static tc_status
leave(tc_native *comm, tc_op *op)
{
    bool async = op->call.async;

    set_deadline(op);
    push_inbox(comm, op);
    if (async) {
        tc_engine_kick(comm->engine, &comm->source);
    }
    return TC_PENDING;
}

tc_status
tc_native_issue_collective(void *ctx, tc_op *op)
{
    tc_native *comm = ctx;
    bool async = op->call.async;
    tc_status status = TC_PENDING;

    TC_TRY(check_process(comm, op));
    TC_TRY(prepare_collective(comm, op));
    record_begin(comm, op);
    if (!try_lock(comm)) {
        return leave(comm, op);
    }
    drain_inbox_locked(comm);
    if (tc_native_is_broken_locked(comm)) {
        status = tc_native_broken_error_locked(comm, op);
        record_end(comm, op, status);
    } else {
        bool alone = comm->head == NULL;

        append_locked(comm, op);
        if (alone) {
            status = try_alone_locked(comm, op);
        } else {
            set_deadline(op);
        }
    }
    unlock(comm);
    if (status == TC_PENDING && async) {
        tc_engine_kick(comm->engine, &comm->source);
    }
    return status;
}

/* Posts a send, recv or batch and moves it in its caller. TC_PENDING: it is left to
 * whoever waits or to the engine, or it has failed and its work says so. */
static tc_status
try_p2p_locked(tc_native *comm, tc_op *op)
{
    tc_native_op *nop = tc_native_op_of(op);
    bool async = op->call.async;
    int polls = async || comm->spins == 0 ? 1 : TRY_POLLS;

    nop->inside = true;
    nop->deadline_ns = TC_DEADLINE_NONE;
    tc_native_p2p_post_locked(comm, op);
    for (int i = 0; i < polls && !nop->finished; i++) {
        if (!tc_native_p2p_step_locked(comm)) {
            tc_cpu_relax();
        }
    }
    nop->inside = false;
    if (!nop->finished) {
        set_deadline(op);
        return TC_PENDING;
    }
    /* What goes wrong with an asynchronous call shows at its wait. */
    if (nop->status != TC_OK && async) {
        comm->host->complete(op, nop->status);
        return TC_PENDING;
    }
    return nop->status;
}

tc_status
tc_native_issue_p2p(void *ctx, tc_op *op)
{
    tc_native *comm = ctx;
    tc_native_op *nop = tc_native_op_of(op);
    bool async = op->call.async;
    tc_status status;

    TC_TRY(check_process(comm, op));
    nop->seq = 0;
    nop->inside = false;
    nop->finished = false;
    record_begin(comm, op);
    if (!try_lock(comm)) {
        return leave(comm, op);
    }
    drain_inbox_locked(comm);
    if (tc_native_is_broken_locked(comm)) {
        status = tc_native_broken_error_locked(comm, op);
        record_end(comm, op, status);
    } else {
        status = try_p2p_locked(comm, op);
    }
    async = async && status == TC_PENDING && !nop->finished;
    unlock(comm);
    if (async) {
        tc_engine_kick(comm->engine, &comm->source);
    }
    return status;
}
