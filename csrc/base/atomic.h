/* SPDX-License-Identifier: BSD-3-Clause */
/* Every atomic access of the project, named by memory order; a model build replaces them. */
#ifndef TC_BASE_ATOMIC_H
#define TC_BASE_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

/* Under TC_MODEL each access is a point where the model's scheduler may switch to another
 * rank, so that a test can enumerate interleavings. */
#ifdef TC_MODEL
void
tc_model_point(const void *addr);
#define TC_ATOMIC_POINT(addr) tc_model_point(addr)
#else
#define TC_ATOMIC_POINT(addr) ((void)0)
#endif

static inline uint32_t
tc_load_relaxed_u32(const uint32_t *p)
{
    TC_ATOMIC_POINT(p);
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline uint32_t
tc_load_acquire_u32(const uint32_t *p)
{
    TC_ATOMIC_POINT(p);
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline uint32_t
tc_load_seq_cst_u32(const uint32_t *p)
{
    TC_ATOMIC_POINT(p);
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline void
tc_store_relaxed_u32(uint32_t *p, uint32_t v)
{
    TC_ATOMIC_POINT(p);
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}

static inline void
tc_store_release_u32(uint32_t *p, uint32_t v)
{
    TC_ATOMIC_POINT(p);
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

static inline uint32_t
tc_fetch_add_seq_cst_u32(uint32_t *p, uint32_t v)
{
    TC_ATOMIC_POINT(p);
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}

static inline uint32_t
tc_fetch_sub_seq_cst_u32(uint32_t *p, uint32_t v)
{
    TC_ATOMIC_POINT(p);
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);
}

static inline uint32_t
tc_exchange_acq_rel_u32(uint32_t *p, uint32_t v)
{
    TC_ATOMIC_POINT(p);
    return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL);
}

/* True when *p was `expected` and is now `v`. */
static inline bool
tc_cas_acq_rel_u32(uint32_t *p, uint32_t expected, uint32_t v)
{
    TC_ATOMIC_POINT(p);
    return __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

static inline uint64_t
tc_load_relaxed_u64(const uint64_t *p)
{
    TC_ATOMIC_POINT(p);
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline uint64_t
tc_load_acquire_u64(const uint64_t *p)
{
    TC_ATOMIC_POINT(p);
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void
tc_store_relaxed_u64(uint64_t *p, uint64_t v)
{
    TC_ATOMIC_POINT(p);
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}

static inline void
tc_store_release_u64(uint64_t *p, uint64_t v)
{
    TC_ATOMIC_POINT(p);
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* A store that later loads of this thread cannot overtake; an xchg on x86, as cheap as a
 * release store on a line that a peer polls (engine facts, section 1). */
static inline void
tc_store_seq_cst_u64(uint64_t *p, uint64_t v)
{
    TC_ATOMIC_POINT(p);
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}

static inline uint64_t
tc_fetch_add_relaxed_u64(uint64_t *p, uint64_t v)
{
    TC_ATOMIC_POINT(p);
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

static inline bool
tc_cas_acq_rel_u64(uint64_t *p, uint64_t expected, uint64_t v)
{
    TC_ATOMIC_POINT(p);
    return __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

static inline void *
tc_exchange_acq_rel_ptr(void *slot, void *v)
{
    TC_ATOMIC_POINT(slot);
    return __atomic_exchange_n((void **)slot, v, __ATOMIC_ACQ_REL);
}

static inline void *
tc_load_acquire_ptr(const void *slot)
{
    TC_ATOMIC_POINT(slot);
    return __atomic_load_n((void *const *)slot, __ATOMIC_ACQUIRE);
}

static inline bool
tc_cas_acq_rel_ptr(void *slot, void *expected, void *v)
{
    TC_ATOMIC_POINT(slot);
    return __atomic_compare_exchange_n((void **)slot, &expected, v, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
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
