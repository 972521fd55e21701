/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans as arrays of steps, and the choice of the algorithm that makes one. */
#include "coll/plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "base/error.h"
#include "coll/plan_build.h"

#define FIRST_CAPACITY 8u

static const tc_plan_build_fn builders[TC_OP_KIND_COUNT] = {
    [TC_OP_BROADCAST] = tc_plan_broadcast,
    [TC_OP_ALL_REDUCE] = tc_plan_all_reduce,
    [TC_OP_REDUCE] = tc_plan_reduce,
    [TC_OP_ALL_GATHER] = tc_plan_all_gather,
    [TC_OP_ALL_GATHER_V] = tc_plan_all_gather,
    [TC_OP_ALL_GATHER_SINGLE] = tc_plan_all_gather,
    [TC_OP_REDUCE_SCATTER] = tc_plan_reduce_scatter,
    [TC_OP_REDUCE_SCATTER_V] = tc_plan_reduce_scatter,
    [TC_OP_REDUCE_SCATTER_SINGLE] = tc_plan_reduce_scatter,
    [TC_OP_ALL_TO_ALL_SINGLE] = tc_plan_all_to_all,
    [TC_OP_ALL_TO_ALL_V_SINGLE] = tc_plan_all_to_all,
    [TC_OP_ALL_TO_ALL] = tc_plan_all_to_all,
    [TC_OP_BARRIER] = tc_plan_barrier,
    [TC_OP_SCATTER] = tc_plan_scatter,
    [TC_OP_GATHER] = tc_plan_gather,
    [TC_OP_GATHER_SINGLE] = tc_plan_gather,
};

static const tc_plan_build_fn direct_builders[TC_OP_KIND_COUNT] = {
    [TC_OP_ALL_REDUCE] = tc_plan_all_reduce_direct,
    [TC_OP_ALL_GATHER_SINGLE] = tc_plan_all_gather_direct,
    [TC_OP_REDUCE_SCATTER_SINGLE] = tc_plan_reduce_scatter_direct,
};

uint64_t
tc_blocks_count(const tc_blocks *blocks, int32_t r)
{
    if (blocks == NULL) {
        return 0;
    }
    return blocks->counts != NULL ? blocks->counts[r] : blocks->count;
}

void *
tc_blocks_ptr(const tc_blocks *blocks, int32_t r, uint64_t elem_bytes)
{
    if (blocks->ptrs != NULL) {
        return blocks->ptrs[r];
    }
    if (blocks->base == NULL) {
        return NULL;
    }
    return (char *)blocks->base + (uint64_t)r * blocks->count * elem_bytes;
}

void
tc_plan_share(uint64_t count, int32_t size, int32_t r, uint64_t *offset_p,
              uint64_t *count_p)
{
    uint64_t share = count / (uint64_t)size;
    uint64_t longer = count % (uint64_t)size;
    uint64_t rank = (uint64_t)r;

    *offset_p = rank * share + (rank < longer ? rank : longer);
    *count_p = share + (rank < longer ? 1 : 0);
}

tc_status
tc_plan_create(const tc_plan_shape *shape, tc_plan *plan, tc_error *err)
{
    tc_plan_build_fn build = NULL;

    plan->step_count = 0;
    plan->no_memory = false;
    if ((unsigned)shape->kind < TC_OP_KIND_COUNT) {
        build = shape->direct ? direct_builders[shape->kind] : builders[shape->kind];
    }
    if (build == NULL) {
        return tc_error_set(err, TC_ERR_UNSUPPORTED,
                            "%s is no collective with a %splan",
                            tc_op_name(shape->kind), shape->direct ? "direct " : "");
    }
    build(shape, plan);
    if (plan->no_memory) {
        plan->step_count = 0;
        return tc_error_set(err, TC_ERR_NO_MEMORY, "plan of %s for %d ranks",
                            tc_op_name(shape->kind), (int)shape->size);
    }
    return TC_OK;
}

void
tc_plan_destroy(tc_plan *plan)
{
    free(plan->steps);
    *plan = (tc_plan){0};
}

int32_t
tc_plan_append(tc_plan *plan, const tc_step *step)
{
    if (plan->step_count == plan->capacity) {
        uint32_t capacity = plan->capacity == 0 ? FIRST_CAPACITY : 2 * plan->capacity;
        tc_step *steps = realloc(plan->steps, capacity * sizeof(*steps));

        if (steps == NULL) {
            plan->no_memory = true;
            return -1;
        }
        plan->steps = steps;
        plan->capacity = capacity;
    }
    plan->steps[plan->step_count] = *step;
    return (int32_t)plan->step_count++;
}

int32_t
tc_plan_add_copy(tc_plan *plan, tc_place src, tc_place dst, uint64_t bytes)
{
    return tc_plan_append(plan, &(tc_step){.kind = TC_STEP_COPY,
                                           .peer = -1,
                                           .after = -1,
                                           .bytes = bytes,
                                           .src = src,
                                           .dst = dst});
}

int32_t
tc_plan_add_send(tc_plan *plan, int32_t peer, tc_place src, uint64_t bytes)
{
    return tc_plan_append(plan, &(tc_step){.kind = TC_STEP_SEND,
                                           .peer = peer,
                                           .after = -1,
                                           .bytes = bytes,
                                           .src = src});
}

int32_t
tc_plan_add_recv(tc_plan *plan, int32_t peer, tc_place dst, uint64_t bytes,
                 int32_t after)
{
    return tc_plan_append(plan, &(tc_step){.kind = TC_STEP_RECV,
                                           .peer = peer,
                                           .after = after,
                                           .bytes = bytes,
                                           .dst = dst});
}

int32_t
tc_plan_add_reduce(tc_plan *plan, tc_place src, tc_place dst, uint64_t bytes)
{
    return tc_plan_append(plan, &(tc_step){.kind = TC_STEP_REDUCE,
                                           .peer = -1,
                                           .after = -1,
                                           .bytes = bytes,
                                           .src = src,
                                           .dst = dst});
}

int32_t
tc_plan_add_mcast(tc_plan *plan, tc_place src, uint64_t bytes, int32_t after)
{
    return tc_plan_append(plan, &(tc_step){.kind = TC_STEP_MCAST,
                                           .peer = -1,
                                           .after = after,
                                           .bytes = bytes,
                                           .src = src});
}

int32_t
tc_plan_add_mrecv(tc_plan *plan, int32_t peer, tc_place dst, uint64_t bytes)
{
    return tc_plan_append(plan, &(tc_step){.kind = TC_STEP_MRECV,
                                           .peer = peer,
                                           .after = -1,
                                           .bytes = bytes,
                                           .dst = dst});
}

int32_t
tc_plan_add_read(tc_plan *plan, int32_t peer, tc_place src, tc_place dst,
                 uint64_t bytes, int32_t after)
{
    return tc_plan_append(plan, &(tc_step){.kind = TC_STEP_READ,
                                           .peer = peer,
                                           .after = after,
                                           .bytes = bytes,
                                           .src = src,
                                           .dst = dst});
}

int32_t
tc_plan_add_reduce_read(tc_plan *plan, tc_place src, tc_place dst, uint64_t bytes)
{
    return tc_plan_append(plan, &(tc_step){.kind = TC_STEP_REDUCE_READ,
                                           .peer = -1,
                                           .after = -1,
                                           .bytes = bytes,
                                           .src = src,
                                           .dst = dst});
}

void
tc_plan_describe(const tc_step *step, uint32_t index, char *text, size_t capacity)
{
    unsigned long long bytes = step->bytes;

    switch (step->kind) {
    case TC_STEP_COPY:
        snprintf(text, capacity, "step %u: copy %llu bytes", index, bytes);
        break;
    case TC_STEP_SEND:
        snprintf(text, capacity, "step %u: send %llu bytes to rank %d", index, bytes,
                 (int)step->peer);
        break;
    case TC_STEP_RECV:
        snprintf(text, capacity, "step %u: recv %llu bytes from rank %d", index, bytes,
                 (int)step->peer);
        break;
    case TC_STEP_REDUCE:
        snprintf(text, capacity, "step %u: reduce %llu bytes of all ranks", index,
                 bytes);
        break;
    case TC_STEP_MCAST:
        snprintf(text, capacity, "step %u: multicast %llu bytes", index, bytes);
        break;
    case TC_STEP_MRECV:
        snprintf(text, capacity, "step %u: recv %llu multicast bytes from rank %d",
                 index, bytes, (int)step->peer);
        break;
    case TC_STEP_READ:
        snprintf(text, capacity, "step %u: read %llu bytes of rank %d", index, bytes,
                 (int)step->peer);
        break;
    case TC_STEP_REDUCE_READ:
        snprintf(text, capacity, "step %u: read and reduce %llu bytes of all ranks",
                 index, bytes);
        break;
    }
}
