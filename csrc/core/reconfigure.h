/* SPDX-License-Identifier: BSD-3-Clause */
/* Other ranks for a communicator: init handles and reconfigure. */
#ifndef TC_CORE_RECONFIGURE_H
#define TC_CORE_RECONFIGURE_H

#include "core/comm.h"

/* The text by which others reach this communicator; the same, and valid, for its whole
 * life. */
tc_status
tc_comm_init_handle(tc_comm *comm, const char **handle_p, tc_error *err);

typedef struct tc_reconfigure_options {
    uint64_t uuid; /* new for each membership; need not grow */
    const char *const *handles;
    int32_t count;
    bool ordered; /* handle i is rank i; else every member finds the same order */
    uint64_t timeout_ns; /* 0: the communicator's */
    const tc_hint *hints; /* NULL: as they were */
    size_t hint_count;
    tc_interrupt interrupt;
} tc_reconfigure_options;

/* Collective over the owners of `handles`, which all pass the same. A bad argument is
 * refused before anything has happened. After any other failure the communicator has no
 * ranks, and may be reconfigured again. Left by tc_comm_abort and tc_comm_finalize of
 * another thread. */
tc_status
tc_comm_reconfigure(tc_comm *comm, const tc_reconfigure_options *options,
                    tc_error *err);

/* Whether a backend has all that it takes. */
bool
tc_backend_can_reconfigure(const tc_backend *backend);

#endif
