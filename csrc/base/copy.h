/* SPDX-License-Identifier: BSD-3-Clause */
/* Bulk copies into and out of memory that another core reads or has written. */
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
#define TC_COPY_STREAM_BYTES 512

#if defined(__x86_64__) && !defined(TC_COPY_PLAIN)
/* Whole lines, past the caches; ordered before every later store. */
static inline void
tc_copy_stream(void *dst, const void *src, size_t bytes)
{
    enum { LINE = 64, WORD = 16 };
    char *to = dst;
    const char *from = src;
    size_t head = (size_t)(-(uintptr_t)dst % LINE);
    size_t i;

    head = head < bytes ? head : bytes;
    memcpy(to, from, head);
    for (i = head; i + LINE <= bytes; i += LINE) {
        for (size_t k = i; k < i + LINE; k += WORD) {
            _mm_stream_si128((__m128i *)(void *)(to + k),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + k)));
        }
    }
    memcpy(to + i, from + i, bytes - i);
    _mm_sfence();
}
#endif

/* Into a slot. Whole lines are written without being read first, which a vector loop
 * does not do: 2.5 times faster where the peer shares the L3, 4 to 5 times where it
 * does not. glibc's memcpy does the same only from about 8 KiB, and not on every
 * CPU. `far`: of the two, tc_shm_distance has found the second, on a CPU whose
 * `rep movsb` does no such thing. */
static inline void
tc_copy_to_slot(void *slot, const void *src, size_t bytes, bool far)
{
#if defined(__x86_64__) && !defined(TC_COPY_PLAIN)
    if (far && bytes >= TC_COPY_STREAM_BYTES) {
        tc_copy_stream(slot, src, bytes);
        return;
    }
    if (bytes >= TC_COPY_REP_BYTES) {
        __asm__ __volatile__("rep movsb"
                             : "+D"(slot), "+S"(src), "+c"(bytes)
                             :
                             : "memory");
        return;
    }
#endif
    (void)far;
    if (bytes > 0) {
        memcpy(slot, src, bytes);
    }
}

/* Out of a slot into private memory. */
static inline void
tc_copy_from_slot(void *dst, const void *slot, size_t bytes)
{
    /* An empty piece may go to a NULL buffer, which memcpy does not allow. */
    if (bytes > 0) {
        memcpy(dst, slot, bytes);
    }
}

#endif
