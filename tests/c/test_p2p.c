/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives between ranks: sizes, order, matching, batches, collectives. */
#include <string.h>

#include "support/messages.h"

/* Every size around a border of the protocol, there and back. */
static void
body_sizes(tc_test_rank *self)
{
    static const size_t sizes[] = {
        0,         1,         7,      8,       63,       64,         65,
        1023,      1024,      4095,   4096,    4097,     EAGER - 1,  EAGER,
        EAGER + 1, 2 * EAGER, 65535,  65536,   65537,    131072 - 1, 131072 + 1,
        262143,    262144,    262145, 1000003, 4u << 20, 0,          1,
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

/* 64 messages of 16 KiB are kept and 8 stay in the lane; the next waits until one of
 * them is received, and then arrives. */
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

/* A recv from any rank and one from a given rank, posted in this order: the first
 * message is the first one's. */
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
    tc_test_run_threads(2, body_batches, NULL);
    tc_test_run_threads(4, body_batches, NULL);
    tc_test_run_threads(2, body_batch_error, NULL);
    tc_test_run_threads(2, body_between_collectives, NULL);
    tc_test_run_processes(2, body_sizes, NULL, NULL);
    tc_test_run_processes(4, body_batches, NULL, NULL);
    return 0;
}
