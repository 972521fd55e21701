/* SPDX-License-Identifier: BSD-3-Clause */
/* An assertion of the C tests that no NDEBUG removes. */
#ifndef TC_SUPPORT_CHECK_H
#define TC_SUPPORT_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, __func__, \
                    #condition); \
            exit(1); \
        } \
    } while (0)

#endif
