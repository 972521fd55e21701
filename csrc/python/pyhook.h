/* SPDX-License-Identifier: BSD-3-Clause */
/* Hooks that are Python functions: what the files about them share. */
#ifndef TC_PYTHON_PYHOOK_H
#define TC_PYTHON_PYHOOK_H

#include "core/hooks.h"
#include "python/pyargs.h"

/* pyhook.c: the methods of TorchComm */
extern const char tc_py_register_pre_hook_doc[];
extern const char tc_py_register_post_hook_doc[];
extern const char tc_py_register_abort_hook_doc[];

PyObject *
tc_py_comm_register_pre_hook(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames);

PyObject *
tc_py_comm_register_post_hook(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames);

PyObject *
tc_py_comm_register_abort_hook(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames);

/* tc_hooks_begin and tc_hooks_end for an event whose `face` is a tc_py_subject.
 * TC_INTERRUPTED comes with the exception of a hook set. */
tc_status
tc_py_hooks_begin(tc_comm *comm, tc_hook_event *event, tc_error *err);

tc_status
tc_py_hooks_end(tc_comm *comm, tc_hook_event *event, tc_error *err);

/* The rest of an operation that began with tc_py_hooks_begin: `result` is its
 * TorchWork, stolen, or NULL with an exception. The TorchWork to return, or NULL. */
PyObject *
tc_py_hooks_finish(tc_py_state *state, tc_comm *comm, tc_hook_event *event,
                   PyObject *result);

/* Of the communicator's hooks, for tp_traverse and tp_clear of its object. */
int
tc_py_hooks_traverse(const tc_comm *comm, visitproc visit, void *arg);

/* pyhandle.c: a RemovableHandle, which takes over `hook`, also on failure */
PyObject *
tc_py_handle_make(tc_py_state *state, tc_hook *hook);

/* pyhookargs.c: the argument classes */
int
tc_py_hook_types_add(PyObject *module, tc_py_state *state);

PyObject *
tc_py_pre_args_make(tc_py_state *state, const tc_hook_event *event);

/* `work` and `child` may be NULL. */
PyObject *
tc_py_post_args_make(tc_py_state *state, tc_op_kind kind, PyObject *work,
                     PyObject *child);

/* pyobserve.c: who is told of a work's start, waits and end */
extern const char tc_py_observe_doc[];

PyObject *
tc_py_work_observe(PyObject *self, PyObject *fn);

/* When the operation began and, unless 0, ended. */
void
tc_py_work_set_times(PyObject *work, uint64_t begin_ns, uint64_t end_ns);

/* Somebody begins to wait. */
void
tc_py_watch_wait(tc_py_watch *watch);

/* Reports the end, if the work has ended and nobody has done it. */
void
tc_py_watch_settle(tc_py_watch *watch);

int
tc_py_watch_traverse(tc_py_watch *watch, visitproc visit, void *arg);

/* Drops a work object's reference. */
void
tc_py_watch_release(tc_py_watch *watch);

/* For a wait through the c10d shim, with or without the GIL. */
void
tc_py_work_waits(void *state, tc_work *work);

#endif
