/* SPDX-License-Identifier: BSD-3-Clause */
/* How much the last cache holds. */
#ifndef TC_BASE_CACHE_H
#define TC_BASE_CACHE_H

#include <stdint.h>

/* Bytes of the last cache that CPU 0 has, as the kernel tells; 32 MiB where it does
 * not. Reads a file at each call. */
uint64_t
tc_cache_read_bytes(void);

#endif
