/* SPDX-License-Identifier: BSD-3-Clause */
/* Formatting of tc_error. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tc_status
tc_error_set(tc_error *err, tc_status status, const char *format, ...)
{
    if (err != NULL) {
        va_list args;

        va_start(args, format);
        err->status = status;
        vsnprintf(err->message, sizeof(err->message), format, args);
        va_end(args);
    }
    return status;
}

tc_status
tc_error_errno(tc_error *err, const char *format, ...)
{
    int code = errno;

    if (err != NULL) {
        va_list args;
        int used;

        va_start(args, format);
        err->status = TC_ERR_SYSTEM;
        used = vsnprintf(err->message, sizeof(err->message), format, args);
        va_end(args);
        if (used >= 0 && (size_t)used < sizeof(err->message)) {
            snprintf(err->message + used, sizeof(err->message) - (size_t)used,
                     ": %s (errno %d)", strerror(code), code);
        }
    }
    errno = code;
    return TC_ERR_SYSTEM;
}

void
tc_error_prefix(tc_error *err, const char *format, ...)
{
    if (err != NULL) {
        char old[sizeof(err->message)];
        va_list args;
        int used;

        memcpy(old, err->message, sizeof(old));
        va_start(args, format);
        used = vsnprintf(err->message, sizeof(err->message), format, args);
        va_end(args);
        if (used >= 0 && (size_t)used < sizeof(err->message)) {
            snprintf(err->message + used, sizeof(err->message) - (size_t)used, ": %s",
                     old);
        }
    }
}
