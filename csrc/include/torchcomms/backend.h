/* SPDX-License-Identifier: BSD-3-Clause */
/* The table a backend fills: the public C ABI between the core and every backend. */
#ifndef TC_TORCHCOMMS_BACKEND_H
#define TC_TORCHCOMMS_BACKEND_H

#include "torchcomms/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TC_BACKEND_ABI 1u

/* One block of elements per rank: block r is `counts[r]` elements at `ptrs[r]`.
 * Without `counts` every block has `count` elements; without `ptrs` the blocks lie one
 * behind the other from `base`, `count` elements each. */
typedef struct tc_blocks {
    void *base;
    uint64_t count;
    void *const *ptrs;
    const uint64_t *counts;
} tc_blocks;

/* One half of a batch. */
typedef struct tc_p2p {
    tc_op_kind kind; /* TC_OP_SEND or TC_OP_RECV */
    tc_dtype dtype;
    int32_t peer;
    int32_t tag;
    uint64_t count; /* elements */
    void *buf; /* a send only reads it */
} tc_p2p;

#define TC_ANY_SOURCE (-1)

/* A call as the user made it, checked by the core. Which fields an operation uses:
 *
 *   operation          in                 out                 count (elements)
 *   send               in                                     of the message
 *   recv                                  out                 of the message
 *   broadcast          in == out                              of the tensor
 *   all_reduce, reduce in, out (may be the same)              of the tensor
 *   all_gather*        in                 out_blocks          of this rank's input
 *   reduce_scatter*    in_blocks          out                 of this rank's output
 *   all_to_all*        in_blocks          out_blocks          unused
 *   scatter            in_blocks (root)   out                 of this rank's output
 *   gather*            in                 out_blocks (root)   of this rank's input
 *   barrier                                                   unused
 *   batch              batch, batch_count
 *
 * Buffers of one call do not overlap, unless they are the same. */
typedef struct tc_call {
    tc_op_kind kind;
    tc_dtype dtype;
    tc_redop redop;
    int32_t root; /* root, or the peer of a send or recv */
    int32_t tag;
    bool async;
    double factor; /* PREMUL_SUM: this rank's */
    uint64_t count;
    const void *in;
    void *out;
    tc_blocks in_blocks;
    tc_blocks out_blocks;
    const tc_p2p *batch;
    uint64_t batch_count;
    int32_t *source; /* recv: receives the sender's rank before it ends; may be NULL */
} tc_call;

#define TC_OP_STATE_BYTES 256

/* One issued operation. The core allocates it and keeps it, the arrays its call points
 * to and the tensors behind them alive from `issue` until the backend has called
 * `complete`, exactly once. */
typedef struct tc_op {
    tc_call call;
    uint64_t timeout_ns; /* from `issue`; the backend enforces it */
    struct tc_op *next; /* the backend's, for its queues */
    tc_error *error; /* written by the backend before a failing `complete` */
    /* The backend's own; undefined at `issue`. */
    uint64_t state[TC_OP_STATE_BYTES / sizeof(uint64_t)];
} tc_op;

/* Where a thread that waits for a communicator may sleep: it raises `sleepers`, looks
 * once more, and waits for `bell` to change (futex, shared between processes). Whoever
 * makes progress possible changes and wakes `bell` if `sleepers` is not zero. A backend
 * without such a word leaves both NULL and is polled. */
typedef struct tc_parking {
    uint32_t *bell;
    uint32_t *sleepers;
    uint32_t spins; /* polls before the first yield */
    uint32_t yields; /* yields before the first sleep */
} tc_parking;

/* The key-value store of the start-up. All return within `timeout_ns`. */
typedef struct tc_store {
    void *ctx;
    tc_status (*set)(void *ctx, const char *key, const void *value, size_t bytes,
                     tc_error *err);
    /* Waits for the key; writes at most `capacity` bytes. */
    tc_status (*get)(void *ctx, const char *key, uint64_t timeout_ns, void *value,
                     size_t capacity, size_t *bytes_p, tc_error *err);
    tc_status (*add)(void *ctx, const char *key, int64_t amount, int64_t *sum_p,
                     tc_error *err);
} tc_store;

typedef struct tc_hint {
    const char *key;
    const char *value;
} tc_hint;

/* What the core offers a backend; outlives every communicator. */
typedef struct tc_host {
    uint32_t struct_size;
    /* Ends an accepted operation. Callable from any thread, with any lock held. */
    void (*complete)(tc_op *op, tc_status status);
} tc_host;

struct tc_engine;

/* What a communicator is made from; valid during `comm_create` only, except `engine`
 * and the store with the hint "persistent_store". */
typedef struct tc_comm_config {
    uint32_t struct_size;
    int32_t rank;
    int32_t size;
    tc_device device;
    const char *name;
    const tc_store *store; /* NULL only where size is 1 */
    uint64_t timeout_ns;
    const tc_hint *hints;
    size_t hint_count;
    struct tc_engine *engine;
    const tc_host *host;
    /* Asked during long waits; true leaves them. May be NULL. */
    bool (*interrupted)(void *ctx);
    void *interrupted_ctx;
} tc_comm_config;

/* The ranks of a child: ranks of the parent, in the order of the child. `config` of the
 * same call has the child's rank and size, its name, timeout and hints. */
typedef struct tc_split {
    const int32_t *ranks;
    int32_t rank_count; /* 0: this rank joins no child */
} tc_split;

#define TC_SPLIT_BLOB_BYTES 512

enum { TC_INIT_HANDLE_BYTES = 512 };

/* Who takes part in a reconfigure: `config.size` handles in the order of the ranks, the
 * own one at `config.rank`, no two alike. The same on every member; `uuid` is new for
 * each membership and need not grow. Valid during the call. */
typedef struct tc_members {
    uint64_t uuid;
    const char *const *handles;
} tc_members;

/* Memory that a backend made; `release(ctx)` gives it back, from any thread, also after
 * its communicators and its engine are gone. */
typedef struct tc_memory {
    void *ptr;
    void *ctx;
    void (*release)(void *ctx);
} tc_memory;

/* Its asynchronous works refuse wait_blocking(). */
#define TC_BACKEND_NO_WAIT_BLOCKING 1u
/* A child of `split` is named "<name>_<smallest of its ranks in the parent>". */
#define TC_BACKEND_NUMBERS_CHILDREN 2u
/* new_comm makes communicators of one rank, whatever the environment says. */
#define TC_BACKEND_SOLITARY 4u

/* Members are only ever appended; the core fills what an older backend lacks, and what
 * a backend leaves NULL, with "unsupported" or a harmless default. */
typedef struct tc_backend {
    uint32_t struct_size;
    uint32_t abi; /* TC_BACKEND_ABI */
    const char *name;
    const char *version;
    tc_device_type device_type; /* where its buffers live */

    tc_status (*comm_create)(const tc_comm_config *config, void **comm_p,
                             tc_error *err);
    /* A split in two halves, between which the core carries every rank's `blob` to
     * every rank of the parent. The first half cannot fail: it says in its blob what it
     * could not do. The second is always called after it: `blobs` has one of every
     * rank, or is NULL where the exchange failed; it releases *pending_p. *child_p
     * stays NULL on a rank that joins no child. */
    void (*split_begin)(void *comm, const tc_comm_config *config, const tc_split *split,
                        uint8_t blob[TC_SPLIT_BLOB_BYTES], void **pending_p);
    tc_status (*split_end)(void *comm, const tc_comm_config *config,
                           const tc_split *split, void *pending, const uint8_t *blobs,
                           void **child_p, tc_error *err);
    /* Local. Outstanding operations have ended or will fail. */
    tc_status (*comm_finalize)(void *comm, tc_error *err);
    void (*comm_destroy)(void *comm);
    /* Outstanding and later operations of every rank fail. Any thread, at once. */
    void (*comm_abort)(void *comm);

    /* TC_OK: finished (never `complete`d); TC_PENDING: accepted; else refused, with
     * the cause in *op->error, nothing sent and no sequence number consumed.
     * Indexed by tc_op_kind. Does not wait, except that a call that is not `async`
     * may poll for a few microseconds. */
    tc_status (*issue[64])(void *comm, tc_op *op);
    /* Moves what can be moved, never waits. TC_OK: something moved; TC_PENDING:
     * nothing could. `now_ns` is 0 where the caller has not looked at the clock. */
    tc_status (*progress)(void *comm, uint64_t now_ns);
    void (*parking)(void *comm, tc_parking *parking);
    /* From here on the operation must make progress without the caller's help. */
    void (*detach)(void *comm, tc_op *op);

    /* Memory for buffers that serves this backend best, on `device`; belongs to no
     * communicator. May be missing. */
    tc_status (*memory_alloc)(struct tc_engine *engine, tc_device device,
                              uint64_t bytes, tc_memory *memory_p, tc_error *err);

    /* What `issue` would refuse of a call: asked where others are told of the call
     * before it is made. May be missing. */
    tc_status (*check)(void *comm, const tc_call *call, tc_error *err);
    uint32_t flags; /* TC_BACKEND_... */

    /* Like comm_abort, with a text that says why. */
    void (*comm_revoke)(void *comm, const char *why);
    /* Whether it was aborted, by any rank, or has found a failure. Any thread. */
    bool (*comm_is_broken)(void *comm);

    /* An endpoint is where a communicator can be found while it has no ranks, or has
     * others. *handle_p tells peers how: a text that no other endpoint has. Nothing is
     * sent; `config` has rank -1, size 0 and no store. The endpoint outlives the
     * communicators that come out of it. */
    tc_status (*endpoint_open)(const tc_comm_config *config, void **endpoint_p,
                               char handle_p[TC_INIT_HANDLE_BYTES], tc_error *err);
    void (*endpoint_close)(void *endpoint);
    /* Whether a text can be the handle of an endpoint; nothing is sent. */
    tc_status (*endpoint_check)(void *endpoint, const char *handle, tc_error *err);
    /* A communicator of the endpoint's owner and its peers; collective over them. One
     * that was made of the same endpoint before has been finalized, though operations
     * of it may still be about to end. Leaves with TC_INTERRUPTED when `config` says
     * so. A later try may follow a failure. */
    tc_status (*reconfigure)(void *endpoint, const tc_comm_config *config,
                             const tc_members *members, void **comm_p, tc_error *err);
    /* The hints of a communicator that it reads, beside those that the core knows
     * (core/hints.c), as names that end with NULL; NULL where it reads none. */
    const char *const *hints;
} tc_backend;

/* The symbol a backend in a shared library exports. */
typedef const tc_backend *(*tc_backend_entry_fn)(void);
#define TC_BACKEND_ENTRY "tc_backend_v1"

#ifdef __cplusplus
}
#endif
#endif
