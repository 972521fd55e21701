/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives, beside the collectives. */
#include "backend/native/state.h"
#include "base/error.h"

tc_status
tc_native_p2p_create(tc_native *comm, tc_error *err)
{
    (void)comm;
    (void)err;
    return TC_OK;
}

void
tc_native_p2p_destroy(tc_native *comm)
{
    (void)comm;
}

void
tc_native_p2p_post_locked(tc_native *comm, tc_op *op)
{
    tc_native_complete_locked(
        comm, op, tc_error_set(op->error, TC_ERR_UNSUPPORTED, "not built yet"));
}

bool
tc_native_p2p_step_locked(tc_native *comm)
{
    (void)comm;
    return false;
}

void
tc_native_p2p_look_locked(tc_native *comm, uint64_t now_ns)
{
    (void)comm;
    (void)now_ns;
}

void
tc_native_p2p_fail_locked(tc_native *comm)
{
    (void)comm;
}

bool
tc_native_p2p_is_idle_locked(const tc_native *comm)
{
    (void)comm;
    return true;
}
