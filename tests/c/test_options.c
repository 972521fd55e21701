/* SPDX-License-Identifier: BSD-3-Clause */
/* Options: every default is readable, values are parsed or refused by name. */
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "support/check.h"

static bool
is_refused_with(tc_status status, const tc_error *err, const char *variable,
                const char *value)
{
    return status == TC_ERR_INVALID_ARGUMENT &&
           strstr(err->message, variable) != NULL &&
           strstr(err->message, value) != NULL;
}

static void
unset_all(void)
{
    for (int option = 0; option < TC_OPT_COUNT; option++) {
        unsetenv(tc_option_variable((tc_option)option));
    }
}

/* A row whose own default is refused would make every communicator fail. */
static void
test_defaults(void)
{
    tc_error err;
    char string[2048];
    bool boolean;
    int64_t number;

    for (int option = 0; option < TC_OPT_COUNT; option++) {
        int readable = 0;

        readable += tc_option_bool((tc_option)option, &boolean, &err) == TC_OK;
        readable += tc_option_int((tc_option)option, &number, &err) == TC_OK;
        readable +=
            tc_option_string((tc_option)option, sizeof(string), string, &err) == TC_OK;
        CHECK(readable == 1);
        CHECK(!tc_option_given((tc_option)option));
    }
    CHECK(tc_option_int(TC_OPT_TIMEOUT_SECONDS, &number, &err) == TC_OK);
    CHECK(number == 600);
    CHECK(tc_option_bool(TC_OPT_ABORT_ON_ERROR, &boolean, &err) == TC_OK);
    CHECK(boolean);
}

static void
test_bool(void)
{
    static const char *const yes[] = {"1", "true", "YES", "Y", " True ", "\ty\n"};
    static const char *const no[] = {"0", "false", "No", "n", " FALSE"};
    static const char *const bad[] = {"2", "on", "truely", "tru", "y y"};
    const char *variable = tc_option_variable(TC_OPT_ABORT_ON_ERROR);
    tc_error err;
    bool value;

    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        setenv(variable, yes[i], 1);
        value = false;
        CHECK(tc_option_bool(TC_OPT_ABORT_ON_ERROR, &value, &err) == TC_OK && value);
    }
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        setenv(variable, no[i], 1);
        value = true;
        CHECK(tc_option_bool(TC_OPT_ABORT_ON_ERROR, &value, &err) == TC_OK && !value);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv(variable, bad[i], 1);
        value = true;
        CHECK(is_refused_with(tc_option_bool(TC_OPT_ABORT_ON_ERROR, &value, &err), &err,
                              variable, bad[i]));
        CHECK(value);
    }
    setenv(variable, "  ", 1);
    value = false;
    CHECK(tc_option_bool(TC_OPT_ABORT_ON_ERROR, &value, &err) == TC_OK && value);
    CHECK(!tc_option_given(TC_OPT_ABORT_ON_ERROR));
}

static void
test_int(void)
{
    static const char *const bad[] = {
        "x", "10s", "1.5", "0", "0x10", "1 2", "99999999999999999999"};
    const char *variable = tc_option_variable(TC_OPT_TIMEOUT_SECONDS);
    tc_error err;
    int64_t value = 0;

    setenv(variable, " 42 ", 1);
    CHECK(tc_option_given(TC_OPT_TIMEOUT_SECONDS));
    CHECK(tc_option_int(TC_OPT_TIMEOUT_SECONDS, &value, &err) == TC_OK && value == 42);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv(variable, bad[i], 1);
        CHECK(is_refused_with(tc_option_int(TC_OPT_TIMEOUT_SECONDS, &value, &err), &err,
                              variable, bad[i]));
        CHECK(value == 42);
    }
    setenv("TORCHCOMM_RANK", "-7", 1);
    CHECK(tc_option_int(TC_OPT_RANK, &value, &err) == TC_OK && value == -7);
}

static void
test_string(void)
{
    const char *variable = tc_option_variable(TC_OPT_HOST_ID);
    char too_long[200];
    char value[64] = "kept";
    tc_error err;

    memset(too_long, 'x', sizeof(too_long) - 1);
    too_long[sizeof(too_long) - 1] = '\0';
    setenv(variable, too_long, 1);
    CHECK(is_refused_with(tc_option_string(TC_OPT_HOST_ID, sizeof(value), value, &err),
                          &err, variable, "199 characters"));
    CHECK(strcmp(value, "kept") == 0);
    setenv(variable, " rack 7 ", 1);
    CHECK(tc_option_string(TC_OPT_HOST_ID, sizeof(value), value, &err) == TC_OK);
    CHECK(strcmp(value, "rack 7") == 0);
    CHECK(tc_option_string(TC_OPT_HOST_ID, 6, value, &err) == TC_ERR_INTERNAL);
    CHECK(tc_option_string(TC_OPT_HOST_ID, 7, value, NULL) == TC_OK);
    CHECK(tc_option_string(TC_OPT_RANK, sizeof(value), value, &err) == TC_ERR_INTERNAL);
}

int
main(void)
{
    unset_all();
    test_defaults();
    test_bool();
    test_int();
    test_string();
    return 0;
}
