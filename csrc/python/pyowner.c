/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps the tensors of a pending work alive, and lets go of them with the GIL only. */
#include <stdlib.h>

#include "base/atomic.h"
#include "python/py.h"

typedef struct tc_py_owner {
    struct tc_py_owner *next;
    tc_py_state *state;
    PyObject *obj;
} owner;

/* The main thread runs this soon, holding the GIL. */
static int
drain_when_called(void *arg)
{
    tc_py_garbage_drain(arg);
    return 0;
}

/* The last reference to a work may go on any thread, also inside the core: nothing but
 * a push is safe here. A call that cannot be queued is made up for by the next call
 * into this module. */
static void
owner_release(void *ptr)
{
    owner *o = ptr;
    tc_py_garbage *garbage = &o->state->garbage;

    do {
        o->next = tc_load_acquire_ptr(&garbage->head);
    } while (!tc_cas_acq_rel_ptr(&garbage->head, o->next, o));
    if (Py_IsInitialized() && tc_cas_acq_rel_u32(&garbage->scheduled, 0, 1) &&
        Py_AddPendingCall(drain_when_called, o->state) != 0) {
        tc_store_release_u32(&garbage->scheduled, 0);
    }
}

void
tc_py_garbage_drain(tc_py_state *state)
{
    owner *o;

    tc_store_release_u32(&state->garbage.scheduled, 0);
    o = tc_exchange_acq_rel_ptr(&state->garbage.head, NULL);
    while (o != NULL) {
        owner *next = o->next;

        Py_DECREF(o->obj);
        free(o);
        o = next;
    }
}

bool
tc_py_owner_set(tc_py_state *state, tc_work *work, PyObject *obj)
{
    owner *o = malloc(sizeof(*o));

    if (o == NULL) {
        return false;
    }
    *o = (owner){NULL, state, Py_NewRef(obj)};
    tc_work_set_owner(work, (tc_owner){o, owner_release});
    return true;
}
