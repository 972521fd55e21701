/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts what a stretch of code executes, by single steps of the calling thread. */
#ifndef TC_SUPPORT_STEPS_H
#define TC_SUPPORT_STEPS_H

#include <stdbool.h>
#include <stdint.h>

/* The same for the same code and data, however busy the machine is. */
typedef struct tc_test_steps {
    uint64_t instructions; /* a repeated string instruction counts once */
    uint64_t locked; /* of them: locked read-modify-writes */
    uint64_t pauses; /* of them: `pause`, one for each poll that found nothing */
    uint64_t syscalls;
    uint64_t allocations; /* calls of malloc, calloc, realloc and free */
} tc_test_steps;

/* Whether this processor and build can be counted. */
bool
tc_test_steps_supported(void);

/* Between these two, every instruction of the calling thread costs about a microsecond.
 * One thread of a process at a time. */
void
tc_test_steps_begin(void);

tc_test_steps
tc_test_steps_end(void);

#endif
