/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of tests: their content, calls that have to succeed, works. */
#ifndef TC_SUPPORT_MESSAGES_H
#define TC_SUPPORT_MESSAGES_H

#include <stdlib.h>

#include "base/clock.h"
#include "support/check.h"
#include "support/ranks.h"

#define EAGER (16u * 1024u)
#define TIMEOUT_S 60.0

/* What a message holds: a function of its sender's choice of seed. */
static inline void
fill(uint8_t *buf, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        buf[i] = (uint8_t)(i * 7 + (i >> 8) + seed * 31 + 1);
    }
}

static inline bool
holds(const uint8_t *buf, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        if (buf[i] != (uint8_t)(i * 7 + (i >> 8) + seed * 31 + 1)) {
            return false;
        }
    }
    return true;
}

static inline tc_call
send_call(void *buf, uint64_t bytes, int32_t dst, int32_t tag)
{
    return (tc_call){.kind = TC_OP_SEND,
                     .dtype = TC_UINT8,
                     .root = dst,
                     .tag = tag,
                     .count = bytes,
                     .in = buf};
}

static inline tc_call
recv_call(void *buf, uint64_t bytes, int32_t src, int32_t tag)
{
    return (tc_call){.kind = TC_OP_RECV,
                     .dtype = TC_UINT8,
                     .root = src,
                     .tag = tag,
                     .count = bytes,
                     .out = buf};
}

static inline void
expect_ok(const tc_test_rank *self, tc_status status, const tc_error *err)
{
    if (status != TC_OK) {
        fprintf(stderr, "rank %d: status %d: %s\n", self->rank, status, err->message);
        exit(1);
    }
}

static inline void
send_bytes(const tc_test_rank *self, tc_comm *comm, void *buf, uint64_t bytes,
           int32_t dst, int32_t tag)
{
    tc_call call = send_call(buf, bytes, dst, tag);
    tc_error err;

    expect_ok(self, tc_test_call(comm, &call, &err), &err);
}

static inline void
recv_bytes(const tc_test_rank *self, tc_comm *comm, void *buf, uint64_t bytes,
           int32_t src, int32_t tag)
{
    tc_call call = recv_call(buf, bytes, src, tag);
    tc_error err;

    expect_ok(self, tc_test_call(comm, &call, &err), &err);
}

/* NULL: the operation was over at once. */
static inline tc_work *
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

static inline tc_status
end(tc_work *work, tc_error *err)
{
    tc_status status;

    if (work == NULL) {
        return TC_OK;
    }
    status = tc_work_wait(work, TC_DEADLINE_NONE, NULL, err);
    tc_work_release(work);
    return status;
}

static inline void
end_ok(const tc_test_rank *self, tc_work *work)
{
    tc_error err = {0};

    expect_ok(self, end(work, &err), &err);
}

static inline void
barrier(const tc_test_rank *self, tc_comm *comm)
{
    tc_call call = {.kind = TC_OP_BARRIER};
    tc_error err;

    expect_ok(self, tc_test_call(comm, &call, &err), &err);
}

static inline void *
room(size_t bytes)
{
    void *at = malloc(bytes > 0 ? bytes : 1);

    CHECK(at != NULL);
    return at;
}

static inline void
finish(const tc_test_rank *self, tc_comm *comm)
{
    tc_error err;

    expect_ok(self, tc_comm_finalize(comm, NULL, &err), &err);
    tc_comm_release(comm);
}

/* Issues a synchronous call that nobody moves until it is waited for. */
static inline tc_work *
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

#endif
