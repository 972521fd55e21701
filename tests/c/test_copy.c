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

int
main(void)
{
    static const size_t lengths[] = {0, 1, 63, 511, 512, 513, 1023, 1024, 1025, 4096};
    static const size_t offsets[] = {0, 1, 63, 64};

    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        for (size_t i = 0; i < 16; i++) {
            check_copy(copy_near, lengths[l], offsets[i / 4], offsets[i % 4]);
            check_copy(copy_far, lengths[l], offsets[i / 4], offsets[i % 4]);
            check_copy(tc_copy_from_slot, lengths[l], offsets[i / 4], offsets[i % 4]);
        }
    }
    copy_near(NULL, NULL, 0);
    copy_far(NULL, NULL, 0);
    tc_copy_from_slot(NULL, NULL, 0);
    return 0;
}
