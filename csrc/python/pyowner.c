/* SPDX-License-Identifier: BSD-3-Clause */
/* What other threads leave to a holder of the GIL: above all, letting go of objects. */
#include <stdlib.h>

#include "base/atomic.h"
#include "python/py.h"

struct tc_py_owner {
    tc_py_later later; /* first */
    PyObject *obj;
};

/* The main thread runs this soon, holding the GIL. */
static int
drain_when_called(void *arg)
{
    tc_py_garbage_drain(arg);
    return 0;
}

/* Nothing but a push is safe here. A call that cannot be queued is made up for by the
 * next call into this module. */
void
tc_py_later_push(tc_py_later *later)
{
    tc_py_state *state = later->state;
    tc_py_garbage *garbage = &state->garbage;

    do {
        later->next = tc_load_acquire_ptr(&garbage->head);
    } while (!tc_cas_acq_rel_ptr(&garbage->head, later->next, later));
    if (Py_IsInitialized() && tc_cas_acq_rel_u32(&garbage->scheduled, 0, 1) &&
        Py_AddPendingCall(drain_when_called, state) != 0) {
        tc_store_release_u32(&garbage->scheduled, 0);
    }
}

void
tc_py_garbage_drain(tc_py_state *state)
{
    tc_py_later *newest, *oldest = NULL;

    tc_store_release_u32(&state->garbage.scheduled, 0);
    newest = tc_exchange_acq_rel_ptr(&state->garbage.head, NULL);
    while (newest != NULL) {
        tc_py_later *next = newest->next;

        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        tc_py_later *next = oldest->next;

        oldest->fn(oldest);
        oldest = next;
    }
}

static void
let_go(tc_py_later *later)
{
    tc_py_owner *o = (tc_py_owner *)later;

    Py_DECREF(o->obj);
    free(o);
}

tc_py_owner *
tc_py_owner_make(tc_py_state *state, PyObject *obj)
{
    tc_py_owner *o = malloc(sizeof(*o));

    if (o != NULL) {
        o->later = (tc_py_later){NULL, state, let_go};
        o->obj = Py_NewRef(obj);
    }
    return o;
}

PyObject *
tc_py_owner_object(const tc_py_owner *owner)
{
    return owner->obj;
}

tc_py_state *
tc_py_owner_state(const tc_py_owner *owner)
{
    return owner->later.state;
}

/* The last reference to a work may go on any thread, also inside the core. */
void
tc_py_owner_release(void *ptr)
{
    tc_py_later_push(ptr);
}

bool
tc_py_owner_set(tc_py_state *state, tc_work *work, PyObject *obj)
{
    tc_py_owner *o = tc_py_owner_make(state, obj);

    if (o == NULL) {
        return false;
    }
    tc_work_set_owner(work, (tc_owner){o, tc_py_owner_release});
    return true;
}
