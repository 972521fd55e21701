/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPython face: module state, objects, and what its files offer each other. */
#ifndef TC_PYTHON_PY_H
#define TC_PYTHON_PY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "core/comm.h"
#include "core/work.h"
#include "loop/engine.h"
#include "python/capi.h"
#include "python/pynames.h"

enum { TC_PY_TENSOR_TYPES = 4, TC_PY_MAX_PARAMS = 11 };

struct tc_py_dlpack;

/* A tensor class that was seen and its way to the data. `type` is a strong reference.
 */
typedef struct tc_py_tensor_type {
    PyTypeObject *type;
    const struct tc_py_dlpack *api;
} tc_py_tensor_type;

/* What a thread without the GIL leaves to one that holds it. `fn` may free it. */
typedef struct tc_py_later {
    struct tc_py_later *next;
    struct tc_py_state *state;
    void (*fn)(struct tc_py_later *later);
} tc_py_later;

/* Above all Python objects whose last reference was dropped without the GIL. Threads
 * push by compare-and-swap; whoever holds the GIL takes the whole list. */
typedef struct tc_py_garbage {
    tc_py_later *head;
    uint32_t scheduled; /* a pending call is queued */
} tc_py_garbage;

typedef struct tc_py_owner tc_py_owner;
typedef struct tc_py_watch tc_py_watch;
struct tc_py_comm;

/* Guarded by the GIL, except `garbage`. */
typedef struct tc_py_state {
    PyTypeObject *handle_type;
    PyTypeObject *pre_types[TC_OP_KIND_COUNT]; /* arguments of hooks */
    PyTypeObject *post_types[TC_OP_KIND_COUNT];
    PyObject *op_names[TC_OP_KIND_COUNT]; /* members of OpName */
    tc_py_watch *watches; /* of works in flight; its head may be read by any thread */
    PyTypeObject *comm_type;
    PyTypeObject *work_type;
    PyTypeObject *batch_type;
    PyTypeObject *p2p_type;
    PyTypeObject *redop_type;
    PyTypeObject *allocator_type;
    PyObject *allocators; /* dict: a backend's name to its MemAllocator */
    PyObject *redop_enum; /* RedOpType */
    PyObject *p2p_enum; /* P2POpType */
    PyObject *done; /* the TorchWork of every operation that has succeeded */
    PyObject *timedelta;
    PyObject *tensor; /* torch.Tensor, once a tensor came */
    PyObject *names[TC_PY_NAME_COUNT];
    tc_py_tensor_type tensor_types[TC_PY_TENSOR_TYPES];
    tc_py_view_fn view; /* the c10d shim's, once it is loaded */
    tc_py_garbage garbage;
    /* Life of the process */
    tc_engine *engine;
    uint32_t engine_generation;
    bool at_exit; /* the exit function is registered */
    bool closed; /* it has run */
    bool silent; /* and is through: no more Python functions are called */
    struct tc_py_comm *comms; /* communicators with a Python object */
    tc_comm **orphans; /* dropped while an operation was in flight */
    size_t orphan_count;
    struct tc_py_hold *holds; /* communicators of the c10d shim */
    struct tc_py_hold *dropped; /* pushed by any thread, like `garbage` */
    uint32_t drop_scheduled;
    void (*shim_exit)(void);
} tc_py_state;

/* `generation` is that of the process which made the object: a forked child leaves the
 * objects of its parent alone. */
typedef struct tc_py_comm {
    PyObject_HEAD PyObject *weakrefs;
    tc_comm *comm;
    struct tc_py_comm *next, *prev; /* state->comms */
    uint32_t generation;
} tc_py_comm;

/* `work` is NULL once the operation has succeeded; an error stays with its work. */
typedef struct tc_py_work {
    PyObject_HEAD PyObject *weakrefs;
    tc_work *work;
    tc_py_watch *watch; /* NULL until somebody observes */
    uint64_t begin_ns; /* 0: not known */
    uint64_t end_ns; /* of one that had ended when it was returned */
    uint32_t generation;
} tc_py_work;

typedef struct tc_py_redop {
    PyObject_HEAD tc_redop op;
    double factor;
} tc_py_redop;

/* module.c */
static inline tc_py_state *
tc_py_state_of(PyTypeObject *cls)
{
    return PyType_GetModuleState(cls);
}

/* For destructors: NULL where the interpreter, ending, has taken the module from its
 * types before it drops their last objects. An exception that is set stays. */
tc_py_state *
tc_py_state_at_end(PyTypeObject *cls);

/* Number of forks between the first process and this one. */
uint32_t
tc_py_generation(void);

/* False, with a RuntimeError, in a fork of the process that made the object. There the
 * memory shared with other ranks is not mapped. */
bool
tc_py_check_process(uint32_t generation, const char *call);

/* False, with a RuntimeError "not initialized", while the communicator has no ranks. */
bool
tc_py_check_configured(const tc_comm *comm);

/* Visits the type and nothing else: for objects that hold no other. */
int
tc_py_traverse_type(PyObject *self, visitproc visit, void *arg);

/* What `memo` has for `self`, else what `copy` makes, which is stored there. */
PyObject *
tc_py_deepcopy(PyObject *self, PyObject *memo, PyCFunction copy);

extern PyType_Spec tc_py_comm_spec;
extern PyType_Spec tc_py_work_spec;
extern PyType_Spec tc_py_batch_spec;
extern PyType_Spec tc_py_p2p_spec;
extern PyType_Spec tc_py_redop_spec;
extern PyType_Spec tc_py_allocator_spec;
extern PyType_Spec tc_py_handle_spec;

/* pyerror.c. Returns NULL; an exception that is set already stays. */
PyObject *
tc_py_raise(tc_status status, const tc_error *err);

/* pydevice.c */

/* "cpu"; "?" for an unknown type. */
const char *
tc_py_device_name(tc_device_type type);

/* "cuda:0", a new reference. */
PyObject *
tc_py_device_text(tc_device device);

/* A torch.device, a new reference. */
PyObject *
tc_py_device_object(tc_device device);

bool
tc_py_to_device(PyObject *type, PyObject *index, tc_device *device_p);

/* pyowner.c: who keeps tensors alive while the core works on them */

/* Calls `later->fn` soon, on a thread with the GIL; from any thread. */
void
tc_py_later_push(tc_py_later *later);

/* A new reference to `obj`, given up by tc_py_owner_release on any thread; NULL without
 * memory. */
tc_py_owner *
tc_py_owner_make(tc_py_state *state, PyObject *obj);

void
tc_py_owner_release(void *owner);

/* Borrowed. */
PyObject *
tc_py_owner_object(const tc_py_owner *owner);

tc_py_state *
tc_py_owner_state(const tc_py_owner *owner);

/* Holds `obj` for as long as the work lives; false without memory. */
bool
tc_py_owner_set(tc_py_state *state, tc_work *work, PyObject *obj);

/* Drops what other threads left behind. Holding the GIL. */
void
tc_py_garbage_drain(tc_py_state *state);

static inline void
tc_py_garbage_check(tc_py_state *state)
{
    if (tc_load_acquire_ptr(&state->garbage.head) != NULL) {
        tc_py_garbage_drain(state);
    }
}

/* pywait.c */

/* Where the GIL was left, for the interrupt callback. */
typedef struct tc_py_pause {
    PyThreadState *thread;
    uint64_t next_look_ns;
} tc_py_pause;

/* Releases the GIL. The returned interrupt takes it back for a moment, every few
 * milliseconds, to run signal handlers. */
tc_interrupt
tc_py_pause_begin(tc_py_pause *pause);

void
tc_py_pause_end(tc_py_pause *pause);

/* tc_work_wait; TC_INTERRUPTED comes with a Python exception set. */
tc_status
tc_py_wait_work(tc_work *work, tc_error *err);

/* pycomm.c, pywork.c, pybatch.c: the objects; references to the core's are stolen, also
 * on failure. */
PyObject *
tc_py_comm_wrap(tc_py_state *state, tc_comm *comm);

/* `work` NULL: one that has succeeded. */
PyObject *
tc_py_work_wrap(tc_py_state *state, tc_work *work);

PyObject *
tc_py_batch_create(tc_py_state *state, PyObject *comm);

/* pyredop.c: the class attributes SUM, PRODUCT and so on */
int
tc_py_redops_add(tc_py_state *state);

/* A new reference. */
PyObject *
tc_py_redop_get(tc_py_state *state, tc_redop op, double factor);

/* pymemory.c: the one MemAllocator of a backend, a new reference */
PyObject *
tc_py_allocator_get(tc_py_state *state, const char *backend, tc_device_type device);

/* pylife.c */

/* The engine of this process, made at the first call. */
tc_status
tc_py_engine(tc_py_state *state, tc_engine **engine_p, tc_error *err);

/* Takes over the reference of an object that is gone; never waits for operations. */
void
tc_py_comm_leave(tc_py_state *state, tc_comm *comm);

/* The exit function: leaves every communicator and ends the engine. */
PyObject *
tc_py_at_exit(PyObject *module, PyObject *none);

/* pyline.c: for benchmarks */
PyObject *
tc_py_line_round_trip(PyObject *module, PyObject *args);

/* pycapi.c: what the c10d shim is given, and what it holds */
int
tc_py_capi_add(PyObject *module, tc_py_state *state);

bool
tc_py_comm_is_held(tc_py_state *state, const tc_comm *comm);

/* Calls `leave` for each communicator that is held; whether all were left. */
bool
tc_py_holds_at_exit(tc_py_state *state, bool (*leave)(tc_comm *comm));

/* pycreate.c: torchcomms._core._new_comm, and whose object a store is; NULL where it is
 * not one of Python's */
PyObject *
tc_py_store_object(const tc_store *store);

PyObject *
tc_py_new_comm(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames);

#endif
