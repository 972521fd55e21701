/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives between ranks that are threads: protocols, matching, ends. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "support/check.h"
#include "support/ranks.h"

#define EAGER (16u * 1024u)
#define TIMEOUT_S 60.0

/* What a message holds: a function of its sender's choice of seed. */
static void
fill(uint8_t *buf, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        buf[i] = (uint8_t)(i * 7 + (i >> 8) + seed * 31 + 1);
    }
}

static bool
holds(const uint8_t *buf, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        if (buf[i] != (uint8_t)(i * 7 + (i >> 8) + seed * 31 + 1)) {
            return false;
        }
    }
    return true;
}

static tc_call
send_call(void *buf, uint64_t bytes, int32_t dst, int32_t tag)
{
    return (tc_call){.kind = TC_OP_SEND,
                     .dtype = TC_UINT8,
                     .root = dst,
                     .tag = tag,
                     .count = bytes,
                     .in = buf};
}

static tc_call
recv_call(void *buf, uint64_t bytes, int32_t src, int32_t tag)
{
    return (tc_call){.kind = TC_OP_RECV,
                     .dtype = TC_UINT8,
                     .root = src,
                     .tag = tag,
                     .count = bytes,
                     .out = buf};
}

static void
expect_ok(const tc_test_rank *self, tc_status status, const tc_error *err)
{
    if (status != TC_OK) {
        fprintf(stderr, "rank %d: status %d: %s\n", self->rank, status, err->message);
        exit(1);
    }
}

static void
send_bytes(const tc_test_rank *self, tc_comm *comm, void *buf, uint64_t bytes,
           int32_t dst, int32_t tag)
{
    tc_call call = send_call(buf, bytes, dst, tag);
    tc_error err;

    expect_ok(self, tc_test_call(comm, &call, &err), &err);
}

static void
recv_bytes(const tc_test_rank *self, tc_comm *comm, void *buf, uint64_t bytes,
           int32_t src, int32_t tag)
{
    tc_call call = recv_call(buf, bytes, src, tag);
    tc_error err;

    expect_ok(self, tc_test_call(comm, &call, &err), &err);
}

static tc_work *
start(const tc_test_rank *self, tc_comm *comm, tc_call call, double timeout_s)
{
    tc_work *work = NULL;
    tc_error err = {0};
    tc_status status;

    call.async = true;
    status = tc_comm_issue(comm, &call, (uint64_t)(timeout_s * 1e9), &work, &err);
    if (status != TC_PENDING) {
        expect_ok(self, status, &err);
    }
    return work;
}

static tc_status
end(tc_work *work, tc_error *err)
{
    tc_status status = tc_work_wait(work, TC_DEADLINE_NONE, NULL, err);

    tc_work_release(work);
    return status;
}

static void
end_ok(const tc_test_rank *self, tc_work *work)
{
    tc_error err = {0};

    expect_ok(self, end(work, &err), &err);
}

static void
barrier(const tc_test_rank *self, tc_comm *comm)
{
    tc_call call = {.kind = TC_OP_BARRIER};
    tc_error err;

    expect_ok(self, tc_test_call(comm, &call, &err), &err);
}

static void *
room(size_t bytes)
{
    void *at = malloc(bytes > 0 ? bytes : 1);

    CHECK(at != NULL);
    return at;
}

static void
finish(const tc_test_rank *self, tc_comm *comm)
{
    tc_error err;

    expect_ok(self, tc_comm_finalize(comm, NULL, &err), &err);
    tc_comm_release(comm);
}

/* Every size around a border of the protocol, there and back. */
static void
body_sizes(tc_test_rank *self)
{
    static const size_t sizes[] = {
        0,          1,          7,          8,         63,        64,
        65,         1023,       1024,       4095,      4096,      4097,
        EAGER - 1,  EAGER,      EAGER + 1,  2 * EAGER, 65535,     65536,
        65537,      131072 - 1, 131072 + 1, 262143,    262144,    262145,
        1000003,    4u << 20,   0,          1,
    };
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    uint8_t *buf = room(4u << 20);

    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (self->rank == 0) {
            fill(buf, sizes[i], i);
            send_bytes(self, comm, buf, sizes[i], 1, 3);
            memset(buf, 0, sizes[i]);
            recv_bytes(self, comm, buf, sizes[i], 1, 4);
        } else {
            recv_bytes(self, comm, buf, sizes[i], 0, 3);
            CHECK(holds(buf, sizes[i], i));
            send_bytes(self, comm, buf, sizes[i], 0, 4);
        }
        CHECK(holds(buf, sizes[i], i));
    }
    free(buf);
    finish(self, comm);
}

/* More messages than any ring holds, all tags different, received last to first. */
static void
body_out_of_order(tc_test_rank *self)
{
    enum { COUNT = 48 };
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    size_t sizes[3] = {100, EAGER, 3 * EAGER + 5};
    tc_work *works[COUNT];
    uint8_t *buf = room(COUNT * sizes[2]);

    for (uint32_t i = 0; self->rank == 0 && i < COUNT; i++) {
        uint8_t *at = buf + i * sizes[2];

        fill(at, sizes[i % 3], i);
        works[i] =
            start(self, comm, send_call(at, sizes[i % 3], 1, (int32_t)i), TIMEOUT_S);
    }
    for (uint32_t i = 0; self->rank == 0 && i < COUNT; i++) {
        end_ok(self, works[i]);
    }
    for (uint32_t i = COUNT; self->rank == 1 && i-- > 0;) {
        memset(buf, 0, sizes[2]);
        recv_bytes(self, comm, buf, sizes[i % 3], 0, (int32_t)i);
        CHECK(holds(buf, sizes[i % 3], i));
    }
    free(buf);
    finish(self, comm);
}

/* Messages of one tag come in the order they were sent, small and large ones mixed. */
static void
body_order(tc_test_rank *self)
{
    enum { COUNT = 60 };
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    size_t most = 5 * EAGER;
    tc_work *works[COUNT];
    uint8_t *buf = room(COUNT * most);

    for (uint32_t i = 0; i < COUNT; i++) {
        uint8_t *at = buf + i * most;
        size_t bytes = i % 4 == 1 ? most : i % 4 == 2 ? 0 : i;

        if (self->rank == 0) {
            fill(at, bytes, i);
            works[i] = start(self, comm, send_call(at, bytes, 1, 9), TIMEOUT_S);
        } else {
            works[i] = start(self, comm, recv_call(at, bytes, 0, 9), TIMEOUT_S);
        }
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        size_t bytes = i % 4 == 1 ? most : i % 4 == 2 ? 0 : i;

        end_ok(self, works[i]);
        CHECK(holds(buf + i * most, bytes, i));
    }
    free(buf);
    finish(self, comm);
}

/* All ranks send small messages round the ring before anyone receives. */
static void
body_mutual_sends(tc_test_rank *self)
{
    enum { COUNT = 64 };
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    int32_t right = (self->rank + 1) % self->size;
    int32_t left = (self->rank + self->size - 1) % self->size;
    uint8_t *buf = room(EAGER);

    for (uint32_t i = 0; i < COUNT; i++) {
        fill(buf, EAGER, i + (uint32_t)self->rank);
        send_bytes(self, comm, buf, EAGER, right, 0);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        recv_bytes(self, comm, buf, EAGER, left, 0);
        CHECK(holds(buf, EAGER, i + (uint32_t)left));
    }
    free(buf);
    finish(self, comm);
}

/* 64 messages of 16 KiB are kept and 8 stay in the lane; the next waits until one of them
 * is received, and then arrives. */
static void
body_back_pressure(tc_test_rank *self)
{
    enum { FIT = 64 + 8, EXTRA = 5 };
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    uint8_t *buf = room(EAGER);
    uint8_t token = 0;

    if (self->rank == 0) {
        tc_work *works[EXTRA];

        for (uint32_t i = 0; i < FIT; i++) {
            fill(buf, EAGER, i);
            send_bytes(self, comm, buf, EAGER, 1, (int32_t)i);
        }
        fill(buf, EAGER, FIT);
        for (uint32_t i = 0; i < EXTRA; i++) {
            tc_call call = send_call(buf, EAGER, 1, FIT + (int32_t)i);

            works[i] = start(self, comm, call, TIMEOUT_S);
        }
        recv_bytes(self, comm, &token, 1, 1, 1);
        for (uint32_t i = 0; i < EXTRA; i++) {
            CHECK(tc_work_get_state(works[i]) == TC_WORK_INPROGRESS);
        }
        barrier(self, comm);
        for (uint32_t i = 0; i < EXTRA; i++) {
            end_ok(self, works[i]);
        }
        send_bytes(self, comm, &token, 1, 1, 1000);
    } else {
        /* Receives nothing of the flood while it is kept. */
        tc_work *late = start(self, comm, recv_call(&token, 1, 0, 1000), TIMEOUT_S);

        send_bytes(self, comm, &token, 1, 0, 1);
        barrier(self, comm);
        for (uint32_t i = 0; i < FIT + EXTRA; i++) {
            recv_bytes(self, comm, buf, EAGER, 0, (int32_t)i);
            CHECK(holds(buf, EAGER, i < FIT ? i : FIT));
        }
        end_ok(self, late);
    }
    free(buf);
    finish(self, comm);
}

static void
body_any_source(tc_test_rank *self)
{
    enum { EACH = 20 };
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    size_t bytes = self->ctx != NULL ? *(size_t *)self->ctx : 8;
    uint8_t *buf = room(bytes);
    int got[8] = {0};

    if (self->rank != 0) {
        for (uint32_t i = 0; i < EACH; i++) {
            fill(buf, bytes, (uint32_t)self->rank);
            send_bytes(self, comm, buf, bytes, 0, 5);
        }
    } else {
        for (int i = 0; i < EACH * (self->size - 1); i++) {
            int32_t from = 1;

            recv_bytes(self, comm, buf, bytes, TC_ANY_SOURCE, 5);
            while (from < self->size && !holds(buf, bytes, (uint32_t)from)) {
                from++;
            }
            CHECK(from < self->size);
            got[from]++;
        }
        for (int32_t r = 1; r < self->size; r++) {
            CHECK(got[r] == EACH);
        }
    }
    free(buf);
    finish(self, comm);
}

/* A recv from any rank and one from a given rank, posted in this order: the first message
 * is the first one's. */
static void
body_any_before_given(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    uint8_t a = 0;
    uint8_t b = 0;

    if (self->rank == 0) {
        tc_work *any = start(self, comm, recv_call(&a, 1, TC_ANY_SOURCE, 2), TIMEOUT_S);
        tc_work *given = start(self, comm, recv_call(&b, 1, 1, 2), TIMEOUT_S);

        barrier(self, comm);
        end_ok(self, any);
        end_ok(self, given);
        CHECK(a == 11 && b == 22);
    } else {
        barrier(self, comm);
        a = 11;
        b = 22;
        send_bytes(self, comm, &a, 1, 0, 2);
        send_bytes(self, comm, &b, 1, 0, 2);
    }
    finish(self, comm);
}

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

/* A large send that nobody receives ends alone; the recv that matches its envelope later
 * fails, whether it comes before or after the receiver has heard of the withdrawal. */
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

/* A batch in which everybody sends to and receives from everybody, large and small. */
static void
body_batches(tc_test_rank *self)
{
    enum { SIZES = 3, ROUNDS = 10 };
    static const size_t sizes[SIZES] = {8, EAGER, 20 * EAGER + 3};
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    size_t most = sizes[SIZES - 1];
    size_t parts = (size_t)(self->size - 1) * SIZES;
    uint8_t *out = room(parts * most);
    uint8_t *in = room(parts * most);
    tc_p2p *batch = room(2 * parts * sizeof(*batch));
    tc_work *works[ROUNDS];

    for (int round = 0; round < ROUNDS; round++) {
        tc_call call = {.kind = TC_OP_BATCH, .batch = batch};
        size_t at = 0;

        for (int32_t r = 0; r < self->size; r++) {
            for (size_t s = 0; r != self->rank && s < SIZES; s++, at++) {
                size_t bytes = sizes[s];

                fill(out + at * most, bytes, (uint32_t)(self->rank * 64 + (int)s));
                batch[2 * at] = (tc_p2p){TC_OP_SEND, TC_UINT8, r,
                                         (int32_t)s, bytes,    out + at * most};
                batch[2 * at + 1] = (tc_p2p){TC_OP_RECV, TC_UINT8, r,
                                             (int32_t)s, bytes,    in + at * most};
            }
        }
        call.batch_count = 2 * at;
        works[round] = start(self, comm, call, TIMEOUT_S);
        if (round % 2 == 0 || round == ROUNDS - 1) {
            end_ok(self, works[round]);
        } else {
            tc_call sync = {.kind = TC_OP_BARRIER};
            tc_error err;

            expect_ok(self, tc_test_call(comm, &sync, &err), &err);
            end_ok(self, works[round]);
        }
        at = 0;
        for (int32_t r = 0; r < self->size; r++) {
            for (size_t s = 0; r != self->rank && s < SIZES; s++, at++) {
                CHECK(holds(in + at * most, sizes[s], (uint32_t)(r * 64 + (int)s)));
            }
        }
    }
    free(batch);
    free(in);
    free(out);
    finish(self, comm);
}

/* One part of a batch fails; the batch ends when the other has arrived. */
static void
body_batch_error(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    size_t bytes = 3 * EAGER;
    uint8_t *buf = room(bytes);
    uint8_t small[8] = {0};
    tc_error err = {0};

    if (self->rank == 0) {
        tc_p2p batch[2] = {
            {TC_OP_RECV, TC_UINT8, 1, 1, 7, small},
            {TC_OP_RECV, TC_UINT8, 1, 2, bytes, buf},
        };
        tc_call call = {.kind = TC_OP_BATCH, .batch = batch, .batch_count = 2};
        tc_work *work = start(self, comm, call, TIMEOUT_S);

        barrier(self, comm);
        barrier(self, comm);
        CHECK(tc_work_get_state(work) == TC_WORK_INPROGRESS);
        barrier(self, comm);
        CHECK(end(work, &err) == TC_ERR_MISMATCH);
        CHECK(strstr(err.message, "8 uint8") && strstr(err.message, "7 uint8"));
        CHECK(holds(buf, bytes, 4));
    } else {
        barrier(self, comm);
        send_bytes(self, comm, small, 8, 0, 1);
        barrier(self, comm);
        barrier(self, comm);
        fill(buf, bytes, 4);
        send_bytes(self, comm, buf, bytes, 0, 2);
    }
    free(buf);
    finish(self, comm);
}

/* A pending recv does not hold up collectives, nor the reverse. */
static void
body_between_collectives(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, TIMEOUT_S);
    size_t bytes = 10 * EAGER;
    uint8_t *buf = room(bytes);
    int32_t other = 1 - self->rank;

    for (uint32_t i = 0; i < 20; i++) {
        float x = (float)self->rank;
        tc_call sum = {.kind = TC_OP_ALL_REDUCE,
                       .dtype = TC_FLOAT32,
                       .redop = TC_REDOP_SUM,
                       .count = 1,
                       .in = &x,
                       .out = &x};
        tc_work *recv = start(self, comm, recv_call(buf, bytes, other, 1), TIMEOUT_S);
        tc_work *reduce = start(self, comm, sum, TIMEOUT_S);
        uint8_t *mine = room(bytes);

        barrier(self, comm);
        if (reduce != NULL) {
            end_ok(self, reduce);
        }
        CHECK(x == 1.0f);
        CHECK(tc_work_get_state(recv) == TC_WORK_INPROGRESS);
        barrier(self, comm);
        fill(mine, bytes, i + (uint32_t)self->rank);
        send_bytes(self, comm, mine, bytes, other, 1);
        end_ok(self, recv);
        CHECK(holds(buf, bytes, i + (uint32_t)other));
        free(mine);
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

/* What a rank sent before it left counts also where there is no room yet to look at it. */
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
        tc_work *any = start(self, comm, recv_call(buf, 1, TC_ANY_SOURCE, 3), TIMEOUT_S);

        CHECK(tc_work_wait(given, 100 * TC_NSEC_PER_MSEC, NULL, &err) == TC_EXPIRED);
        CHECK(tc_work_get_state(any) == TC_WORK_INPROGRESS);
        for (int i = 0; i < FLOOD; i++) {
            recv_bytes(self, comm, buf, EAGER, 1, 1);
        }
        end_ok(self, given);
        CHECK(last == 77);
        CHECK(end(any, &err) == TC_ERR_PEER_CLOSED);
        CHECK(strstr(err.message, "recv from any rank tag 3: all other ranks have left"));
    }
    free(buf);
    finish(self, comm);
}

/* Issues a synchronous call that nobody moves until it is waited for. */
static tc_work *
start_idle(const tc_test_rank *self, tc_comm *comm, tc_call call)
{
    tc_work *work = NULL;
    tc_error err = {0};
    tc_status status = tc_comm_issue(comm, &call, 0, &work, &err);

    if (status != TC_PENDING) {
        expect_ok(self, status, &err);
        exit(1);
    }
    return work;
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
        tc_call call = victim_sends ? send_call(buf, MIDDLE, 0, 1)
                                    : recv_call(buf, MIDDLE, 0, 1);

        start_idle(self, comm, call);
        /* Issuing these moves a little each. */
        for (int32_t i = 0; i < 20; i++) {
            start_idle(self, comm, recv_call(&token, 1, 0, 2 + i));
        }
        raise(SIGKILL);
    } else if (self->rank == 0) {
        tc_call call = victim_sends ? recv_call(buf, MIDDLE, 2, 1)
                                    : send_call(buf, MIDDLE, 2, 1);

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
    size_t large = 3 * EAGER;

    tc_test_run_threads(2, body_sizes, NULL);
    tc_test_run_threads(2, body_out_of_order, NULL);
    tc_test_run_threads(2, body_order, NULL);
    tc_test_run_threads(2, body_mutual_sends, NULL);
    tc_test_run_threads(3, body_mutual_sends, NULL);
    tc_test_run_threads(2, body_back_pressure, NULL);
    tc_test_run_threads(4, body_any_source, NULL);
    tc_test_run_threads(4, body_any_source, &large);
    tc_test_run_threads(2, body_any_before_given, NULL);
    tc_test_run_threads(2, body_mismatch, NULL);
    tc_test_run_threads(3, body_recv_timeout, NULL);
    tc_test_run_threads(2, body_send_timeout, NULL);
    tc_test_run_threads(2, body_send_gone_before_recv, NULL);
    tc_test_run_threads(2, body_batches, NULL);
    tc_test_run_threads(4, body_batches, NULL);
    tc_test_run_threads(2, body_batch_error, NULL);
    tc_test_run_threads(2, body_between_collectives, NULL);
    tc_test_run_threads(3, body_closed, NULL);
    tc_test_run_threads(2, body_closed_behind_full_lane, NULL);
    tc_test_run_threads(2, body_send_timeout_in_the_middle, &(uint32_t){0});
    tc_test_run_threads(2, body_recv_timeout_in_the_middle, &(uint32_t){0});
    tc_test_run_processes(2, body_sizes, NULL, NULL);
    tc_test_run_processes(4, body_batches, NULL, NULL);
    test_killed();
    return 0;
}
