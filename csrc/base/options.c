/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads options from the environment: the only place that calls getenv. */
#include "base/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

typedef enum option_type {
    TYPE_BOOL,
    TYPE_INT,
    TYPE_STRING,
} option_type;

typedef struct option_row {
    const char *variable;
    const char *fallback;
    option_type type;
    int64_t min;
    int64_t max;
} option_row;

static const option_row rows[] = {
#define ROW(id, variable, type, fallback, min, max, help) \
    [TC_OPT_##id] = {variable, fallback, TYPE_##type, min, max},
    TC_OPTIONS(ROW)
#undef ROW
};

/* A value without the blanks around it; not zero terminated. */
typedef struct text {
    const char *start;
    size_t length;
} text;

static text
trim(const char *s)
{
    text value = {s, 0};

    while (isspace((unsigned char)*value.start)) {
        value.start++;
    }
    value.length = strlen(value.start);
    while (value.length > 0 && isspace((unsigned char)value.start[value.length - 1])) {
        value.length--;
    }
    return value;
}

static text
value_of(const option_row *row)
{
    const char *set = getenv(row->variable);
    text value = trim(set != NULL ? set : "");

    return value.length > 0 ? value : trim(row->fallback);
}

static tc_status
check_row(tc_option option, option_type type, tc_error *err)
{
    if ((unsigned)option >= TC_OPT_COUNT || rows[option].type != type) {
        return tc_error_set(err, TC_ERR_INTERNAL, "option %d read as another type",
                            (int)option);
    }
    return TC_OK;
}

static tc_status
refuse(const option_row *row, text value, const char *expected, tc_error *err)
{
    return tc_error_set(err, TC_ERR_INVALID_ARGUMENT, "%s is '%.*s', expected %s",
                        row->variable, (int)value.length, value.start, expected);
}

static bool
is_one_of(text value, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strlen(*words) == value.length &&
            strncasecmp(*words, value.start, value.length) == 0) {
            return true;
        }
    }
    return false;
}

tc_status
tc_option_bool(tc_option option, bool *value_p, tc_error *err)
{
    static const char *const yes[] = {"1", "true", "yes", "y", NULL};
    static const char *const no[] = {"0", "false", "no", "n", NULL};
    text value;

    TC_TRY(check_row(option, TYPE_BOOL, err));
    value = value_of(&rows[option]);
    if (is_one_of(value, yes)) {
        *value_p = true;
    } else if (is_one_of(value, no)) {
        *value_p = false;
    } else {
        return refuse(&rows[option], value, "1, true, yes, y, 0, false, no or n", err);
    }
    return TC_OK;
}

tc_status
tc_option_int(tc_option option, int64_t *value_p, tc_error *err)
{
    const option_row *row = &rows[option];
    text value;
    intmax_t number;
    char *end;

    TC_TRY(check_row(option, TYPE_INT, err));
    value = value_of(row);
    errno = 0;
    number = strtoimax(value.start, &end, 10);
    if (value.length == 0 || end != value.start + value.length) {
        return refuse(row, value, "a whole number", err);
    }
    if (errno == ERANGE || number < row->min || number > row->max) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "%s is %.*s, expected %" PRId64 " to %" PRId64,
                            row->variable, (int)value.length, value.start, row->min,
                            row->max);
    }
    *value_p = number;
    return TC_OK;
}

tc_status
tc_option_string(tc_option option, size_t capacity, char *value_p, tc_error *err)
{
    const option_row *row = &rows[option];
    text value;

    TC_TRY(check_row(option, TYPE_STRING, err));
    value = value_of(row);
    if (value.length > (size_t)row->max) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "%s has %zu characters, expected at most %" PRId64
                            ": '%.40s...'",
                            row->variable, value.length, row->max, value.start);
    }
    if (value.length >= capacity) {
        return tc_error_set(err, TC_ERR_INTERNAL, "%s read into %zu bytes",
                            row->variable, capacity);
    }
    memcpy(value_p, value.start, value.length);
    value_p[value.length] = '\0';
    return TC_OK;
}

bool
tc_option_given(tc_option option)
{
    const char *set = getenv(rows[option].variable);

    return set != NULL && trim(set).length > 0;
}

const char *
tc_option_variable(tc_option option)
{
    return rows[option].variable;
}
