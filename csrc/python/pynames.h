/* SPDX-License-Identifier: BSD-3-Clause */
/* The Python names that calls look up: their one list. */
#ifndef TC_PYTHON_PYNAMES_H
#define TC_PYTHON_PYNAMES_H

/* Names of parameters and methods that are looked up at each call, interned once. */
#define TC_PY_NAMES(X) \
    X(tensor) \
    X(tensor_list) \
    X(output) \
    X(input) \
    X(input_list) \
    X(output_tensor) \
    X(input_tensor) \
    X(output_tensor_list) \
    X(input_tensor_list) \
    X(output_split_sizes) \
    X(input_split_sizes) \
    X(root) \
    X(dst) \
    X(src) \
    X(op) \
    X(async_op) \
    X(hints) \
    X(timeout) \
    X(options) \
    X(ranks) \
    X(name) \
    X(backend) \
    X(handle) \
    X(device_type) \
    X(device_index) \
    X(rank) \
    X(size) \
    X(abort_process) \
    X(store) \
    X(enable_reconfigure) \
    X(uuid) \
    X(init_handles) \
    X(shape) \
    X(is_neg) \
    X(is_conj) \
    X(dtype) \
    X(callback) \
    X(days) \
    X(seconds) \
    X(microseconds)

typedef enum tc_py_name {
    TC_PY_NO_NAME,
#define TC_PY_NAME_ID(name) TC_PY_##name,
    TC_PY_NAMES(TC_PY_NAME_ID)
#undef TC_PY_NAME_ID
        TC_PY_NAME_COUNT
} tc_py_name;

/* pyargs.c: the names themselves */
extern const char *const tc_py_name_texts[TC_PY_NAME_COUNT];

#endif
