/* SPDX-License-Identifier: BSD-3-Clause */
/* The size of the last cache: plausible, and no smaller than any the kernel shows. */
#include "base/cache.h"

#include <stdio.h>

#include "support/check.h"

int
main(void)
{
    uint64_t bytes = tc_cache_read_bytes();

    CHECK(bytes >= (uint64_t)64 << 10 && bytes <= (uint64_t)16 << 30);
    for (int index = 0; index < 8; index++) {
        char path[80];
        unsigned long kib = 0;
        FILE *file;

        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size",
                 index);
        file = fopen(path, "r");
        if (file != NULL) {
            CHECK(fscanf(file, "%luK", &kib) == 1);
            CHECK(bytes >= (uint64_t)kib << 10);
            fclose(file);
        }
    }
    return 0;
}
