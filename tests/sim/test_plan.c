/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans without running them: shares, blocks, step counts, what is refused. */
#include "coll/plan.h"

#include <string.h>

#include "base/dtype.h"
#include "support/check.h"

static void
check_share(uint64_t count, int32_t size)
{
    uint64_t next = 0;
    uint64_t longest = 0;
    uint64_t shortest = UINT64_MAX;

    for (int32_t r = 0; r < size; r++) {
        uint64_t offset;
        uint64_t share;

        tc_plan_share(count, size, r, &offset, &share);
        CHECK(offset == next);
        next = offset + share;
        longest = share > longest ? share : longest;
        shortest = share < shortest ? share : shortest;
    }
    CHECK(next == count);
    CHECK(longest - shortest <= 1);
}

static void
test_share(void)
{
    static const uint64_t counts[] = {0, 1, 2, 31, 32, 33, 1000, UINT64_C(1) << 60};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int32_t size = 1; size <= 34; size++) {
            check_share(counts[i], size);
        }
    }
}

static void
test_blocks(void)
{
    char memory[64];
    void *const ptrs[] = {memory + 9, NULL, memory};
    const uint64_t counts[] = {3, 0, 5};
    tc_blocks side_by_side = {.base = memory, .count = 2};
    tc_blocks apart = {.ptrs = ptrs, .counts = counts};
    tc_blocks even = {.ptrs = ptrs, .count = 7};
    tc_blocks none = {0};

    CHECK(tc_blocks_count(&side_by_side, 2) == 2);
    CHECK(tc_blocks_ptr(&side_by_side, 0, 4) == memory);
    CHECK(tc_blocks_ptr(&side_by_side, 2, 4) == memory + 16);
    CHECK(tc_blocks_count(&apart, 0) == 3 && tc_blocks_count(&apart, 1) == 0);
    CHECK(tc_blocks_ptr(&apart, 0, 4) == memory + 9);
    CHECK(tc_blocks_ptr(&apart, 1, 4) == NULL);
    CHECK(tc_blocks_ptr(&apart, 2, 4) == memory);
    CHECK(tc_blocks_count(&even, 1) == 7);
    CHECK(tc_blocks_count(&none, 1) == 0 && tc_blocks_ptr(&none, 1, 4) == NULL);
    CHECK(tc_blocks_count(NULL, 1) == 0);
}

static uint32_t
steps_of_shape(tc_op_kind kind, int32_t rank, int32_t size, int32_t root, bool direct)
{
    tc_blocks blocks = {.count = 5};
    tc_plan_shape shape = {.kind = kind,
                           .rank = rank,
                           .size = size,
                           .root = root,
                           .elem_bytes = 4,
                           .count = 5,
                           .in_blocks = &blocks,
                           .out_blocks = &blocks,
                           .direct = direct};
    tc_plan plan = {0};
    uint32_t count;

    CHECK(tc_plan_create(&shape, &plan, NULL) == TC_OK);
    count = plan.step_count;
    for (uint32_t i = 0; i < count; i++) {
        /* One that comes first and is of the same size or of none, else the run would
         * never end. */
        if (plan.steps[i].after >= 0) {
            uint64_t ahead = plan.steps[plan.steps[i].after].bytes;

            CHECK(plan.steps[i].after < (int32_t)i);
            CHECK(ahead == plan.steps[i].bytes || ahead == 0);
        }
        CHECK(plan.steps[i].peer != rank);
    }
    tc_plan_destroy(&plan);
    CHECK(plan.steps == NULL && plan.step_count == 0);
    return count;
}

static uint32_t
steps_of(tc_op_kind kind, int32_t rank, int32_t size, int32_t root)
{
    return steps_of_shape(kind, rank, size, root, false);
}

static void
test_direct_step_counts(void)
{
    for (int32_t n = 1; n <= 33; n++) {
        uint32_t others = (uint32_t)n - 1;
        uint32_t mcast = n > 1 ? 1 : 0;

        CHECK(steps_of_shape(TC_OP_ALL_REDUCE, n / 2, n, 0, true) ==
              3 * others + 1 + 2 * mcast);
        CHECK(steps_of_shape(TC_OP_ALL_GATHER_SINGLE, n / 2, n, 0, true) ==
              2 * others + 1 + mcast);
        CHECK(steps_of_shape(TC_OP_REDUCE_SCATTER_SINGLE, n / 2, n, 0, true) ==
              others + 1 + mcast);
    }
}

static void
test_step_counts(void)
{
    for (int32_t n = 1; n <= 33; n++) {
        uint32_t others = (uint32_t)n - 1;
        uint32_t mcast = n > 1 ? 1 : 0;

        CHECK(steps_of(TC_OP_ALL_REDUCE, n / 2, n, 0) == 2 * others + 1 + mcast);
        CHECK(steps_of(TC_OP_REDUCE_SCATTER, n / 2, n, 0) == others + 1);
        CHECK(steps_of(TC_OP_ALL_GATHER, n / 2, n, 0) == others + 1 + mcast);
        CHECK(steps_of(TC_OP_ALL_TO_ALL, n / 2, n, 0) == 2 * others + 1);
        CHECK(steps_of(TC_OP_BARRIER, n / 2, n, 0) == others + mcast);
        CHECK(steps_of(TC_OP_BROADCAST, n / 2, n, n / 2) == mcast);
        CHECK(steps_of(TC_OP_REDUCE, n / 2, n, n / 2) == 1);
        CHECK(steps_of(TC_OP_GATHER, n / 2, n, n / 2) == others + 1);
        CHECK(steps_of(TC_OP_SCATTER, n / 2, n, n / 2) == others + 1);
        if (n > 1) {
            CHECK(steps_of(TC_OP_BROADCAST, 0, n, n - 1) == 1);
            CHECK(steps_of(TC_OP_REDUCE, 0, n, n - 1) == 1);
            CHECK(steps_of(TC_OP_GATHER, 0, n, n - 1) == 1);
            CHECK(steps_of(TC_OP_SCATTER, 0, n, n - 1) == 1);
        }
    }
    CHECK(steps_of(TC_OP_ALL_TO_ALL, 500, 1000, 0) == 1999);
}

/* In the first round of sends no two ranks have the same peer. */
static void
test_rotation(void)
{
    int32_t hit[7] = {0};

    for (int32_t r = 0; r < 7; r++) {
        tc_blocks blocks = {.count = 5};
        tc_plan_shape shape = {.kind = TC_OP_ALL_TO_ALL,
                               .rank = r,
                               .size = 7,
                               .elem_bytes = 4,
                               .in_blocks = &blocks,
                               .out_blocks = &blocks};
        tc_plan plan = {0};

        CHECK(tc_plan_create(&shape, &plan, NULL) == TC_OK);
        CHECK(plan.steps[0].kind == TC_STEP_SEND);
        hit[plan.steps[0].peer]++;
        tc_plan_destroy(&plan);
    }
    for (int32_t r = 0; r < 7; r++) {
        CHECK(hit[r] == 1);
    }
}

static void
test_unsupported(void)
{
    static const int kinds[] = {
        TC_OP_SEND,  TC_OP_RECV,       TC_OP_SPLIT, TC_OP_FINALIZE,
        TC_OP_BATCH, TC_OP_NEW_WINDOW, -1,          99};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        tc_plan_shape shape = {
            .kind = (tc_op_kind)kinds[i], .size = 2, .elem_bytes = 4};
        tc_plan plan = {.step_count = 17};
        tc_error err = {0};

        CHECK(tc_plan_create(&shape, &plan, &err) == TC_ERR_UNSUPPORTED);
        CHECK(err.status == TC_ERR_UNSUPPORTED);
        CHECK(strstr(err.message, tc_op_name(shape.kind)) != NULL);
        CHECK(plan.step_count == 0);
    }
}

static void
test_no_direct_plan(void)
{
    tc_plan_shape shape = {
        .kind = TC_OP_BROADCAST, .size = 2, .elem_bytes = 4, .direct = true};
    tc_plan plan = {.step_count = 17};
    tc_error err = {0};

    CHECK(tc_plan_create(&shape, &plan, &err) == TC_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "broadcast is no collective with a direct") != NULL);
    CHECK(plan.step_count == 0);
}

static void
check_description(tc_step_kind kind, const char *want)
{
    tc_step step = {.kind = kind, .peer = 2, .after = -1, .bytes = 65536};
    char text[96];

    tc_plan_describe(&step, 3, text, sizeof(text));
    CHECK(strcmp(text, want) == 0);
    tc_plan_describe(&step, 3, text, 8);
    CHECK(strcmp(text, "step 3:") == 0);
}

static void
test_describe(void)
{
    check_description(TC_STEP_COPY, "step 3: copy 65536 bytes");
    check_description(TC_STEP_SEND, "step 3: send 65536 bytes to rank 2");
    check_description(TC_STEP_RECV, "step 3: recv 65536 bytes from rank 2");
    check_description(TC_STEP_REDUCE, "step 3: reduce 65536 bytes of all ranks");
    check_description(TC_STEP_MCAST, "step 3: multicast 65536 bytes");
    check_description(TC_STEP_MRECV, "step 3: recv 65536 multicast bytes from rank 2");
    check_description(TC_STEP_READ, "step 3: read 65536 bytes of rank 2");
    check_description(TC_STEP_REDUCE_READ,
                      "step 3: read and reduce 65536 bytes of all ranks");
}

int
main(void)
{
    test_share();
    test_blocks();
    test_step_counts();
    test_direct_step_counts();
    test_rotation();
    test_unsupported();
    test_no_direct_plan();
    test_describe();
    return 0;
}
