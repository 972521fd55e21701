/* SPDX-License-Identifier: BSD-3-Clause */
/* How sends and receives end otherwise: mismatches, deadlines, ranks that are gone. */
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/atomic.h"
#include "support/messages.h"

/* Count or dtype differ: both sides' values in the error, and the next pair works. */
static void
body_mismatch(tc_test_rank *self)
{
    static const struct {
        uint64_t sent;
        uint64_t wanted;
        tc_dtype sent_as;
        tc_dtype wanted_as;
        const char *sent_text;
        const char *wanted_text;
    } cases[] = {
        {4, 8, TC_FLOAT32, TC_FLOAT32, "4 float32", "8 float32"},
        {8, 8, TC_FLOAT32, TC_INT32, "8 float32", "8 int32"},
        {0, 1, TC_FLOAT32, TC_FLOAT32, "0 float32", "1 float32"},
        {EAGER, EAGER / 2, TC_FLOAT32, TC_FLOAT32, "16384 float32", "8192 float32"},
        {EAGER, EAGER, TC_FLOAT32, TC_INT32, "16384 float32", "16384 int32"},
        {2, EAGER, TC_FLOAT32, TC_FLOAT32, "2 float32", "16384 float32"},
        {EAGER, 2, TC_FLOAT32, TC_FLOAT32, "16384 float32", "2 float32"},
    };
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    uint8_t *buf = room(EAGER * 4);

    memset(buf, 0, EAGER * 4);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tc_error err = {0};
        tc_status status;
        tc_call call;

        if (self->rank == 0) {
            call = send_call(buf, cases[i].sent, 1, 6);
            call.dtype = cases[i].sent_as;
            status = tc_test_call(comm, &call, &err);
            CHECK(cases[i].sent * 4 <= EAGER ? status == TC_OK
                                             : status == TC_ERR_MISMATCH);
        } else {
            call = recv_call(buf, cases[i].wanted, 0, 6);
            call.dtype = cases[i].wanted_as;
            status = tc_test_call(comm, &call, &err);
            CHECK(status == TC_ERR_MISMATCH);
        }
        if (status != TC_OK) {
            CHECK(strstr(err.message, cases[i].sent_text) != NULL);
            CHECK(strstr(err.message, cases[i].wanted_text) != NULL);
        }
        if (self->rank == 0) {
            fill(buf, 40, 1);
            send_bytes(self, comm, buf, 40, 1, 6);
        } else {
            recv_bytes(self, comm, buf, 40, 0, 6);
            CHECK(holds(buf, 40, 1));
        }
    }
    free(buf);
    finish(self, comm);
}

/* A recv that nobody sends to ends alone; the pair and others go on. */
static void
body_recv_timeout(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    uint8_t buf[64];
    tc_error err = {0};

    if (self->rank == 0) {
        tc_work *work = start(self, comm, recv_call(buf, 64, 1, 7), 0.05);

        CHECK(end(work, &err) == TC_ERR_TIMEOUT);
        CHECK(strstr(err.message, "recv from rank 1 tag 7 timed out after 0.050 s: "
                                  "nothing has arrived") != NULL);
        work = start(self, comm, recv_call(buf, 64, TC_ANY_SOURCE, 7), 0.05);
        CHECK(end(work, &err) == TC_ERR_TIMEOUT);
        CHECK(strstr(err.message, "recv from any rank tag 7 timed out") != NULL);
    }
    barrier(self, comm);
    if (self->rank == 1) {
        fill(buf, 64, 3);
        send_bytes(self, comm, buf, 64, 0, 7);
    } else if (self->rank == 0) {
        recv_bytes(self, comm, buf, 64, 1, 7);
        CHECK(holds(buf, 64, 3));
    }
    finish(self, comm);
}

/* A large send that nobody receives ends alone; the recv that matches its envelope
 * later fails, whether it comes before or after the receiver has heard of the
 * withdrawal. */
static void
body_send_timeout(tc_test_rank *self)
{
    enum { MANY = 40 };
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    size_t bytes = 4 * EAGER;
    uint8_t *buf = room(bytes);
    tc_error err = {0};
    uint8_t token = 0;

    if (self->rank == 0) {
        for (int i = 0; i < MANY; i++) {
            tc_work *work = start(self, comm, send_call(buf, bytes, 1, 8), 0.01);

            CHECK(end(work, &err) == TC_ERR_TIMEOUT);
            CHECK(strstr(err.message, "send of 65536 bytes to rank 1 tag 8 timed out "
                                      "after 0.010 s: it was not received") != NULL);
            /* Lets the receiver hear of it, so that the offers never run out. */
            send_bytes(self, comm, &token, 1, 1, 9);
            recv_bytes(self, comm, &token, 1, 1, 9);
        }
        barrier(self, comm);
        fill(buf, bytes, 5);
        send_bytes(self, comm, buf, bytes, 1, 10);
        send_bytes(self, comm, buf, bytes, 1, 8);
    } else {
        for (int i = 0; i < MANY; i++) {
            recv_bytes(self, comm, &token, 1, 0, 9);
            send_bytes(self, comm, &token, 1, 0, 9);
        }
        barrier(self, comm);
        recv_bytes(self, comm, buf, bytes, 0, 10);
        CHECK(holds(buf, bytes, 5));
        for (int i = 0; i < MANY; i++) {
            tc_call call = recv_call(buf, bytes, 0, 8);

            CHECK(tc_test_call(comm, &call, &err) == TC_ERR_PEER_GAVE_UP);
            CHECK(strstr(err.message, "rank 0 gave its send up") != NULL);
        }
        memset(buf, 0, bytes);
        recv_bytes(self, comm, buf, bytes, 0, 8);
        CHECK(holds(buf, bytes, 5));
    }
    free(buf);
    finish(self, comm);
}

/* The send has ended before the receiver has looked into its lane at all. */
static void
body_send_gone_before_recv(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    size_t bytes = 64 * EAGER;
    uint8_t *buf = room(bytes);
    tc_error err = {0};

    if (self->rank == 0) {
        tc_work *work = start(self, comm, send_call(buf, bytes, 1, 8), 0.01);

        CHECK(end(work, &err) == TC_ERR_TIMEOUT);
        barrier(self, comm);
        fill(buf, bytes, 6);
        send_bytes(self, comm, buf, bytes, 1, 8);
    } else {
        tc_call call = recv_call(buf, bytes, 0, 8);

        barrier(self, comm);
        CHECK(tc_test_call(comm, &call, &err) == TC_ERR_PEER_GAVE_UP);
        recv_bytes(self, comm, buf, bytes, 0, 8);
        CHECK(holds(buf, bytes, 6));
    }
    free(buf);
    finish(self, comm);
}

/* What a rank sent before it left is received; what it did not send ends with an error
 * of that recv alone, and so do sends to it. */
static void
body_closed(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    uint8_t buf[100];
    tc_error err = {0};

    if (self->rank == 2) {
        fill(buf, 100, 2);
        send_bytes(self, comm, buf, 100, 0, 1);
        finish(self, comm);
        return;
    }
    if (self->rank == 0) {
        tc_call more = recv_call(buf, 100, 2, 1);
        tc_call send = send_call(buf, 100, 2, 1);

        recv_bytes(self, comm, buf, 100, 2, 1);
        CHECK(holds(buf, 100, 2));
        CHECK(tc_test_call(comm, &more, &err) == TC_ERR_PEER_CLOSED);
        CHECK(strstr(err.message, "recv from rank 2 tag 1") != NULL);
        CHECK(tc_test_call(comm, &send, &err) == TC_ERR_PEER_CLOSED);
        send_bytes(self, comm, buf, 100, 1, 1);
    } else {
        recv_bytes(self, comm, buf, 100, 0, 1);
    }
    finish(self, comm);
}

/* What a rank sent before it left counts also where there is no room yet to look at it.
 */
static void
body_closed_behind_full_lane(tc_test_rank *self)
{
    enum { FLOOD = 64 + 7 };
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    uint8_t *buf = room(EAGER);
    uint8_t last = 0;
    tc_error err;

    if (self->rank == 1) {
        memset(buf, 0, EAGER);
        for (int i = 0; i < FLOOD; i++) {
            send_bytes(self, comm, buf, EAGER, 0, 1);
        }
        last = 77;
        send_bytes(self, comm, &last, 1, 0, 2);
    } else {
        tc_work *given = start(self, comm, recv_call(&last, 1, 1, 2), TIMEOUT_S);
        tc_work *any =
            start(self, comm, recv_call(buf, 1, TC_ANY_SOURCE, 3), TIMEOUT_S);

        CHECK(tc_work_wait(given, 100 * TC_NSEC_PER_MSEC, NULL, &err) == TC_EXPIRED);
        CHECK(tc_work_get_state(any) == TC_WORK_INPROGRESS);
        for (int i = 0; i < FLOOD; i++) {
            recv_bytes(self, comm, buf, EAGER, 1, 1);
        }
        end_ok(self, given);
        CHECK(last == 77);
        CHECK(end(any, &err) == TC_ERR_PEER_CLOSED);
        CHECK(
            strstr(err.message, "recv from any rank tag 3: all other ranks have left"));
    }
    free(buf);
    finish(self, comm);
}

/* Threads only: goes on when all came to a stage, without moving the communicator. */
static void
reach(tc_test_rank *self, uint32_t stage)
{
    uint32_t *reached = self->ctx;

    tc_fetch_add_seq_cst_u32(reached, 1);
    while (tc_load_seq_cst_u32(reached) < stage * (uint32_t)self->size) {
        sched_yield();
    }
}

#define MIDDLE (64u << 20)

/* The receiver takes a few pieces and then nothing; the send ends alone, the recv with
 * what came of it, and the same pair goes on. */
static void
body_send_timeout_in_the_middle(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    uint8_t *buf = calloc(1, MIDDLE);
    tc_error err = {0};
    uint8_t token = 0;

    CHECK(buf != NULL);
    if (self->rank == 0) {
        tc_work *work = start(self, comm, send_call(buf, MIDDLE, 1, 1), 0.5);

        send_bytes(self, comm, &token, 1, 1, 2);
        CHECK(end(work, &err) == TC_ERR_TIMEOUT);
        CHECK(strstr(err.message, "timed out after 0.500 s: only ") != NULL);
        reach(self, 1);
        fill(buf, 5 * EAGER, 8);
        send_bytes(self, comm, buf, 5 * EAGER, 1, 1);
    } else {
        tc_work *work;

        /* Sent behind the envelope: that is here when this is. */
        recv_bytes(self, comm, &token, 1, 0, 2);
        work = start_idle(self, comm, recv_call(buf, MIDDLE, 0, 1));
        reach(self, 1);
        CHECK(end(work, &err) == TC_ERR_PEER_GAVE_UP);
        CHECK(strstr(err.message, "rank 0 gave its send up after ") != NULL);
        CHECK(strstr(err.message, "after 0 of") == NULL);
        recv_bytes(self, comm, buf, 5 * EAGER, 0, 1);
        CHECK(holds(buf, 5 * EAGER, 8));
    }
    free(buf);
    finish(self, comm);
}

/* The sender stops after a few pieces; the recv ends alone, what comes later is thrown
 * away without touching its buffer, the send succeeds, and the same pair goes on. */
static void
body_recv_timeout_in_the_middle(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    uint8_t *buf = calloc(1, MIDDLE);
    tc_error err = {0};
    uint8_t token = 0;

    CHECK(buf != NULL);
    if (self->rank == 0) {
        tc_work *work = start_idle(self, comm, send_call(buf, MIDDLE, 1, 1));
        tc_work *poll;

        reach(self, 1);
        reach(self, 2);
        /* Issuing it moves a little. */
        poll = start_idle(self, comm, recv_call(&token, 1, 1, 2));
        reach(self, 3);
        reach(self, 4);
        end_ok(self, work);
        end_ok(self, poll);
        fill(buf, 5 * EAGER, 9);
        send_bytes(self, comm, buf, 5 * EAGER, 1, 1);
    } else {
        tc_work *work;

        reach(self, 1);
        work = start(self, comm, recv_call(buf, MIDDLE, 0, 1), 0.5);
        reach(self, 2);
        reach(self, 3);
        CHECK(end(work, &err) == TC_ERR_TIMEOUT);
        CHECK(strstr(err.message, "of 67108864 bytes have arrived") != NULL);
        CHECK(strstr(err.message, ": 0 of") == NULL);
        free(buf); /* the sanitizer tells who still writes there */
        buf = room(5 * EAGER);
        reach(self, 4);
        send_bytes(self, comm, &token, 1, 0, 2);
        recv_bytes(self, comm, buf, 5 * EAGER, 0, 1);
        CHECK(holds(buf, 5 * EAGER, 9));
    }
    free(buf);
    finish(self, comm);
}

/* The peer is killed in the middle of a message, in either direction; everybody learns
 * who it was. */
static void
body_killed(tc_test_rank *self)
{
    bool victim_sends = self->ctx != NULL;
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    uint8_t *buf = calloc(1, MIDDLE);
    tc_error err = {0};
    uint8_t token = 0;

    CHECK(buf != NULL);
    if (self->rank == 2) {
        tc_call call =
            victim_sends ? send_call(buf, MIDDLE, 0, 1) : recv_call(buf, MIDDLE, 0, 1);

        start_idle(self, comm, call);
        /* Issuing these moves a little each. */
        for (int32_t i = 0; i < 20; i++) {
            start_idle(self, comm, recv_call(&token, 1, 0, 2 + i));
        }
        raise(SIGKILL);
    } else if (self->rank == 0) {
        tc_call call =
            victim_sends ? recv_call(buf, MIDDLE, 2, 1) : send_call(buf, MIDDLE, 2, 1);

        CHECK(tc_test_call(comm, &call, &err) == TC_ERR_PEER_DIED);
        CHECK(strstr(err.message, "rank 2 (pid ") != NULL);
        CHECK(strstr(err.message, "died in ") != NULL);
    } else {
        tc_call call = recv_call(&token, 1, TC_ANY_SOURCE, 1);

        CHECK(tc_test_call(comm, &call, &err) == TC_ERR_PEER_DIED);
        CHECK(strstr(err.message, "rank 2 (pid ") != NULL);
        call = send_call(&token, 1, 2, 1);
        CHECK(tc_test_call(comm, &call, &err) == TC_ERR_PEER_DIED);
    }
    tc_comm_release(comm);
    free(buf);
}

static void
test_killed(void)
{
    int yes = 1;

    for (int i = 0; i < 10; i++) {
        int statuses[3];

        tc_test_run_processes(3, body_killed, i % 2 == 0 ? &yes : NULL, statuses);
        CHECK(WIFEXITED(statuses[0]) && WEXITSTATUS(statuses[0]) == 0);
        CHECK(WIFEXITED(statuses[1]) && WEXITSTATUS(statuses[1]) == 0);
        CHECK(WIFSIGNALED(statuses[2]) && WTERMSIG(statuses[2]) == SIGKILL);
    }
}

int
main(void)
{
    tc_test_run_threads(2, body_mismatch, NULL);
    tc_test_run_threads(3, body_recv_timeout, NULL);
    tc_test_run_threads(2, body_send_timeout, NULL);
    tc_test_run_threads(2, body_send_gone_before_recv, NULL);
    tc_test_run_threads(3, body_closed, NULL);
    tc_test_run_threads(2, body_closed_behind_full_lane, NULL);
    tc_test_run_threads(2, body_send_timeout_in_the_middle, &(uint32_t){0});
    tc_test_run_threads(2, body_recv_timeout_in_the_middle, &(uint32_t){0});
    test_killed();
    return 0;
}
