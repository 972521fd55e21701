/* SPDX-License-Identifier: BSD-3-Clause */
/* Init handles, and the way from one membership to the next. */
#include "core/reconfigure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "core/object.h"

bool
tc_backend_can_reconfigure(const tc_backend *backend)
{
    return backend->endpoint_open != NULL && backend->endpoint_close != NULL &&
           backend->endpoint_check != NULL && backend->reconfigure != NULL;
}

/* One reconfigure. `handles` is in the order of the ranks. */
typedef struct move {
    tc_comm *comm;
    const tc_reconfigure_options *options;
    const char **handles;
    int32_t rank;
    uint64_t start_ns;
    uint64_t timeout_ns;
} move;

static tc_status
open_endpoint(tc_comm *comm, tc_error *err)
{
    const tc_interrupt never = {0};
    char handle[TC_INIT_HANDLE_BYTES] = "";
    tc_comm_config config;
    void *endpoint = NULL;

    tc_comm_fill_config(comm, &never, &config);
    config.rank = -1;
    config.size = 0;
    TC_TRY(comm->backend->endpoint_open(&config, &endpoint, handle, err));
    comm->handle = strdup(handle);
    if (comm->handle == NULL) {
        comm->backend->endpoint_close(endpoint);
        return tc_error_set(err, TC_ERR_NO_MEMORY, "init handle of communicator '%s'",
                            comm->name);
    }
    comm->endpoint = endpoint;
    return TC_OK;
}

/* Only one thread at a time may be about the endpoint. */
static tc_status
begin_move(tc_comm *comm, tc_error *err)
{
    tc_status status = TC_OK;

    pthread_mutex_lock(&comm->lock);
    if (tc_load_acquire_u32(&comm->state) == TC_COMM_FINALIZED) {
        status = tc_comm_check_usable(comm, err);
    } else if (comm->moving) {
        status = tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                              "another thread is reconfiguring communicator '%s'",
                              comm->name);
    } else {
        comm->moving = true;
    }
    pthread_mutex_unlock(&comm->lock);
    return status;
}

static void
end_move(tc_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->moving = false;
    pthread_mutex_unlock(&comm->lock);
    if (tc_load_acquire_u32(&comm->state) == TC_COMM_FINALIZED) {
        tc_comm_close_endpoint(comm);
    }
}

void
tc_comm_close_endpoint(tc_comm *comm)
{
    void *endpoint = NULL;

    pthread_mutex_lock(&comm->lock);
    if (!comm->moving) {
        endpoint = comm->endpoint;
        comm->endpoint = NULL;
    }
    pthread_mutex_unlock(&comm->lock);
    if (endpoint != NULL) {
        comm->backend->endpoint_close(endpoint);
    }
}

tc_status
tc_comm_init_handle(tc_comm *comm, const char **handle_p, tc_error *err)
{
    tc_status status = TC_OK;

    if (!tc_backend_can_reconfigure(comm->backend)) {
        return tc_error_set(err, TC_ERR_UNSUPPORTED,
                            "getInitHandle not implemented for communicator '%s'",
                            comm->name);
    }
    /* Once there, it never changes. */
    if (tc_load_acquire_u32(&comm->state) == TC_COMM_FINALIZED) {
        return tc_comm_check_usable(comm, err);
    }
    if (comm->handle == NULL) {
        TC_TRY(begin_move(comm, err));
        status = comm->endpoint == NULL ? open_endpoint(comm, err) : TC_OK;
        end_move(comm);
    }
    if (status == TC_OK) {
        *handle_p = comm->handle;
    }
    return status;
}

static int
compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two places of one handle, or -1 in both. */
static void
find_twins(const tc_reconfigure_options *options, int32_t *first_p, int32_t *second_p)
{
    *first_p = *second_p = -1;
    for (int32_t i = 0; i < options->count; i++) {
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(options->handles[i], options->handles[k]) == 0) {
                *first_p = k;
                *second_p = i;
                return;
            }
        }
    }
}

static tc_status
check_each(const tc_comm *comm, const tc_reconfigure_options *options, tc_error *err)
{
    int32_t first, second;

    for (int32_t i = 0; i < options->count; i++) {
        tc_status status =
            comm->backend->endpoint_check(comm->endpoint, options->handles[i], err);

        if (status != TC_OK) {
            tc_error_prefix(err, "init_handles[%d] '%.100s'", i, options->handles[i]);
            return status;
        }
    }
    find_twins(options, &first, &second);
    if (first >= 0) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "init_handles[%d] and init_handles[%d] are both '%.200s'",
                            first, second, options->handles[first]);
    }
    return TC_OK;
}

/* Everything that can be told without a peer, before the old membership is touched. */
static tc_status
check(const tc_comm *comm, const tc_reconfigure_options *options, tc_error *err)
{
    if (options->count < 1) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "init_handles is empty: it lacks the handle of this "
                            "communicator, '%.200s'",
                            comm->handle);
    }
    if (comm->has_uuid && tc_load_acquire_u32(&comm->state) == TC_COMM_READY &&
        comm->uuid == options->uuid) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "uuid must be new for each membership, but communicator "
                            "'%s' is at %" PRIu64 " and got %" PRIu64,
                            comm->name, comm->uuid, options->uuid);
    }
    return check_each(comm, options, err);
}

static tc_status
order(move *m, tc_error *err)
{
    const tc_reconfigure_options *options = m->options;
    size_t count = (size_t)options->count;

    m->handles = malloc(count * sizeof(m->handles[0]));
    if (m->handles == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "table of %zu init handles", count);
    }
    memcpy(m->handles, options->handles, count * sizeof(m->handles[0]));
    if (!options->ordered) {
        qsort(m->handles, count, sizeof(m->handles[0]), compare_texts);
    }
    for (int32_t i = 0; i < options->count; i++) {
        if (strcmp(m->handles[i], m->comm->handle) == 0) {
            m->rank = i;
            return TC_OK;
        }
    }
    return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                        "the init handle of this communicator, '%.200s', is not among "
                        "the %d init_handles",
                        m->comm->handle, options->count);
}

/* Local. What is in flight fails here, and with the peers where they need this rank;
 * with nothing in flight a peer may still end what it needs others for. */
static void
leave(move *m)
{
    tc_comm *comm = m->comm;
    tc_membership *old = NULL;
    char why[128];

    pthread_mutex_lock(&comm->lock);
    /* One that was just finalized is left by whoever does that. */
    if (tc_cas_acq_rel_u32(&comm->state, TC_COMM_READY, TC_COMM_UNCONFIGURED)) {
        snprintf(why, sizeof(why), "rank %d left it for membership %" PRIu64,
                 comm->rank, m->options->uuid);
        old = comm->membership;
        comm->membership = NULL;
        comm->rank = -1;
        comm->size = 0;
        comm->has_uuid = false;
    }
    tc_store_release_u32(&comm->aborted, 0);
    pthread_mutex_unlock(&comm->lock);
    if (old == NULL) {
        return;
    }
    if (!tc_membership_is_idle(old)) {
        tc_membership_revoke(old, why);
        tc_membership_wait(old, tc_membership_is_idle, old,
                           tc_deadline_after(m->start_ns, m->timeout_ns), NULL);
    }
    old->backend->comm_finalize(old->ctx, NULL);
    tc_membership_release(old);
}

static bool
is_called_off(const tc_comm *comm)
{
    return tc_load_acquire_u32(&comm->aborted) != 0 ||
           tc_load_acquire_u32(&comm->state) == TC_COMM_FINALIZED;
}

static bool
interrupted(void *ctx)
{
    const move *m = ctx;
    const tc_interrupt *user = &m->options->interrupt;

    return is_called_off(m->comm) ||
           (user->interrupted != NULL && user->interrupted(user->ctx));
}

static tc_status
called_off(const tc_comm *comm, tc_error *err)
{
    bool finalized = tc_load_acquire_u32(&comm->state) == TC_COMM_FINALIZED;

    return tc_error_set(err, finalized ? TC_ERR_FINALIZED : TC_ERR_ABORTED,
                        "communicator '%s' was %s during the reconfigure", comm->name,
                        finalized ? "finalized" : "aborted");
}

/* The new membership becomes the communicator's, unless somebody called it off. */
static tc_status
install(move *m, tc_membership *made, tc_error *err)
{
    tc_comm *comm = m->comm;
    tc_status status = TC_OK;

    pthread_mutex_lock(&comm->lock);
    if (is_called_off(comm)) {
        status = called_off(comm, err);
    } else {
        comm->membership = made;
        comm->rank = m->rank;
        comm->size = m->options->count;
        comm->uuid = m->options->uuid;
        comm->has_uuid = true;
        comm->reconfigurable = true;
        tc_store_release_u32(&comm->state, TC_COMM_READY);
    }
    pthread_mutex_unlock(&comm->lock);
    return status;
}

static tc_status
join(move *m, tc_error *err)
{
    tc_comm *comm = m->comm;
    tc_members members = {m->options->uuid, m->handles};
    tc_interrupt interrupt = {interrupted, m};
    tc_membership *made = tc_membership_create(comm->backend);
    tc_comm_config config;
    tc_status status;

    if (made == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "membership of communicator '%s'",
                            comm->name);
    }
    tc_comm_fill_config(comm, &interrupt, &config);
    config.rank = m->rank;
    config.size = m->options->count;
    config.timeout_ns = m->timeout_ns;
    status =
        comm->backend->reconfigure(comm->endpoint, &config, &members, &made->ctx, err);
    if (status == TC_OK) {
        status = install(m, made, err);
    } else if (status == TC_INTERRUPTED && is_called_off(comm)) {
        status = called_off(comm, err);
    }
    if (status != TC_OK) {
        tc_membership_release(made);
    }
    return status;
}

static tc_status
run(move *m, tc_error *err)
{
    tc_comm *comm = m->comm;

    if (comm->endpoint == NULL) {
        TC_TRY(open_endpoint(comm, err));
    }
    TC_TRY(check(comm, m->options, err));
    TC_TRY(order(m, err));
    if (m->options->hints != NULL) {
        TC_TRY(tc_comm_set_hints(comm, m->options->hints, m->options->hint_count, err));
    }
    m->start_ns = tc_clock_ns();
    leave(m);
    TC_TRY(join(m, err));
    TC_LOG(CORE, INFO, "communicator '%s': rank %d of %d of membership %" PRIu64,
           comm->name, comm->rank, comm->size, comm->uuid);
    return TC_OK;
}

tc_status
tc_comm_reconfigure(tc_comm *comm, const tc_reconfigure_options *options, tc_error *err)
{
    move m = {
        .comm = comm,
        .options = options,
        .timeout_ns =
            options->timeout_ns != 0 ? options->timeout_ns : tc_comm_timeout(comm),
    };
    tc_status status;

    if (!tc_backend_can_reconfigure(comm->backend)) {
        return tc_error_set(err, TC_ERR_UNSUPPORTED,
                            "reconfigure not implemented for communicator '%s'",
                            comm->name);
    }
    TC_TRY(begin_move(comm, err));
    status = run(&m, err);
    end_move(comm);
    free(m.handles);
    return status;
}
