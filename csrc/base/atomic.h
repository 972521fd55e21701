/* SPDX-License-Identifier: BSD-3-Clause */
/* Every atomic access of the project, named by memory order; a model build replaces
 * them. */
#ifndef TC_BASE_ATOMIC_H
#define TC_BASE_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Under TC_MODEL each access is a point where the model's scheduler may switch to
 * another thread, before it and after it, so that a test can enumerate interleavings.
 * Stores that are not sequentially consistent go to the model's store buffer, as on
 * x86. */
#ifdef TC_MODEL
typedef enum tc_model_access {
    TC_MODEL_LOAD,
    TC_MODEL_STORE,
    TC_MODEL_SWAP
} tc_model_access;

void
tc_model_before(const void *addr, tc_model_access access);

void
tc_model_after(const void *addr, tc_model_access access);

/* A whole access: true when the model keeps the value and stores it later. */
bool
tc_model_delay(void *addr, uint64_t value, size_t bytes);

#define TC_ATOMIC(addr, access, expression) \
    __extension__({ \
        tc_model_before((addr), (access)); \
        __auto_type value_ = (expression); \
        tc_model_after((addr), (access)); \
        value_; \
    })
#define TC_ATOMIC_STORE(addr, value, order) \
    do { \
        if ((order) == __ATOMIC_SEQ_CST) { \
            tc_model_before((addr), TC_MODEL_STORE); \
            __atomic_store_n((addr), (value), (order)); \
            tc_model_after((addr), TC_MODEL_STORE); \
        } else if (!tc_model_delay((addr), (value), sizeof(*(addr)))) { \
            __atomic_store_n((addr), (value), (order)); \
        } \
    } while (0)
#else
#define TC_ATOMIC(addr, access, expression) (expression)
#define TC_ATOMIC_STORE(addr, value, order) __atomic_store_n((addr), (value), (order))
#endif

static inline uint32_t
tc_load_relaxed_u32(const uint32_t *p)
{
    return TC_ATOMIC(p, TC_MODEL_LOAD, __atomic_load_n(p, __ATOMIC_RELAXED));
}

static inline uint32_t
tc_load_acquire_u32(const uint32_t *p)
{
    return TC_ATOMIC(p, TC_MODEL_LOAD, __atomic_load_n(p, __ATOMIC_ACQUIRE));
}

static inline uint32_t
tc_load_seq_cst_u32(const uint32_t *p)
{
    return TC_ATOMIC(p, TC_MODEL_LOAD, __atomic_load_n(p, __ATOMIC_SEQ_CST));
}

static inline void
tc_store_relaxed_u32(uint32_t *p, uint32_t v)
{
    TC_ATOMIC_STORE(p, v, __ATOMIC_RELAXED);
}

static inline void
tc_store_release_u32(uint32_t *p, uint32_t v)
{
    TC_ATOMIC_STORE(p, v, __ATOMIC_RELEASE);
}

static inline uint32_t
tc_fetch_add_seq_cst_u32(uint32_t *p, uint32_t v)
{
    return TC_ATOMIC(p, TC_MODEL_SWAP, __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST));
}

static inline uint32_t
tc_fetch_sub_seq_cst_u32(uint32_t *p, uint32_t v)
{
    return TC_ATOMIC(p, TC_MODEL_SWAP, __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST));
}

static inline uint32_t
tc_exchange_acq_rel_u32(uint32_t *p, uint32_t v)
{
    return TC_ATOMIC(p, TC_MODEL_SWAP, __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL));
}

/* True when *p was `expected` and is now `v`. */
static inline bool
tc_cas_acq_rel_u32(uint32_t *p, uint32_t expected, uint32_t v)
{
    return TC_ATOMIC(p, TC_MODEL_SWAP,
                     __atomic_compare_exchange_n(p, &expected, v, false,
                                                 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

static inline uint64_t
tc_load_relaxed_u64(const uint64_t *p)
{
    return TC_ATOMIC(p, TC_MODEL_LOAD, __atomic_load_n(p, __ATOMIC_RELAXED));
}

static inline uint64_t
tc_load_acquire_u64(const uint64_t *p)
{
    return TC_ATOMIC(p, TC_MODEL_LOAD, __atomic_load_n(p, __ATOMIC_ACQUIRE));
}

static inline void
tc_store_relaxed_u64(uint64_t *p, uint64_t v)
{
    TC_ATOMIC_STORE(p, v, __ATOMIC_RELAXED);
}

static inline void
tc_store_release_u64(uint64_t *p, uint64_t v)
{
    TC_ATOMIC_STORE(p, v, __ATOMIC_RELEASE);
}

/* A store that later loads of this thread cannot overtake; an xchg on x86, as cheap as
 * a release store on a line that a peer polls (engine facts, section 1). */
static inline void
tc_store_seq_cst_u64(uint64_t *p, uint64_t v)
{
    TC_ATOMIC_STORE(p, v, __ATOMIC_SEQ_CST);
}

static inline uint64_t
tc_fetch_add_relaxed_u64(uint64_t *p, uint64_t v)
{
    return TC_ATOMIC(p, TC_MODEL_SWAP, __atomic_fetch_add(p, v, __ATOMIC_RELAXED));
}

static inline bool
tc_cas_acq_rel_u64(uint64_t *p, uint64_t expected, uint64_t v)
{
    return TC_ATOMIC(p, TC_MODEL_SWAP,
                     __atomic_compare_exchange_n(p, &expected, v, false,
                                                 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

static inline void *
tc_exchange_acq_rel_ptr(void *slot, void *v)
{
    return TC_ATOMIC(slot, TC_MODEL_SWAP,
                     __atomic_exchange_n((void **)slot, v, __ATOMIC_ACQ_REL));
}

static inline void *
tc_load_acquire_ptr(const void *slot)
{
    return TC_ATOMIC(slot, TC_MODEL_LOAD,
                     __atomic_load_n((void *const *)slot, __ATOMIC_ACQUIRE));
}

static inline bool
tc_cas_acq_rel_ptr(void *slot, void *expected, void *v)
{
    return TC_ATOMIC(slot, TC_MODEL_SWAP,
                     __atomic_compare_exchange_n((void **)slot, &expected, v, false,
                                                 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

/* Between two polls of a line another core writes: fewer polls steal the line back. */
static inline void
tc_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

#endif
