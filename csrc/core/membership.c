/* SPDX-License-Identifier: BSD-3-Clause */
/* The time between two reconfigures: made, counted, revoked, destroyed. */
#include <stdlib.h>

#include "base/atomic.h"
#include "core/object.h"

tc_membership *
tc_membership_create(const tc_backend *backend)
{
    tc_membership *membership = calloc(1, sizeof(*membership));

    if (membership != NULL) {
        membership->backend = backend;
        membership->refs = 1;
        membership->spins = UINT32_MAX; /* as many as the backend allows */
    }
    return membership;
}

void
tc_membership_retain(tc_membership *membership)
{
    tc_fetch_add_seq_cst_u32(&membership->refs, 1);
}

void
tc_membership_release(tc_membership *membership)
{
    if (tc_fetch_sub_seq_cst_u32(&membership->refs, 1) != 1) {
        return;
    }
    if (membership->ctx != NULL) {
        membership->backend->comm_destroy(membership->ctx);
    }
    free(membership->spare);
    free(membership);
}

bool
tc_membership_is_idle(const void *membership)
{
    const tc_membership *m = membership;

    return tc_load_relaxed_u64(&m->issued) == tc_load_relaxed_u64(&m->ended);
}

void
tc_membership_revoke(tc_membership *membership, const char *why)
{
    const tc_backend *backend = membership->backend;

    if (backend->comm_revoke != NULL) {
        backend->comm_revoke(membership->ctx, why);
    } else if (backend->comm_abort != NULL) {
        backend->comm_abort(membership->ctx);
    }
}
