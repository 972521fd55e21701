/* SPDX-License-Identifier: BSD-3-Clause */
/* Making, using, splitting and leaving a communicator. */
#include "core/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/log.h"
#include "core/object.h"
#include "core/registry.h"

static const tc_host host = {
    .struct_size = sizeof(tc_host),
    .complete = tc_work_complete,
};

static bool
copy_hints(tc_comm *comm, const tc_hint *hints, size_t count)
{
    if (count == 0) {
        return true;
    }
    comm->hints = calloc(count, sizeof(comm->hints[0]));
    if (comm->hints == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        comm->hints[i].key = strdup(hints[i].key);
        comm->hints[i].value = strdup(hints[i].value);
        comm->hint_count = i + 1;
        if (comm->hints[i].key == NULL || comm->hints[i].value == NULL) {
            return false;
        }
    }
    return true;
}

void
tc_comm_free(tc_comm *comm)
{
    for (size_t i = 0; i < comm->hint_count; i++) {
        free((char *)comm->hints[i].key);
        free((char *)comm->hints[i].value);
    }
    free(comm->hints);
    tc_hooks_free(comm);
    free(comm->spare);
    free(comm->backend_name);
    free(comm->name);
    free(comm);
}

tc_status
tc_comm_alloc(const tc_comm_options *options, const tc_backend *backend,
              struct tc_engine *engine, tc_comm **comm_p, tc_error *err)
{
    tc_comm *comm = calloc(1, sizeof(*comm));

    if (comm == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "communicator object");
    }
    comm->refs = 1;
    comm->spins = UINT32_MAX; /* as many as the backend allows */
    comm->backend = backend;
    comm->engine = engine;
    comm->rank = options->rank;
    comm->size = options->size;
    comm->device = options->device;
    comm->timeout_ns = options->timeout_ns;
    comm->abort_process = options->abort_process;
    comm->name = strdup(options->name);
    comm->backend_name = strdup(options->backend);
    if (comm->name == NULL || comm->backend_name == NULL ||
        !copy_hints(comm, options->hints, options->hint_count)) {
        tc_comm_free(comm);
        return tc_error_set(err, TC_ERR_NO_MEMORY, "communicator '%s'", options->name);
    }
    *comm_p = comm;
    return TC_OK;
}

void
tc_comm_fill_config(const tc_comm *comm, const tc_interrupt *interrupt,
                    tc_comm_config *config_p)
{
    *config_p = (tc_comm_config){
        .struct_size = sizeof(*config_p),
        .rank = comm->rank,
        .size = comm->size,
        .device = comm->device,
        .name = comm->name,
        .timeout_ns = comm->timeout_ns,
        .hints = comm->hints,
        .hint_count = comm->hint_count,
        .engine = comm->engine,
        .host = &host,
        .interrupted = interrupt->interrupted,
        .interrupted_ctx = interrupt->ctx,
    };
}

static tc_status
check_rank_and_size(const tc_comm_options *options, tc_error *err)
{
    if (options->size < 1) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "size must be at least 1, but got %d", options->size);
    }
    if (options->rank < 0 || options->rank >= options->size) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "rank must be in range [0, %d), but got %d", options->size,
                            options->rank);
    }
    if (options->size > 1 && options->store == NULL) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "store is missing, size is %d", options->size);
    }
    return TC_OK;
}

tc_status
tc_comm_create(const tc_comm_options *options, struct tc_engine *engine,
               tc_comm **comm_p, tc_error *err)
{
    const tc_backend *backend;
    tc_comm_config config;
    tc_comm *comm;
    tc_status status;

    TC_TRY(tc_log_configure(err));
    TC_TRY(tc_registry_find(options->backend, options->device.type, &backend, err));
    TC_TRY(check_rank_and_size(options, err));
    TC_TRY(tc_comm_alloc(options, backend, engine, &comm, err));
    tc_comm_fill_config(comm, &options->interrupt, &config);
    config.store = options->store;
    status = backend->comm_create(&config, &comm->ctx, err);
    if (status != TC_OK) {
        tc_comm_free(comm);
        return status;
    }
    TC_LOG(CORE, INFO, "communicator '%s': rank %d of %d on backend %s", comm->name,
           comm->rank, comm->size, backend->name);
    *comm_p = comm;
    return TC_OK;
}

void
tc_comm_retain(tc_comm *comm)
{
    tc_fetch_add_seq_cst_u32(&comm->refs, 1);
}

void
tc_comm_release(tc_comm *comm)
{
    if (tc_fetch_sub_seq_cst_u32(&comm->refs, 1) != 1) {
        return;
    }
    comm->backend->comm_destroy(comm->ctx);
    tc_comm_free(comm);
}

static bool
nothing_in_flight(const void *ctx)
{
    const tc_comm *comm = ctx;

    return tc_load_relaxed_u64(&comm->issued) == tc_load_relaxed_u64(&comm->ended);
}

tc_status
tc_comm_finalize(tc_comm *comm, const tc_interrupt *interrupt, tc_error *err)
{
    tc_status status;

    if (!tc_cas_acq_rel_u32(&comm->finalized, 0, 1)) {
        return tc_error_set(err, TC_ERR_FINALIZED,
                            "communicator '%s' already finalized", comm->name);
    }
    status = tc_comm_wait(comm, nothing_in_flight, comm, TC_DEADLINE_NONE, interrupt);
    if (status != TC_OK) {
        tc_store_release_u32(&comm->finalized, 0);
        return status;
    }
    return comm->backend->comm_finalize(comm->ctx, err);
}

tc_status
tc_comm_check_usable(const tc_comm *comm, tc_error *err)
{
    if (tc_load_relaxed_u32(&comm->finalized) != 0) {
        return tc_error_set(err, TC_ERR_FINALIZED,
                            "communicator '%s' already finalized", comm->name);
    }
    return TC_OK;
}

void
tc_comm_abort(tc_comm *comm)
{
    tc_store_release_u32(&comm->aborted, 1);
    if (comm->backend->comm_abort != NULL) {
        comm->backend->comm_abort(comm->ctx);
    }
}

bool
tc_comm_is_abort_supported(const tc_comm *comm)
{
    return comm->backend->comm_abort != NULL;
}

bool
tc_comm_is_aborted(const tc_comm *comm)
{
    return tc_load_acquire_u32(&comm->aborted) != 0;
}

tc_status
tc_comm_issue(tc_comm *comm, const tc_call *call, uint64_t timeout_ns, tc_work **work_p,
              tc_error *err)
{
    tc_work *work;
    tc_status status;

    *work_p = NULL;
    TC_TRY(tc_comm_check_usable(comm, err));
    TC_TRY(tc_call_check(call, comm->rank, comm->size, err));
    work = tc_work_take(comm, call);
    if (work == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "work object of %s",
                            tc_op_name(call->kind));
    }
    work->op.timeout_ns =
        timeout_ns != 0 ? timeout_ns : tc_load_relaxed_u64(&comm->timeout_ns);
    status = comm->backend->issue[call->kind](comm->ctx, &work->op);
    if (status == TC_PENDING) {
        tc_fetch_add_relaxed_u64(&comm->issued, 1);
        tc_comm_retain(comm);
        *work_p = work;
        return TC_PENDING;
    }
    if (status != TC_OK && err != NULL) {
        *err = work->error;
    }
    tc_work_put(comm, work);
    return status;
}

int32_t
tc_comm_rank(const tc_comm *comm)
{
    return comm->rank;
}

int32_t
tc_comm_size(const tc_comm *comm)
{
    return comm->size;
}

const char *
tc_comm_name(const tc_comm *comm)
{
    return comm->name;
}

const char *
tc_comm_backend_name(const tc_comm *comm)
{
    return comm->backend_name;
}

const char *
tc_comm_backend_version(const tc_comm *comm)
{
    return comm->backend->version;
}

tc_device
tc_comm_device(const tc_comm *comm)
{
    return comm->device;
}

uint64_t
tc_comm_timeout(const tc_comm *comm)
{
    return tc_load_relaxed_u64(&comm->timeout_ns);
}

void
tc_comm_set_timeout(tc_comm *comm, uint64_t timeout_ns)
{
    tc_store_relaxed_u64(&comm->timeout_ns, timeout_ns);
}

bool
tc_comm_abort_process(const tc_comm *comm)
{
    return comm->abort_process;
}

uint32_t
tc_comm_backend_flags(const tc_comm *comm)
{
    return comm->backend->flags;
}

size_t
tc_comm_hints(const tc_comm *comm, const tc_hint **hints_p)
{
    *hints_p = comm->hints;
    return comm->hint_count;
}

void **
tc_comm_face_slot(tc_comm *comm)
{
    return &comm->face;
}
