/* SPDX-License-Identifier: BSD-3-Clause */
/* Fills a caller-owned tc_error and returns its status, in one expression. */
#ifndef TC_BASE_ERROR_H
#define TC_BASE_ERROR_H

#include "torchcomms/types.h"

/* Return the status of `expr` from the calling function unless it is TC_OK. Only while
 * there is nothing to undo. */
#define TC_TRY(expr) \
    do { \
        tc_status tc_try_status = (expr); \
        if (tc_try_status != TC_OK) { \
            return tc_try_status; \
        } \
    } while (0)

/* `err` may be NULL. Returns `status`. */
tc_status
tc_error_set(tc_error *err, tc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* TC_ERR_SYSTEM with "<what>: <text of errno> (errno N)"; ENOMEM, EMFILE and ENFILE are
 * kept apart in the text only. */
tc_status
tc_error_errno(tc_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts "<context>: " before the message. */
void
tc_error_prefix(tc_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
