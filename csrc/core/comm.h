/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator: one backend object with a name, ranks, a timeout and operations. */
#ifndef TC_CORE_COMM_H
#define TC_CORE_COMM_H

#include "core/work.h"

typedef struct tc_comm tc_comm;

/* What a communicator is made from; borrowed during tc_comm_create. */
typedef struct tc_comm_options {
    const char *backend; /* a registered name */
    const char *name;
    int32_t rank;
    int32_t size;
    tc_device device;
    uint64_t timeout_ns;
    bool abort_process; /* kept for the faces: abort_process_on_timeout_or_error */
    const tc_store *store; /* NULL only where size is 1, or `reconfigurable` */
    const tc_hint *hints;
    size_t hint_count;
    tc_interrupt interrupt; /* of the start-up */
    bool reconfigurable; /* without ranks until a tc_comm_reconfigure */
} tc_comm_options;

/* Collective over all ranks, unless it is `reconfigurable`: then local, and rank, size
 * and store are ignored. `engine` outlives the communicator. */
tc_status
tc_comm_create(const tc_comm_options *options, struct tc_engine *engine,
               tc_comm **comm_p, tc_error *err);

void
tc_comm_retain(tc_comm *comm);

/* The last reference finalizes what was not finalized and frees. */
void
tc_comm_release(tc_comm *comm);

/* Waits for this rank's outstanding works (their timeouts bound it), then leaves the
 * communicator; local, never a barrier. TC_ERR_FINALIZED the second time; a broken
 * communicator is left all the same and its error returned, unless this rank aborted
 * it. One that is, or was, reconfigurable waits for a second at most, then its works
 * fail; it returns no error of a broken membership, whose members may have gone on. */
tc_status
tc_comm_finalize(tc_comm *comm, const tc_interrupt *interrupt, tc_error *err);

/* TC_OK while operations may be issued, else why not: TC_ERR_FINALIZED or
 * TC_ERR_NOT_INITIALIZED. */
tc_status
tc_comm_check_usable(const tc_comm *comm, tc_error *err);

/* Fails all outstanding and later operations of every rank, and a reconfigure that is
 * under way on this one. Any thread; idempotent. */
void
tc_comm_abort(tc_comm *comm);

bool
tc_comm_is_abort_supported(const tc_comm *comm);

/* Whether it was aborted or has found a failure, since the last reconfigure. */
bool
tc_comm_is_aborted(const tc_comm *comm);

/* Issues one operation. `timeout_ns` 0 means the communicator's. The call and its
 * arrays are borrowed for this function only; its buffers until the work ends. TC_OK:
 * finished, *work_p is NULL. TC_PENDING: *work_p is a new reference. Otherwise the call
 * was refused (nothing was sent, it can be repeated) or failed. */
tc_status
tc_comm_issue(tc_comm *comm, const tc_call *call, uint64_t timeout_ns, tc_work **work_p,
              tc_error *err);

/* A child of `ranks` (of this communicator, in the order of the child); every rank of
 * the parent calls it; ranks in no list pass rank_count 0 and get NULL. A timeout of 0,
 * `abort_process` NULL and `hints` NULL are inherited. */
typedef struct tc_split_options {
    const int32_t *ranks;
    int32_t rank_count;
    const char *name;
    uint64_t timeout_ns;
    const bool *abort_process;
    const tc_hint *hints;
    size_t hint_count;
    tc_interrupt interrupt;
} tc_split_options;

tc_status
tc_comm_split(tc_comm *comm, const tc_split_options *options, tc_comm **child_p,
              tc_error *err);

/* -1 and 0 while it has no ranks. Valid after finalize. */
int32_t
tc_comm_rank(const tc_comm *comm);

int32_t
tc_comm_size(const tc_comm *comm);

/* What follows is valid for the life of the object. */
const char *
tc_comm_name(const tc_comm *comm);

/* The name asked for; children inherit it. */
const char *
tc_comm_backend_name(const tc_comm *comm);

const char *
tc_comm_backend_version(const tc_comm *comm); /* NULL where there is none */

tc_device
tc_comm_device(const tc_comm *comm);

uint64_t
tc_comm_timeout(const tc_comm *comm);

void
tc_comm_set_timeout(tc_comm *comm, uint64_t timeout_ns);

bool
tc_comm_abort_process(const tc_comm *comm);

/* TC_BACKEND_... of its backend. */
uint32_t
tc_comm_backend_flags(const tc_comm *comm);

bool
tc_comm_is_reconfigurable(const tc_comm *comm);

/* The hints in effect; valid until they are set. */
size_t
tc_comm_hints(const tc_comm *comm, const tc_hint **hints_p);

/* Later memberships and children get these. Not while another thread uses it. */
tc_status
tc_comm_set_hints(tc_comm *comm, const tc_hint *hints, size_t count, tc_error *err);

/* A slot for the one face object of this communicator (a weak pointer that the face
 * guards with a lock of its own). */
void **
tc_comm_face_slot(tc_comm *comm);

#endif
