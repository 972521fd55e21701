/* SPDX-License-Identifier: BSD-3-Clause */
/* Bulk copies: into slots that another core reads, and out of them. */
#ifndef TC_BASE_COPY_H
#define TC_BASE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* Sanitizers see no inline assembly: with `rep movsb` they would miss the races and
 * overruns that these copies are most likely to have. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TC_COPY_PLAIN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define TC_COPY_PLAIN 1
#endif
#endif

/* From here on `rep movsb` beats memcpy on lines that a peer has read before, and
 * stores around the caches beat both where that peer is far. */
#define TC_COPY_REP_BYTES 1024
#define TC_COPY_AROUND_BYTES 512

/* Past the caches; ordered before every later store. Where the CPU or the build has no
 * such stores it is memcpy. */
static inline void
tc_copy_around(void *dst, const void *src, size_t bytes)
{
#if defined(__x86_64__) && !defined(TC_COPY_PLAIN)
    enum { LINE = 64, WORD = 16 };
    char *to = dst;
    const char *from = src;
    size_t i = (size_t)(-(uintptr_t)dst % LINE);

    i = i < bytes ? i : bytes;
    memcpy(to, from, i);
    for (; i + LINE <= bytes; i += LINE) {
        for (size_t k = i; k < i + LINE; k += WORD) {
            _mm_stream_si128(
                (__m128i *)(void *)(to + k),
                _mm_loadu_si128((const __m128i *)(const void *)(from + k)));
        }
    }
    memcpy(to + i, from + i, bytes - i);
    _mm_sfence();
#else
    memcpy(dst, src, bytes);
#endif
}

/* Into a slot. Whole lines are written without being read first, which a vector loop
 * does not do: 2.5 times faster where the peer shares the L3, 4 to 5 times where it
 * does not. glibc's memcpy does the same only from about 8 KiB, and not on every CPU.
 *
 * `far`: the peer shares no cache, and on this CPU `rep movsb` does no such thing
 * (tc_shm_distance); then only stores around the caches do. */
static inline void
tc_copy_to_slot(void *slot, const void *src, size_t bytes, bool far)
{
    if (far && bytes >= TC_COPY_AROUND_BYTES) {
        tc_copy_around(slot, src, bytes);
        return;
    }
#if defined(__x86_64__) && !defined(TC_COPY_PLAIN)
    if (bytes >= TC_COPY_REP_BYTES) {
        __asm__ __volatile__("rep movsb"
                             : "+D"(slot), "+S"(src), "+c"(bytes)
                             :
                             : "memory");
        return;
    }
#endif
    if (bytes > 0) {
        memcpy(slot, src, bytes);
    }
}

/* Into private memory. `large`: of a call that moves more than a cache holds, so that
 * the result is not found there later and need not be read before it is written. */
static inline void
tc_copy_to_user(void *dst, const void *src, size_t bytes, bool large)
{
    if (large && bytes >= TC_COPY_AROUND_BYTES) {
        tc_copy_around(dst, src, bytes);
    } else if (bytes > 0) { /* an empty piece may go to a NULL buffer */
        memcpy(dst, src, bytes);
    }
}

#endif
