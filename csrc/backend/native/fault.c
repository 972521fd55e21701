/* SPDX-License-Identifier: BSD-3-Clause */
/* What breaks a communicator and how every member learns of it. */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/native/state.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/log.h"

enum { UNSET, WRITING, READABLE };

/* A member that died between claiming the word and writing the text must not hold up
 * the others. */
#define WRITER_YIELDS 10000

void
tc_native_break(tc_native *comm, tc_status status, int32_t culprit, const char *format,
                ...)
{
    tc_shm_state *state = tc_shm_segment_state(comm->segment);
    va_list args;

    if (!tc_cas_acq_rel_u32(&state->state, UNSET, WRITING)) {
        return;
    }
    va_start(args, format);
    vsnprintf(state->message, sizeof(state->message), format, args);
    va_end(args);
    state->status = status;
    state->rank = comm->rank;
    state->culprit = culprit;
    tc_exchange_acq_rel_u32(&state->state, READABLE);
    for (int32_t r = 0; r < comm->size; r++) {
        tc_bell_ring(&comm->segment->pages[r]->bell);
    }
    TC_LOG(NATIVE, INFO, "communicator '%s' broken by rank %d: %.300s", comm->name,
           comm->rank, state->message);
}

static void
read_cause(tc_native *comm, const tc_shm_state *state)
{
    /* A peer wrote the text: bound it and end it here. */
    char text[400];

    memcpy(text, state->message, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    tc_error_set(&comm->cause, (tc_status)state->status, "%s (found by rank %d)", text,
                 state->rank);
    comm->broken = comm->cause.status < 0 ? comm->cause.status : TC_ERR_BROKEN;
}

bool
tc_native_is_broken_locked(tc_native *comm)
{
    const tc_shm_state *state = tc_shm_segment_state(comm->segment);
    uint32_t word;

    if (comm->broken != TC_OK) {
        return true;
    }
    word = tc_load_acquire_u32(&state->state);
    if (word == UNSET) {
        return false;
    }
    for (int i = 0; word == WRITING && i < WRITER_YIELDS; i++) {
        sched_yield();
        word = tc_load_acquire_u32(&state->state);
    }
    if (word == READABLE) {
        read_cause(comm, state);
    } else {
        comm->broken = TC_ERR_BROKEN;
        tc_error_set(&comm->cause, TC_ERR_BROKEN,
                     "a member died while it reported a fault");
    }
    return true;
}

tc_status
tc_native_broken_error_locked(tc_native *comm, tc_op *op)
{
    return tc_error_set(op->error, comm->broken,
                        "%s on communicator '%s', rank %d of %d: %s",
                        tc_op_name(op->call.kind), comm->name, comm->rank, comm->size,
                        comm->cause.message);
}

/* "all_reduce of 8 float32 with SUM, collective 17". */
static void
describe_started(tc_op *op, char *text, size_t capacity)
{
    char call[128];

    tc_native_describe(op, call, sizeof(call));
    snprintf(text, capacity, "%s, collective %llu", call,
             (unsigned long long)tc_native_op_of(op)->seq);
}

static bool
has_closed(const tc_native *comm, int32_t peer)
{
    return tc_load_acquire_u32(&tc_shm_segment_rank(comm->segment, peer)->finalized) !=
               0 ||
           tc_load_acquire_u32(&comm->segment->pages[peer]->closed) != 0;
}

bool
tc_native_peer_is_gone(const tc_native *comm, int32_t peer)
{
    return peer >= 0 &&
           (tc_page_is_dead(comm->segment->pages[peer]) || has_closed(comm, peer));
}

void
tc_native_report_gone(tc_native *comm, tc_op *op, int32_t peer)
{
    int32_t pid = comm->segment->pages[peer]->pid;
    char call[192];

    describe_started(op, call, sizeof(call));
    if (has_closed(comm, peer)) {
        tc_native_break(
            comm, TC_ERR_PEER_CLOSED, peer,
            "rank %d (pid %d) has left the communicator and is needed in %s", peer, pid,
            call);
    } else {
        tc_native_break(comm, TC_ERR_PEER_DIED, peer, "rank %d (pid %d) died in %s",
                        peer, pid, call);
    }
}

/* "1, 3" of the ranks that have not called this collective. */
static int
list_missing(const tc_native *comm, uint64_t seq, char *text, size_t capacity)
{
    int missing = 0;
    size_t used = 0;

    text[0] = '\0';
    for (int32_t r = 0; r < comm->size; r++) {
        if (r == comm->rank || tc_native_has_arrived(comm, seq, r)) {
            continue;
        }
        if (used < capacity) {
            int n = snprintf(text + used, capacity - used, "%s%d",
                             missing > 0 ? ", " : "", r);

            used += n > 0 ? (size_t)n : 0;
        }
        missing++;
    }
    return missing;
}

static void
report_timeout(tc_native *comm, tc_op *op)
{
    const tc_native_op *nop = tc_native_op_of(op);
    double seconds = (double)op->timeout_ns / TC_NSEC_PER_SEC;
    char call[192];
    char ranks[128];
    int missing;

    describe_started(op, call, sizeof(call));
    missing = list_missing(comm, nop->seq, ranks, sizeof(ranks));
    if (missing > 0) {
        tc_native_break(comm, TC_ERR_TIMEOUT, -1,
                        "%s timed out after %.3f s: rank%s %s had not called it", call,
                        seconds, missing > 1 ? "s" : "", ranks);
    } else {
        char step[128] = "";

        if (nop->path == &tc_native_plan_path && tc_run_current(comm->run) >= 0) {
            uint32_t at = (uint32_t)tc_run_current(comm->run);

            tc_plan_describe(&comm->plan.steps[at], at, step, sizeof(step));
        }
        tc_native_break(comm, TC_ERR_TIMEOUT, nop->peer,
                        "%s timed out after %.3f s waiting for rank %d%s%s", call,
                        seconds, nop->peer, step[0] != '\0' ? " in " : "", step);
    }
}

/* A call that was issued but whose turn has not come. */
static void
report_queued_timeout(tc_native *comm, tc_op *op)
{
    char mine[128];
    char ahead[192];

    tc_native_describe(op, mine, sizeof(mine));
    describe_started(comm->head, ahead, sizeof(ahead));
    tc_native_break(comm, TC_ERR_TIMEOUT, -1,
                    "%s timed out after %.3f s in the queue behind %s", mine,
                    (double)op->timeout_ns / TC_NSEC_PER_SEC, ahead);
}

void
tc_native_look_locked(tc_native *comm, uint64_t now_ns)
{
    for (int32_t r = 0; comm->head != NULL && r < comm->size; r++) {
        if (r != comm->rank && tc_native_call_differs(comm, comm->head, r)) {
            tc_native_mismatch_locked(comm, comm->head, r);
            return;
        }
    }
    for (tc_op *op = comm->head; op != NULL; op = op->next) {
        if (now_ns >= tc_native_op_of(op)->deadline_ns) {
            if (op == comm->head) {
                report_timeout(comm, op);
            } else {
                report_queued_timeout(comm, op);
            }
            return;
        }
    }
}
