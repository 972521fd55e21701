/* SPDX-License-Identifier: BSD-3-Clause */
/* Status codes, errors, dtypes and operation names: the vocabulary of the public C ABI.
 */
#ifndef TC_TORCHCOMMS_TYPES_H
#define TC_TORCHCOMMS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero is success, positive is "not yet", negative is an error, grouped by what is
 * broken. Numbers are ABI: a number is never reused. */
typedef enum tc_status {
    TC_OK = 0,
    TC_PENDING = 1, /* accepted or blocked, not finished */
    TC_INTERRUPTED =
        2, /* a wait was left by its interrupt callback; the work goes on */
    TC_EXPIRED = 3, /* a finite wait ran out; the work goes on */

    /* the arguments of one call: nothing was sent, the call can be repeated */
    TC_ERR_INVALID_ARGUMENT = -100,
    TC_ERR_UNSUPPORTED = -101,
    /* one operation */
    TC_ERR_TIMEOUT = -200,
    TC_ERR_MISMATCH = -201, /* ranks made different calls */
    TC_ERR_PEER_GAVE_UP = -202, /* the other side of a send or recv timed out */
    /* a peer */
    TC_ERR_PEER_DIED = -300,
    TC_ERR_PEER_CLOSED = -301, /* it finalized the communicator while needed */
    /* the communicator */
    TC_ERR_BROKEN = -400,
    TC_ERR_ABORTED = -401,
    TC_ERR_FINALIZED = -402,
    TC_ERR_NOT_INITIALIZED = -403,
    /* the process or the machine */
    TC_ERR_NO_MEMORY = -500,
    TC_ERR_SYSTEM = -501, /* a system call failed; the text has errno */
    TC_ERR_STORE = -502, /* the key-value store failed or did not answer */
    TC_ERR_FORKED = -503, /* used in a child of the process that created it */
    TC_ERR_INTERNAL = -599,
} tc_status;

/* Owned by the caller and filled by the function that first recognises the fault. */
typedef struct tc_error {
    tc_status status;
    char message[508]; /* UTF-8, zero terminated, no newline at the end */
} tc_error;

/* Element types. X(id, name, bytes an element); the names are torch's. The order is
 * ABI: new types go to the end. */
#define TC_DTYPES(X) \
    X(BOOL, bool, 1) \
    X(UINT8, uint8, 1) \
    X(INT8, int8, 1) \
    X(UINT16, uint16, 2) \
    X(INT16, int16, 2) \
    X(UINT32, uint32, 4) \
    X(INT32, int32, 4) \
    X(UINT64, uint64, 8) \
    X(INT64, int64, 8) \
    X(FLOAT16, float16, 2) \
    X(BFLOAT16, bfloat16, 2) \
    X(FLOAT32, float32, 4) \
    X(FLOAT64, float64, 8) \
    X(COMPLEX32, complex32, 4) \
    X(COMPLEX64, complex64, 8) \
    X(COMPLEX128, complex128, 16) \
    X(FLOAT8_E4M3FN, float8_e4m3fn, 1) \
    X(FLOAT8_E5M2, float8_e5m2, 1) \
    X(FLOAT8_E4M3FNUZ, float8_e4m3fnuz, 1) \
    X(FLOAT8_E5M2FNUZ, float8_e5m2fnuz, 1) \
    X(FLOAT8_E8M0FNU, float8_e8m0fnu, 1) \
    X(FLOAT4_E2M1FN_X2, float4_e2m1fn_x2, 1)

typedef enum tc_dtype {
#define TC_DTYPE_ID(id, name, bytes) TC_##id,
    TC_DTYPES(TC_DTYPE_ID)
#undef TC_DTYPE_ID
        TC_DTYPE_COUNT
} tc_dtype;

/* Reductions, in the order of Python's RedOpType. */
#define TC_REDOPS(X) \
    X(SUM) \
    X(PRODUCT) \
    X(MIN) \
    X(MAX) \
    X(BAND) \
    X(BOR) \
    X(BXOR) \
    X(PREMUL_SUM) \
    X(AVG)

typedef enum tc_redop {
#define TC_REDOP_ID(id) TC_REDOP_##id,
    TC_REDOPS(TC_REDOP_ID)
#undef TC_REDOP_ID
        TC_REDOP_COUNT
} tc_redop;

/* Operations, in the order of Python's OpName. X(ID, name); numbers are ABI. */
#define TC_OPS(X) \
    X(SEND, send) \
    X(RECV, recv) \
    X(BROADCAST, broadcast) \
    X(ALL_REDUCE, all_reduce) \
    X(REDUCE, reduce) \
    X(ALL_GATHER, all_gather) \
    X(ALL_GATHER_V, all_gather_v) \
    X(ALL_GATHER_SINGLE, all_gather_single) \
    X(REDUCE_SCATTER, reduce_scatter) \
    X(REDUCE_SCATTER_V, reduce_scatter_v) \
    X(REDUCE_SCATTER_SINGLE, reduce_scatter_single) \
    X(ALL_TO_ALL_SINGLE, all_to_all_single) \
    X(ALL_TO_ALL_V_SINGLE, all_to_all_v_single) \
    X(ALL_TO_ALL, all_to_all) \
    X(BARRIER, barrier) \
    X(SCATTER, scatter) \
    X(GATHER, gather) \
    X(GATHER_SINGLE, gather_single) \
    X(SPLIT, split) \
    X(NEW_WINDOW, new_window) \
    X(FINALIZE, finalize) \
    X(BATCH, batch_op_issue)

typedef enum tc_op_kind {
#define TC_OP_ID(id, name) TC_OP_##id,
    TC_OPS(TC_OP_ID)
#undef TC_OP_ID
        TC_OP_KIND_COUNT
} tc_op_kind;

typedef enum tc_device_type {
    TC_DEVICE_ANY = -1, /* in a backend's table only */
    TC_DEVICE_CPU = 0,
    TC_DEVICE_CUDA = 1,
    TC_DEVICE_HIP = 2,
    TC_DEVICE_XPU = 3,
} tc_device_type;

typedef struct tc_device {
    tc_device_type type;
    int32_t index; /* -1: none given */
} tc_device;

#ifdef __cplusplus
}
#endif
#endif
