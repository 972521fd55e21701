/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads what the kernel knows of the caches. */
#include "base/cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_LEVELS = 8 };

#define UNKNOWN_BYTES ((uint64_t)32 << 20)

/* "8192K" or "16M"; 0 where there is no such cache. */
static uint64_t
read_size(int index)
{
    char path[80];
    char text[32];
    char *unit;
    ssize_t n;
    int fd;
    uint64_t size;

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size",
             index);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0) {
        return 0;
    }
    text[n] = '\0';
    size = strtoull(text, &unit, 10);
    return size << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : *unit == 'G' ? 30 : 0);
}

uint64_t
tc_cache_read_bytes(void)
{
    for (int index = MOST_LEVELS - 1; index >= 0; index--) {
        uint64_t bytes = read_size(index);

        if (bytes > 0) {
            return bytes;
        }
    }
    return UNKNOWN_BYTES;
}
