/* SPDX-License-Identifier: BSD-3-Clause */
/* What torchcomms._core offers the c10d shim: a table of functions in a capsule. */
#ifndef TC_PYTHON_CAPI_H
#define TC_PYTHON_CAPI_H

#include "core/hooks.h"

/* The capsule's attribute and name. Its context is the first argument `ctx` below. */
#define TC_CAPI_ATTRIBUTE "_capi"
#define TC_CAPI_NAME "torchcomms._core._capi"

/* A communicator that the shim holds, so that it is not left when its Python object is
 * dropped. */
typedef struct tc_py_hold tc_py_hold;

struct _object;

/* A tensor's memory, borrowed from it. */
typedef struct tc_py_view {
    void *data;
    uint64_t count; /* elements */
    uint64_t bytes;
    uint64_t rows; /* length of dimension 0; 1 for a scalar */
    tc_dtype dtype;
    bool whole; /* no type of fewer bits lies behind `dtype` */
} tc_py_view;

/* [GIL] The view of a tensor that is plain elements in order, in CPU memory; false for
 * whatever needs a closer look, without an exception. */
typedef bool (*tc_py_view_fn)(struct _object *obj, tc_py_view *view_p);

/* What hooks may ask for of an operation. */
typedef enum tc_py_part {
    TC_PY_PART_TENSOR, /* of operations with one */
    TC_PY_PART_INPUT,
    TC_PY_PART_OUTPUT,
    TC_PY_PART_INPUT_SPLITS,
    TC_PY_PART_OUTPUT_SPLITS,
    TC_PY_PART_OP,
} tc_py_part;

/* `tc_hook_event.face`: one call as its user made it. Lives as long as the event. */
typedef struct tc_py_subject {
    /* [GIL] A new reference, to a new list where one is wanted; NULL without an
     * exception where the call has no such part. May itself be NULL. */
    struct _object *(*get)(void *ctx, tc_py_part part, bool list);
    void *ctx;
    /* The hooks' own, NULL at first. */
    struct _object *args;
    struct _object *work;
} tc_py_subject;

/* Members are only ever appended. Functions marked [GIL] are called with it, all others
 * with or without. What is not described here is described in core/comm.h and
 * core/work.h under the same name. */
typedef struct tc_capi {
    size_t struct_size;

    /* Number of forks between the first process and this one. */
    uint32_t (*generation)(void);
    /* [GIL] `fn` is called once, without the GIL, when the process exits: every
     * communicator has been left and no work ends later. */
    void (*set_exit)(void *ctx, void (*fn)(void));
    /* [GIL] A way to a tensor's memory that is faster than DLPack and the tensor's
     * methods, tried before them. */
    void (*set_view)(void *ctx, tc_py_view_fn fn);

    /* [GIL], which is released meanwhile. The options' interrupt is ignored;
     * TC_INTERRUPTED comes with a Python exception set. */
    tc_status (*comm_create)(void *ctx, tc_comm_options *options, tc_py_hold **hold_p,
                             tc_error *err);
    /* [GIL] Of a torchcomms.TorchComm; NULL with a Python exception. */
    tc_py_hold *(*comm_hold_object)(void *ctx, struct _object *obj);
    /* Takes over a reference; NULL without memory, and the reference is released. */
    tc_py_hold *(*comm_hold)(void *ctx, tc_comm *comm);
    /* Ends a hold; a communicator that nobody else has is left. Nothing in a fork. */
    void (*comm_drop)(void *ctx, tc_py_hold *hold);
    tc_comm *(*comm_of)(const tc_py_hold *hold);
    /* [GIL] The one TorchComm of a communicator, a new reference; NULL with a Python
     * exception. */
    struct _object *(*comm_object)(void *ctx, tc_comm *comm);

    tc_status (*comm_finalize)(tc_comm *comm, const tc_interrupt *interrupt,
                               tc_error *err);
    tc_status (*comm_check_usable)(const tc_comm *comm, tc_error *err);
    void (*comm_abort)(tc_comm *comm);
    bool (*comm_is_aborted)(const tc_comm *comm);
    tc_status (*comm_issue)(tc_comm *comm, const tc_call *call, uint64_t timeout_ns,
                            tc_work **work_p, tc_error *err);
    tc_status (*comm_split)(tc_comm *comm, const tc_split_options *options,
                            tc_comm **child_p, tc_error *err);
    int32_t (*comm_rank)(const tc_comm *comm);
    int32_t (*comm_size)(const tc_comm *comm);
    const char *(*comm_name)(const tc_comm *comm);
    const char *(*comm_backend_name)(const tc_comm *comm);
    tc_device (*comm_device)(const tc_comm *comm);
    uint64_t (*comm_timeout)(const tc_comm *comm);
    void (*comm_set_timeout)(tc_comm *comm, uint64_t timeout_ns);

    void (*work_retain)(tc_work *work);
    void (*work_release)(tc_work *work);
    void (*work_set_owner)(tc_work *work, tc_owner owner);
    tc_work_state (*work_get_state)(const tc_work *work);
    tc_status (*work_result)(const tc_work *work, tc_error *err);
    void (*work_on_end)(tc_work *work, tc_work_watch *watch);
    tc_status (*work_wait)(tc_work *work, uint64_t timeout_ns,
                           const tc_interrupt *interrupt, tc_error *err);

    bool (*comm_abort_process)(const tc_comm *comm);
    size_t (*comm_hints)(const tc_comm *comm, const tc_hint **hints_p);
    /* core/memory.h */
    bool (*comm_has_memory)(const tc_comm *comm);
    tc_status (*comm_memory_alloc)(const tc_comm *comm, uint64_t bytes,
                                   tc_memory *memory_p, tc_error *err);
    /* core/hooks.h. [GIL] for the first two, whose event has a tc_py_subject;
     * TC_INTERRUPTED comes with the exception of a hook set. */
    tc_status (*hooks_begin)(tc_comm *comm, tc_hook_event *event, tc_error *err);
    tc_status (*hooks_end)(tc_comm *comm, tc_hook_event *event, tc_error *err);
    bool (*comm_has_hooks)(const tc_comm *comm);
    void (*hooks_call_failed)(tc_comm *comm, tc_status status);
    void (*hooks_work_ended)(tc_work *work);
    /* To be called when a wait begins: tells those who observe the work. */
    void (*work_waits)(void *ctx, tc_work *work);

    /* For backends that the shim brings. core/registry.h; the table is copied. */
    tc_status (*backend_add)(const char *name, const tc_backend *backend,
                             tc_error *err);
    /* [GIL] The Python object behind the store of a `comm_create` that Python asked
     * for, borrowed; NULL for every other store. */
    struct _object *(*store_object)(const tc_store *store);
    /* Whether the pair has a meaning, as every backend should see it. */
    tc_status (*reduce_check)(tc_dtype dtype, tc_redop op, tc_error *err);
} tc_capi;

#endif
