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
#include "core/hints.h"
#include "core/object.h"
#include "core/reconfigure.h"
#include "core/registry.h"

static const tc_host host = {
    .struct_size = sizeof(tc_host),
    .complete = tc_work_complete,
};

/* How long the works of a reconfigurable communicator may take to end at finalize. */
#define FINALIZE_NS TC_NSEC_PER_SEC

static void
free_hints(tc_hint *hints, size_t count)
{
    for (size_t i = 0; hints != NULL && i < count; i++) {
        free((char *)hints[i].key);
        free((char *)hints[i].value);
    }
    free(hints);
}

tc_status
tc_comm_set_hints(tc_comm *comm, const tc_hint *hints, size_t count, tc_error *err)
{
    tc_hint *copy = count > 0 ? calloc(count, sizeof(copy[0])) : NULL;
    bool whole = count == 0 || copy != NULL;

    for (size_t i = 0; whole && i < count; i++) {
        copy[i].key = strdup(hints[i].key);
        copy[i].value = strdup(hints[i].value);
        whole = copy[i].key != NULL && copy[i].value != NULL;
    }
    if (!whole) {
        free_hints(copy, count);
        return tc_error_set(err, TC_ERR_NO_MEMORY, "%zu hints of communicator '%s'",
                            count, comm->name);
    }
    free_hints(comm->hints, comm->hint_count);
    comm->hints = copy;
    comm->hint_count = count;
    return TC_OK;
}

void
tc_comm_free(tc_comm *comm)
{
    if (comm->membership != NULL) {
        tc_membership_release(comm->membership);
    }
    if (comm->endpoint != NULL) {
        comm->backend->endpoint_close(comm->endpoint);
    }
    tc_hooks_free(comm);
    pthread_mutex_destroy(&comm->lock);
    free_hints(comm->hints, comm->hint_count);
    free(comm->handle);
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
    pthread_mutex_init(&comm->lock, NULL);
    comm->refs = 1;
    comm->backend = backend;
    comm->engine = engine;
    comm->reconfigurable = options->reconfigurable;
    comm->rank = options->reconfigurable ? -1 : options->rank;
    comm->size = options->reconfigurable ? 0 : options->size;
    comm->state = options->reconfigurable ? TC_COMM_UNCONFIGURED : TC_COMM_READY;
    comm->device = options->device;
    comm->timeout_ns = options->timeout_ns;
    comm->abort_process = options->abort_process;
    comm->name = strdup(options->name);
    comm->backend_name = strdup(options->backend);
    if (!options->reconfigurable) {
        comm->membership = tc_membership_create(backend);
    }
    if (comm->name == NULL || comm->backend_name == NULL ||
        (!options->reconfigurable && comm->membership == NULL) ||
        tc_comm_set_hints(comm, options->hints, options->hint_count, NULL) != TC_OK) {
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
    if (options->reconfigurable) {
        return TC_OK;
    }
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
    if (options->reconfigurable && !tc_backend_can_reconfigure(backend)) {
        return tc_error_set(err, TC_ERR_UNSUPPORTED,
                            "reconfigure not implemented for backend '%s'",
                            options->backend);
    }
    TC_TRY(tc_comm_alloc(options, backend, engine, &comm, err));
    if (options->reconfigurable) {
        *comm_p = comm;
        return TC_OK;
    }
    tc_comm_fill_config(comm, &options->interrupt, &config);
    config.store = options->store;
    status = backend->comm_create(&config, &comm->membership->ctx, err);
    if (status != TC_OK) {
        tc_comm_free(comm);
        return status;
    }
    tc_hints_check(backend, comm->name, options->hints, options->hint_count);
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
    tc_comm_free(comm);
}

/* Waits for the works in flight. Those of a reconfigurable communicator may be with
 * peers that have gone on without it: they do not hold it up. */
static tc_status
settle(const tc_comm *comm, const tc_interrupt *interrupt)
{
    tc_membership *m = comm->membership;
    uint64_t deadline = comm->reconfigurable
                            ? tc_deadline_after(tc_clock_ns(), FINALIZE_NS)
                            : TC_DEADLINE_NONE;
    tc_status status =
        tc_membership_wait(m, tc_membership_is_idle, m, deadline, interrupt);

    if (status == TC_EXPIRED) {
        tc_membership_revoke(m, "it was finalized");
        status = tc_membership_wait(m, tc_membership_is_idle, m, TC_DEADLINE_NONE,
                                    interrupt);
    }
    return status;
}

static tc_status
leave(tc_comm *comm, tc_error *err)
{
    tc_status status = comm->backend->comm_finalize(comm->membership->ctx, err);
    bool known = comm->reconfigurable || tc_load_acquire_u32(&comm->aborted) != 0;

    /* Whoever aborted it knows; whoever reconfigures it reckons with failures. */
    return known && (status == TC_ERR_ABORTED || status == TC_ERR_BROKEN) ? TC_OK
                                                                          : status;
}

static tc_status
refuse_finalized(const tc_comm *comm, tc_error *err)
{
    return tc_error_set(err, TC_ERR_FINALIZED, "communicator '%s' already finalized",
                        comm->name);
}

/* What it was before; TC_COMM_FINALIZED: somebody else made it final. */
static tc_comm_state
become_final(tc_comm *comm)
{
    for (;;) {
        uint32_t state = tc_load_acquire_u32(&comm->state);

        if (state == TC_COMM_FINALIZED ||
            tc_cas_acq_rel_u32(&comm->state, state, TC_COMM_FINALIZED)) {
            return (tc_comm_state)state;
        }
    }
}

tc_status
tc_comm_finalize(tc_comm *comm, const tc_interrupt *interrupt, tc_error *err)
{
    tc_comm_state before = become_final(comm);
    tc_status status = TC_OK;

    if (before == TC_COMM_FINALIZED) {
        return refuse_finalized(comm, err);
    }
    if (before == TC_COMM_READY) {
        status = settle(comm, interrupt);
        if (status != TC_OK) {
            tc_store_release_u32(&comm->state, TC_COMM_READY);
            return status;
        }
        status = leave(comm, err);
    }
    tc_comm_close_endpoint(comm);
    return status;
}

tc_status
tc_comm_check_usable(const tc_comm *comm, tc_error *err)
{
    uint32_t state = tc_load_relaxed_u32(&comm->state);

    if (state == TC_COMM_FINALIZED) {
        return refuse_finalized(comm, err);
    }
    if (state == TC_COMM_UNCONFIGURED) {
        return tc_error_set(err, TC_ERR_NOT_INITIALIZED,
                            "communicator '%s' is not initialized: it has no ranks "
                            "until it is reconfigured",
                            comm->name);
    }
    return TC_OK;
}

void
tc_comm_abort(tc_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    tc_store_release_u32(&comm->aborted, 1);
    if (comm->membership != NULL && comm->backend->comm_abort != NULL) {
        comm->backend->comm_abort(comm->membership->ctx);
    }
    pthread_mutex_unlock(&comm->lock);
}

bool
tc_comm_is_abort_supported(const tc_comm *comm)
{
    return comm->backend->comm_abort != NULL;
}

bool
tc_comm_is_aborted(const tc_comm *comm)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&comm->lock; /* of no object's value */
    bool is = tc_load_acquire_u32(&comm->aborted) != 0;

    pthread_mutex_lock(lock);
    if (!is && comm->membership != NULL && comm->backend->comm_is_broken != NULL) {
        is = comm->backend->comm_is_broken(comm->membership->ctx);
    }
    pthread_mutex_unlock(lock);
    return is;
}

tc_status
tc_comm_issue(tc_comm *comm, const tc_call *call, uint64_t timeout_ns, tc_work **work_p,
              tc_error *err)
{
    tc_membership *membership;
    tc_work *work;
    tc_status status;

    *work_p = NULL;
    TC_TRY(tc_comm_check_usable(comm, err));
    TC_TRY(tc_call_check(call, comm->rank, comm->size, err));
    membership = comm->membership;
    work = tc_work_take(comm, membership, call);
    if (work == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "work object of %s",
                            tc_op_name(call->kind));
    }
    work->op.timeout_ns =
        timeout_ns != 0 ? timeout_ns : tc_load_relaxed_u64(&comm->timeout_ns);
    status = comm->backend->issue[call->kind](membership->ctx, &work->op);
    if (status == TC_PENDING) {
        tc_fetch_add_relaxed_u64(&membership->issued, 1);
        tc_membership_retain(membership);
        tc_comm_retain(comm);
        *work_p = work;
        return TC_PENDING;
    }
    if (status != TC_OK && err != NULL) {
        *err = work->error;
    }
    tc_work_put(membership, work);
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

bool
tc_comm_is_reconfigurable(const tc_comm *comm)
{
    return comm->reconfigurable;
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
