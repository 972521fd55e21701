/* SPDX-License-Identifier: BSD-3-Clause */
/* Going from the scheduler to a thread's stack and back. */
#ifndef TC_MODEL_SWITCH_H
#define TC_MODEL_SWITCH_H

#include <stddef.h>
#include <stdint.h>

/* Makes a stack that ends at `end` so that the first switch_in calls `entry`, which
 * never returns. Returns the address of the last word in use, by which the thread is
 * known. */
uint64_t
switch_prepare(uint8_t *end, void (*entry)(void));

/* Scheduler: runs the thread until its switch_out; returns where its stack ends now. */
uint64_t
switch_in(uint64_t stack);

/* Thread: back to the scheduler. */
void
switch_out(void);

#endif
