/* SPDX-License-Identifier: BSD-3-Clause */
/* Life of a native communicator, and the table of the backend. */
#include "backend/native/native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/native/endpoint.h"
#include "backend/native/state.h"
#include "base/affinity.h"
#include "base/cache.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/log.h"

/* Polls before a yield where every rank has a CPU: 50 to 100 us, twice a sleep and a
 * wake-up; none where ranks share CPUs (engine facts, section 3). */
#define SPINS 2000u
#define YIELDS 100u

/* Counts communicators of the process, for the record. */
static uint64_t comm_count;

static void
free_comm(tc_native *comm)
{
    tc_native_p2p_destroy(comm);
    tc_native_views_destroy(comm);
    if (comm->segment != NULL) {
        tc_shm_segment_close(comm->segment);
    }
    tc_run_destroy(comm->run);
    tc_plan_destroy(&comm->plan);
    free(comm->mcast_in);
    free(comm->pair_out);
    free(comm->pair_in);
    free(comm->srcs);
    free(comm->name);
    free(comm);
}

static void
retire_comm(void *ctx)
{
    free_comm(ctx);
}

static tc_status
alloc_comm(const tc_comm_config *config, tc_native **comm_p, tc_error *err)
{
    size_t n = (size_t)(uint32_t)config->size;
    tc_native *comm = calloc(1, sizeof(*comm));

    if (comm == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "communicator object");
    }
    comm->host = config->host;
    comm->engine = config->engine;
    comm->rank = config->rank;
    comm->size = config->size;
    comm->number = (uint32_t)tc_fetch_add_relaxed_u64(&comm_count, 1);
    comm->name = strdup(config->name);
    comm->srcs = calloc(n, sizeof(comm->srcs[0]));
    comm->mcast_in = calloc(n, sizeof(comm->mcast_in[0]));
    comm->pair_out = calloc(n, sizeof(comm->pair_out[0]));
    comm->pair_in = calloc(n, sizeof(comm->pair_in[0]));
    if (comm->name == NULL || comm->srcs == NULL || comm->mcast_in == NULL ||
        comm->pair_out == NULL || comm->pair_in == NULL) {
        free_comm(comm);
        return tc_error_set(err, TC_ERR_NO_MEMORY, "communicator of %zu ranks", n);
    }
    *comm_p = comm;
    return TC_OK;
}

static tc_status
decide_spinning(tc_native *comm, tc_error *err)
{
    uint64_t (*masks)[16] = calloc((size_t)(uint32_t)comm->size, sizeof(masks[0]));

    if (masks == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "affinity masks of %d ranks",
                            comm->size);
    }
    for (int32_t r = 0; r < comm->size; r++) {
        memcpy(masks[r], tc_shm_segment_rank(comm->segment, r)->affinity,
               sizeof(masks[r]));
    }
    comm->spins = tc_affinity_oversubscribed((const uint64_t (*)[16])masks, comm->size)
                      ? 0
                      : SPINS;
    free(masks);
    TC_LOG(NATIVE, DEBUG, "communicator '%s': %u spins before a yield", comm->name,
           comm->spins);
    return TC_OK;
}

/* From a mapped segment to a communicator that can be used. */
static tc_status
finish_comm(tc_native *comm, tc_error *err)
{
    comm->self = tc_shm_segment_rank(comm->segment, comm->rank);
    tc_native_lanes_init(comm);
    tc_shm_lane_open_writer(comm->segment, TC_SHM_LANE_MCAST, -1, &comm->mcast_out);
    for (int32_t r = 0; r < comm->size; r++) {
        if (r == comm->rank) {
            continue;
        }
        tc_shm_lane_open_reader(comm->segment, TC_SHM_LANE_MCAST, r,
                                &comm->mcast_in[r]);
        tc_shm_lane_open_writer(comm->segment, TC_SHM_LANE_PAIR, r, &comm->pair_out[r]);
        tc_shm_lane_open_reader(comm->segment, TC_SHM_LANE_PAIR, r, &comm->pair_in[r]);
    }
    comm->cache_bytes = tc_cache_read_bytes();
    TC_TRY(decide_spinning(comm, err));
    TC_TRY(tc_native_p2p_create(comm, err));
    comm->source.progress = tc_native_engine_progress;
    comm->source.retire = retire_comm;
    comm->source.ctx = comm;
    tc_engine_attach(comm->engine, &comm->source);
    return TC_OK;
}

static tc_shm_member
member_of(const tc_comm_config *config)
{
    return (tc_shm_member){
        .rank = config->rank,
        .size = config->size,
        .page = tc_engine_page(config->engine),
        .page_fd = tc_engine_page_fd(config->engine),
        .name = config->name,
        .deadline_ns = tc_deadline_after(tc_clock_ns(), config->timeout_ns),
        .interrupted = config->interrupted,
        .interrupted_ctx = config->interrupted_ctx,
    };
}

/* Rank 0 serves, the others join at `address`. */
static tc_status
meet(const tc_comm_config *config, tc_shm_leader *leader, const char *address,
     const tc_shm_group *group, tc_shm_segment **segment_p, tc_error *err)
{
    tc_shm_member self = member_of(config);

    self.group = group;
    if (config->rank == 0) {
        return tc_shm_leader_serve(leader, &self, segment_p, err);
    }
    return tc_shm_member_join(address, &self, segment_p, err);
}

/* The way to the leader through the store: keys "<name>/<generation>/leader". A name
 * may be used again: every rank counts its own generations, so nothing is left from one
 * that another can take for its own. */
static tc_status
exchange_address(const tc_comm_config *config, char address[TC_SHM_ADDRESS_BYTES],
                 tc_error *err)
{
    const tc_store *store = config->store;
    char key[320];
    int64_t generation = 0;
    size_t bytes = 0;

    snprintf(key, sizeof(key), "torchcomms/%.200s/gen/%d", config->name, config->rank);
    TC_TRY(store->add(store->ctx, key, 1, &generation, err));
    snprintf(key, sizeof(key), "torchcomms/%.200s/%lld/leader", config->name,
             (long long)generation);
    if (config->rank == 0) {
        return store->set(store->ctx, key, address, strlen(address), err);
    }
    TC_TRY(store->get(store->ctx, key, config->timeout_ns, address,
                      TC_SHM_ADDRESS_BYTES - 1, &bytes, err));
    address[bytes < TC_SHM_ADDRESS_BYTES ? bytes : TC_SHM_ADDRESS_BYTES - 1] = '\0';
    return TC_OK;
}

tc_status
tc_native_open(const tc_comm_config *config, tc_shm_leader *leader, const char *address,
               const tc_shm_group *group, void **comm_p, tc_error *err)
{
    tc_native *comm = NULL;
    tc_status status;

    TC_TRY(tc_engine_start(config->engine, err));
    TC_TRY(alloc_comm(config, &comm, err));
    status = meet(config, leader, address, group, &comm->segment, err);
    if (status == TC_OK) {
        status = finish_comm(comm, err);
    }
    if (status != TC_OK) {
        free_comm(comm);
        return status;
    }
    *comm_p = comm;
    return TC_OK;
}

static tc_status
native_create(const tc_comm_config *config, void **comm_p, tc_error *err)
{
    char address[TC_SHM_ADDRESS_BYTES] = "";
    tc_shm_leader *leader = NULL;
    tc_status status = TC_OK;

    if (config->size > TC_SHM_MAX_RANKS) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "size is %d, a host has at most %d ranks", config->size,
                            TC_SHM_MAX_RANKS);
    }
    if (config->rank == 0) {
        TC_TRY(tc_shm_leader_open(&leader, address, err));
    }
    if (config->size > 1) {
        status = exchange_address(config, address, err);
    }
    if (status == TC_OK) {
        status = tc_native_open(config, leader, address, NULL, comm_p, err);
    }
    if (leader != NULL) {
        tc_shm_leader_close(leader);
    }
    return status;
}

static tc_status
native_finalize(void *ctx, tc_error *err)
{
    tc_native *comm = ctx;
    const tc_shm_state *state = tc_shm_segment_state(comm->segment);

    tc_native_check_history(comm);
    tc_exchange_acq_rel_u32(&comm->self->finalized, 1);
    tc_shm_ring_all(comm->segment);
    if (tc_load_acquire_u32(&state->state) != 0) {
        return tc_error_set(err, TC_ERR_BROKEN, "communicator '%s' was broken: %.300s",
                            comm->name, state->message);
    }
    return TC_OK;
}

static void
native_destroy(void *ctx)
{
    tc_native *comm = ctx;

    if (!tc_engine_is_ours(comm->engine)) {
        return; /* a forked child: segment and engine are the parent's */
    }
    tc_exchange_acq_rel_u32(&comm->self->finalized, 1);
    tc_shm_ring_all(comm->segment);
    tc_engine_retire(comm->engine, &comm->source);
}

static void
native_abort(void *ctx)
{
    tc_native *comm = ctx;

    tc_native_break(comm, TC_ERR_ABORTED, comm->rank, "rank %d aborted it", comm->rank);
    tc_engine_kick(comm->engine, &comm->source);
}

static void
native_revoke(void *ctx, const char *why)
{
    tc_native *comm = ctx;

    tc_native_break(comm, TC_ERR_ABORTED, comm->rank, "%s", why);
    tc_engine_kick(comm->engine, &comm->source);
}

static bool
native_is_broken(void *ctx)
{
    tc_native *comm = ctx;

    /* A forked child does not have the segment. */
    return tc_engine_is_ours(comm->engine) &&
           tc_load_acquire_u32(&tc_shm_segment_state(comm->segment)->state) != 0;
}

static void
native_parking(void *ctx, tc_parking *parking)
{
    tc_native *comm = ctx;
    tc_bell *bell = &tc_engine_page(comm->engine)->bell;

    *parking = (tc_parking){
        .bell = &bell->word,
        .sleepers = &bell->sleepers,
        .spins = comm->spins,
        .yields = YIELDS,
    };
}

/* What issuing would refuse. */
static tc_status
native_check(void *ctx, const tc_call *call, tc_error *err)
{
    const tc_native *comm = ctx;
    tc_reduce_fn fn;

    if (!tc_engine_is_ours(comm->engine)) {
        return tc_error_set(err, TC_ERR_FORKED,
                            "%s on communicator '%s' in a forked child",
                            tc_op_name(call->kind), comm->name);
    }
    return tc_op_reduces(call->kind)
               ? tc_reduce_find(call->dtype, call->redop, &fn, err)
               : TC_OK;
}

static tc_status
native_memory_alloc(tc_engine *engine, tc_device device, uint64_t bytes,
                    tc_memory *memory_p, tc_error *err)
{
    (void)device;
    return tc_heap_alloc(tc_engine_heap(engine), bytes, memory_p, err);
}

static const tc_backend native = {
    .struct_size = sizeof(tc_backend),
    .abi = TC_BACKEND_ABI,
    .name = "native",
    .version = "0.1.0",
    .device_type = TC_DEVICE_CPU,
    .comm_create = native_create,
    .split_begin = tc_native_split_begin,
    .split_end = tc_native_split_end,
    .comm_finalize = native_finalize,
    .comm_destroy = native_destroy,
    .comm_abort = native_abort,
    .issue =
        {
            [TC_OP_SEND] = tc_native_issue_p2p,
            [TC_OP_RECV] = tc_native_issue_p2p,
            [TC_OP_BATCH] = tc_native_issue_p2p,
            [TC_OP_BROADCAST] = tc_native_issue_collective,
            [TC_OP_ALL_REDUCE] = tc_native_issue_collective,
            [TC_OP_REDUCE] = tc_native_issue_collective,
            [TC_OP_ALL_GATHER] = tc_native_issue_collective,
            [TC_OP_ALL_GATHER_V] = tc_native_issue_collective,
            [TC_OP_ALL_GATHER_SINGLE] = tc_native_issue_collective,
            [TC_OP_REDUCE_SCATTER] = tc_native_issue_collective,
            [TC_OP_REDUCE_SCATTER_V] = tc_native_issue_collective,
            [TC_OP_REDUCE_SCATTER_SINGLE] = tc_native_issue_collective,
            [TC_OP_ALL_TO_ALL_SINGLE] = tc_native_issue_collective,
            [TC_OP_ALL_TO_ALL_V_SINGLE] = tc_native_issue_collective,
            [TC_OP_ALL_TO_ALL] = tc_native_issue_collective,
            [TC_OP_BARRIER] = tc_native_issue_collective,
            [TC_OP_SCATTER] = tc_native_issue_collective,
            [TC_OP_GATHER] = tc_native_issue_collective,
            [TC_OP_GATHER_SINGLE] = tc_native_issue_collective,
        },
    .progress = tc_native_progress,
    .parking = native_parking,
    .detach = tc_native_detach,
    .memory_alloc = native_memory_alloc,
    .check = native_check,
    .comm_revoke = native_revoke,
    .comm_is_broken = native_is_broken,
    .endpoint_open = tc_native_endpoint_open,
    .endpoint_close = tc_native_endpoint_close,
    .endpoint_check = tc_native_endpoint_check,
    .reconfigure = tc_native_reconfigure,
};

const tc_backend *
tc_native_backend(void)
{
    return &native;
}
