/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-ins for what would make the model's state depend on more than its arena. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "model/support/model.h"

/* glibc's own, for all that is no part of a model. */
void *
__libc_malloc(size_t bytes);

void *
__libc_calloc(size_t n, size_t bytes);

void *
__libc_realloc(void *block, size_t bytes);

void
__libc_free(void *block);

void *
malloc(size_t bytes)
{
    if (model_is_inside()) {
        return model_heap_take(bytes);
    }
    return model_is_building() ? model_memory(bytes) : __libc_malloc(bytes);
}

void *
calloc(size_t n, size_t bytes)
{
    if (model_is_inside()) {
        return model_heap_take(n * bytes); /* zeroed */
    }
    return model_is_building() ? model_memory(n * bytes) : __libc_calloc(n, bytes);
}

void *
realloc(void *block, size_t bytes)
{
    void *moved;

    if (!model_is_inside()) {
        return __libc_realloc(block, bytes);
    }
    moved = model_heap_take(bytes);
    if (block != NULL) {
        size_t old = model_heap_bytes(block);

        memcpy(moved, block, old < bytes ? old : bytes);
        free(block);
    }
    return moved;
}

void
free(void *block)
{
    if (block != NULL && !model_heap_give(block)) {
        __libc_free(block);
    }
}

int
clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!model_is_inside()) {
        return (int)syscall(SYS_clock_gettime, clock, t);
    }
    *t = (struct timespec){.tv_sec = 1000};
    return 0;
}

int
sched_yield(void)
{
    if (model_is_inside()) {
        model_pause();
    }
    return 0;
}
