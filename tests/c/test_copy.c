/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies into and out of slots: every length around the switch, every alignment. */
#include "base/copy.h"

#include <stdbool.h>

#include "support/check.h"

#define ROOM 4200

typedef void (*copy_fn)(void *dst, const void *src, size_t bytes);

static void
check_copy(copy_fn copy, size_t bytes, size_t dst_offset, size_t src_offset)
{
    static unsigned char src[ROOM];
    static unsigned char dst[ROOM];

    for (size_t i = 0; i < ROOM; i++) {
        src[i] = (unsigned char)(i * 31 + i / 256);
        dst[i] = 0xee;
    }
    copy(dst + dst_offset, src + src_offset, bytes);
    for (size_t i = 0; i < ROOM; i++) {
        bool inside = i >= dst_offset && i < dst_offset + bytes;

        CHECK(dst[i] == (inside ? src[i - dst_offset + src_offset] : 0xee));
    }
}

static void
copy_near(void *dst, const void *src, size_t bytes)
{
    tc_copy_to_slot(dst, src, bytes, false);
}

static void
copy_far(void *dst, const void *src, size_t bytes)
{
    tc_copy_to_slot(dst, src, bytes, true);
}

static void
copy_small(void *dst, const void *src, size_t bytes)
{
    tc_copy_to_user(dst, src, bytes, false);
}

static void
copy_large(void *dst, const void *src, size_t bytes)
{
    tc_copy_to_user(dst, src, bytes, true);
}

int
main(void)
{
    static const copy_fn copies[] = {copy_near, copy_far, copy_small, copy_large};
    static const size_t lengths[] = {0, 1, 63, 511, 512, 513, 1023, 1024, 1025, 4096};
    static const size_t offsets[] = {0, 1, 63, 64};

    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        for (size_t i = 0; i < 16; i++) {
            for (size_t c = 0; c < sizeof(copies) / sizeof(copies[0]); c++) {
                check_copy(copies[c], lengths[l], offsets[i / 4], offsets[i % 4]);
            }
        }
    }
    for (size_t c = 0; c < sizeof(copies) / sizeof(copies[0]); c++) {
        copies[c](NULL, NULL, 0);
    }
    return 0;
}
