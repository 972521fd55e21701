/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments of a call: sorted by a table, then converted one by one. */
#ifndef TC_PYTHON_PYARGS_H
#define TC_PYTHON_PYARGS_H

#include "python/py.h"

/* Parameters in order; the first `required` have no default. */
typedef struct tc_py_params {
    const char *method;
    uint8_t required;
    uint8_t names[TC_PY_MAX_PARAMS + 1]; /* tc_py_name; ends with TC_PY_NO_NAME */
} tc_py_params;

/* Sorts the arguments of a vectorcall into `slots`, borrowed; absent ones are NULL. */
bool
tc_py_bind(tc_py_state *state, const tc_py_params *params, PyObject *const *args,
           Py_ssize_t nargs, PyObject *kwnames, PyObject **slots);

/* The parameter's name. */
const char *
tc_py_param_text(const tc_py_params *params, int i);

/* Raises TypeError "<name> must be <wanted>, but got <type>"; returns false. */
bool
tc_py_refuse_type(const char *name, const char *wanted, PyObject *obj);

/* Each converts one argument; false with an exception that names it. */

/* NULL is false. */
bool
tc_py_to_bool(PyObject *obj, const char *name, bool *value_p);

bool
tc_py_to_int(PyObject *obj, const char *name, long long *value_p);

bool
tc_py_to_rank(PyObject *obj, const char *name, int32_t size, int32_t *rank_p);

/* A timedelta; None or NULL is 0. */
bool
tc_py_to_timeout(tc_py_state *state, PyObject *obj, uint64_t *ns_p);

PyObject *
tc_py_from_timeout(tc_py_state *state, uint64_t ns);

/* None, NULL or a dict of strings. The array is from malloc, its strings the dict's. */
bool
tc_py_to_hints(PyObject *obj, tc_hint **hints_p, size_t *count_p);

/* For operations, which accept any hint and act on none: checks the types only. */
bool
tc_py_check_hints(PyObject *obj);

/* pytensor.c. Refuses whatever cannot be read and written as plain elements on the
 * communicator's device; `index` is the place in a list, or -1. */
bool
tc_py_view_tensor(tc_py_state *state, const tc_comm *comm, PyObject *obj,
                  const char *name, Py_ssize_t index, tc_py_view *view_p);

/* DLPack shows torch's int1 to int7 and uint1 to uint7 as whole bytes, which they are
 * to move, but not to reckon with: refuses those. */
bool
tc_py_check_reducible(tc_py_state *state, PyObject *obj, const char *name,
                      const tc_py_view *view);

#endif
