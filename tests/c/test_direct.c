/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of buffers in the heap: read in place where all can, the same bits where
 * not, and buffers that are their user's again when the call is done. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/memory.h"
#include "support/check.h"
#include "support/ranks.h"

enum {
    ELEMS = 300007, /* float32 of a block, not a multiple of anything */
    SMALL = 1000, /* of a block: less than what is worth it */
    ROUNDS = 6,
};

/* Where a rank's buffers lie. */
typedef enum places {
    PRIVATE,
    HEAP,
    HEAP_BUT_OF_RANK_1,
    HEAP_IN_PLACE_ON_RANK_0, /* out is in, where the operation allows it */
} places;

/* Buffers for one call: blocks of all ranks on either side. */
typedef struct buffers {
    tc_memory in;
    tc_memory out;
    size_t bytes;
} buffers;

static void
free_private(void *ctx)
{
    free(ctx);
}

static tc_memory
take(tc_comm *comm, size_t bytes, bool heap)
{
    tc_memory memory = {0};
    tc_error err;

    if (heap) {
        CHECK(tc_comm_memory_alloc(comm, bytes, &memory, &err) == TC_OK);
    } else {
        memory.ptr = malloc(bytes);
        memory.ctx = memory.ptr;
        memory.release = free_private;
    }
    CHECK(memory.ptr != NULL);
    return memory;
}

static buffers
make_buffers(tc_comm *comm, places where, uint64_t elems)
{
    int32_t rank = tc_comm_rank(comm);
    bool heap = where != PRIVATE && !(where == HEAP_BUT_OF_RANK_1 && rank == 1);
    buffers b = {.bytes = elems * (size_t)tc_comm_size(comm) * sizeof(float)};

    b.in = take(comm, b.bytes, heap);
    b.out = take(comm, b.bytes, heap);
    return b;
}

static void
free_buffers(buffers *b)
{
    b->in.release(b->in.ctx);
    b->out.release(b->out.ctx);
}

/* Of very different size, so that another order of adding gives other bits. */
static void
fill(buffers *b, int32_t rank, int round)
{
    float *in = b->in.ptr;
    uint32_t x = (uint32_t)rank * 77777 + (uint32_t)round;

    for (size_t i = 0; i < b->bytes / sizeof(float); i++) {
        x = x * 1664525 + 1013904223;
        in[i] = (float)((int32_t)(x >> 8) - (1 << 23)) * (float)(1 << (x & 15));
    }
    memset(b->out.ptr, 0x5a, b->bytes);
}

static tc_call
make_call(tc_op_kind kind, buffers *b, uint64_t elems, int32_t size, bool in_place)
{
    tc_call call = {.kind = kind, .dtype = TC_FLOAT32, .redop = TC_REDOP_SUM};

    call.count = elems;
    switch (kind) {
    case TC_OP_ALL_REDUCE:
        call.count = elems * (uint64_t)size;
        call.in = in_place ? b->out.ptr : b->in.ptr;
        call.out = b->out.ptr;
        break;
    case TC_OP_ALL_GATHER_SINGLE:
        call.in = b->in.ptr;
        call.out_blocks = (tc_blocks){.base = b->out.ptr, .count = elems};
        break;
    default:
        call.in_blocks = (tc_blocks){.base = b->in.ptr, .count = elems};
        call.out = b->out.ptr;
        break;
    }
    return call;
}

static size_t
out_bytes(const tc_call *call, const buffers *b)
{
    return call->kind == TC_OP_REDUCE_SCATTER_SINGLE ? call->count * sizeof(float)
                                                     : b->bytes;
}

static void
run(tc_comm *comm, const tc_call *call)
{
    tc_error err;

    if (tc_test_call(comm, call, &err) != TC_OK) {
        fprintf(stderr, "rank %d: %s\n", tc_comm_rank(comm), err.message);
        CHECK(false);
    }
}

/* Regions of others that this process has mapped: only for reading. */
static int
count_mapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;

    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count +=
            strstr(line, "torchcomms-heap") != NULL && strstr(line, "r--s") != NULL;
    }
    fclose(maps);
    return count;
}

/* Round after round in the same buffers, written to again as soon as a call is done:
 * whoever still read them would see it. */
static void
compare(tc_comm *comm, tc_op_kind kind, places where, uint64_t elems)
{
    int32_t rank = tc_comm_rank(comm);
    int32_t size = tc_comm_size(comm);
    buffers b = make_buffers(comm, where, elems);
    buffers want = make_buffers(comm, PRIVATE, elems);
    bool in_place = where == HEAP_IN_PLACE_ON_RANK_0 && rank == 0;
    tc_call call = make_call(kind, &b, elems, size, in_place);
    tc_call private = make_call(kind, &want, elems, size, false);

    for (int round = 0; round < ROUNDS; round++) {
        fill(&b, rank, round);
        if (in_place) {
            memcpy(b.out.ptr, b.in.ptr, b.bytes);
        }
        run(comm, &call);
        memset(b.in.ptr, 0x11, b.bytes);
        fill(&want, rank, round);
        run(comm, &private);
        CHECK(memcmp(b.out.ptr, want.out.ptr, out_bytes(&call, &b)) == 0);
    }
    free_buffers(&b);
    free_buffers(&want);
}

static const tc_op_kind kinds[] = {TC_OP_ALL_REDUCE, TC_OP_ALL_GATHER_SINGLE,
                                   TC_OP_REDUCE_SCATTER_SINGLE};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void
everywhere(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60.0);
    tc_error err;

    for (int k = 0; k < KINDS; k++) {
        compare(comm, kinds[k], PRIVATE, ELEMS);
        compare(comm, kinds[k], HEAP, SMALL);
    }
    for (int k = 0; k < KINDS && self->size > 1; k++) {
        compare(comm, kinds[k], HEAP_BUT_OF_RANK_1, ELEMS);
    }
    CHECK(count_mapped() == 0);
    compare(comm, TC_OP_ALL_REDUCE, HEAP_IN_PLACE_ON_RANK_0, ELEMS);
    for (int k = 0; k < KINDS; k++) {
        compare(comm, kinds[k], HEAP, ELEMS);
    }
    CHECK(count_mapped() == self->size - 1);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

/* From now on this process opens no file. */
static void
deny_open(void)
{
    struct sock_filter code_of[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code_of) / sizeof(*code_of),
                                 .filter = code_of};

    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* One rank may not look at the others' descriptors: all do without. */
static void
one_cannot_map(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60.0);
    tc_error err;

    if (self->rank == self->size - 1) {
        deny_open();
    }
    for (int k = 0; k < KINDS; k++) {
        compare(comm, kinds[k], HEAP, ELEMS);
    }
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

/* The last rank dies while a call is under way, the others are told. */
static void
one_dies(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60.0);
    buffers b = make_buffers(comm, HEAP, 8 * ELEMS);
    tc_call call = make_call(TC_OP_ALL_REDUCE, &b, 8 * ELEMS, self->size, false);
    bool victim = self->rank == self->size - 1;
    tc_status status = TC_OK;
    tc_work *work = NULL;
    tc_error err;

    memset(b.in.ptr, 0, b.bytes);
    for (int round = 0; round < 3; round++) {
        run(comm, &call);
    }
    if (victim) {
        call.async = true;
        (void)tc_comm_issue(comm, &call, 0, &work, &err);
        kill(getpid(), SIGKILL);
    }
    while (status == TC_OK) { /* it may have got as far as the end of one */
        status = tc_test_call(comm, &call, &err);
    }
    CHECK(status == TC_ERR_PEER_DIED);
    CHECK(strstr(err.message, "rank 2") != NULL);
    free_buffers(&b);
    tc_comm_release(comm);
}

/* Other calls under the same number are found before anything is read. */
static void
ranks_disagree(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60.0);
    buffers b = make_buffers(comm, HEAP, ELEMS);
    tc_op_kind kind = self->rank == 0 ? TC_OP_ALL_REDUCE : TC_OP_REDUCE_SCATTER_SINGLE;
    tc_call call = make_call(kind, &b, ELEMS, self->size, false);
    tc_error err;

    memset(b.in.ptr, 0, b.bytes);
    CHECK(tc_test_call(comm, &call, &err) < 0);
    CHECK(strstr(err.message, "disagree on collective 1") != NULL);
    free_buffers(&b);
    tc_comm_release(comm);
}

int
main(void)
{
    int statuses[3];

    for (int32_t size = 1; size <= 4; size++) {
        tc_test_run_processes(size, everywhere, NULL, NULL);
    }
    tc_test_run_processes(3, one_cannot_map, NULL, NULL);
    tc_test_run_processes(3, one_dies, NULL, statuses);
    for (int i = 0; i < 2; i++) {
        CHECK(WIFEXITED(statuses[i]) && WEXITSTATUS(statuses[i]) == 0);
    }
    CHECK(WIFSIGNALED(statuses[2]) && WTERMSIG(statuses[2]) == SIGKILL);
    tc_test_run_processes(2, ranks_disagree, NULL, NULL);
    return 0;
}
