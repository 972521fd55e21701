/* SPDX-License-Identifier: BSD-3-Clause */
/* Little-endian numbers into and out of a buffer of known size. */
#ifndef TC_WIRE_BYTES_H
#define TC_WIRE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Invariant: `at` <= `size`. What does not fit clears `ok` and moves nothing, so a
 * caller looks at `ok` once, at the end; numbers read without room are 0. */
typedef struct tc_wire_writer {
    uint8_t *bytes;
    size_t size;
    size_t at;
    bool ok;
} tc_wire_writer;

typedef struct tc_wire_reader {
    const uint8_t *bytes;
    size_t size;
    size_t at;
    bool ok;
} tc_wire_reader;

static inline void
tc_wire_put_bytes(tc_wire_writer *w, const void *src, size_t n)
{
    if (!w->ok || n > w->size - w->at) {
        w->ok = false;
        return;
    }
    if (n > 0) {
        memcpy(w->bytes + w->at, src, n);
    }
    w->at += n;
}

static inline void
tc_wire_put_number(tc_wire_writer *w, uint64_t v, size_t n)
{
    uint8_t le[8];

    for (size_t i = 0; i < n; i++) {
        le[i] = (uint8_t)(v >> (8 * i));
    }
    tc_wire_put_bytes(w, le, n);
}

static inline void
tc_wire_put_u16(tc_wire_writer *w, uint16_t v)
{
    tc_wire_put_number(w, v, 2);
}

static inline void
tc_wire_put_u32(tc_wire_writer *w, uint32_t v)
{
    tc_wire_put_number(w, v, 4);
}

static inline void
tc_wire_put_i32(tc_wire_writer *w, int32_t v)
{
    tc_wire_put_number(w, (uint32_t)v, 4);
}

static inline void
tc_wire_put_u64(tc_wire_writer *w, uint64_t v)
{
    tc_wire_put_number(w, v, 8);
}

static inline void
tc_wire_get_bytes(tc_wire_reader *r, size_t n, void *dst)
{
    if (!r->ok || n > r->size - r->at) {
        r->ok = false;
        memset(dst, 0, n);
        return;
    }
    if (n > 0) {
        memcpy(dst, r->bytes + r->at, n);
    }
    r->at += n;
}

static inline uint64_t
tc_wire_get_number(tc_wire_reader *r, size_t n)
{
    uint8_t le[8] = {0};
    uint64_t v = 0;

    tc_wire_get_bytes(r, n, le);
    for (size_t i = 0; i < n; i++) {
        v |= (uint64_t)le[i] << (8 * i);
    }
    return v;
}

static inline uint16_t
tc_wire_get_u16(tc_wire_reader *r)
{
    return (uint16_t)tc_wire_get_number(r, 2);
}

static inline uint32_t
tc_wire_get_u32(tc_wire_reader *r)
{
    return (uint32_t)tc_wire_get_number(r, 4);
}

static inline int32_t
tc_wire_get_i32(tc_wire_reader *r)
{
    return (int32_t)tc_wire_get_u32(r);
}

static inline uint64_t
tc_wire_get_u64(tc_wire_reader *r)
{
    return tc_wire_get_number(r, 8);
}

/* Nothing was missing and nothing is left. */
static inline bool
tc_wire_reader_is_done(const tc_wire_reader *r)
{
    return r->ok && r->at == r->size;
}

#endif
