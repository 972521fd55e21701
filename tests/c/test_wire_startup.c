/* SPDX-License-Identifier: BSD-3-Clause */
/* Start-up messages and addresses: round trips, and every way to be damaged. */
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "wire/shm_address.h"

typedef union any {
    tc_wire_hello hello;
    tc_wire_welcome welcome;
    tc_wire_pages pages;
    tc_wire_verdict verdict;
} any;

/* All parsers look at the same bytes; how many of them accept? */
static int
count_accepting(const uint8_t *bytes, size_t n)
{
    any out;
    int count = 0;
    /* exactly as long as said, so that a sanitizer sees a read beyond */
    uint8_t *copy = malloc(n > 0 ? n : 1);

    CHECK(copy != NULL);
    memcpy(copy, bytes, n);
    count += tc_wire_hello_unpack(copy, n, &out.hello, NULL) == TC_OK;
    count += tc_wire_welcome_unpack(copy, n, &out.welcome, NULL) == TC_OK;
    count += tc_wire_pages_unpack(copy, n, &out.pages, NULL) == TC_OK;
    count += tc_wire_verdict_unpack(copy, n, &out.verdict, NULL) == TC_OK;
    free(copy);
    return count;
}

/* A prefix, a longer message, another magic, version or kind is nobody's. */
static void
check_damage(const uint8_t *bytes, size_t n, tc_wire_kind kind)
{
    uint8_t changed[TC_WIRE_MESSAGE_BYTES + 1];

    CHECK(n <= TC_WIRE_MESSAGE_BYTES);
    CHECK(tc_wire_kind_of(bytes, n) == kind && count_accepting(bytes, n) == 1);
    for (size_t shorter = 0; shorter < n; shorter++) {
        CHECK(count_accepting(bytes, shorter) == 0);
    }
    memcpy(changed, bytes, n);
    changed[n] = 0;
    CHECK(count_accepting(changed, n + 1) == 0);
    for (size_t i = 0; i < 6; i++) {
        changed[i] ^= 0x10;
        CHECK(count_accepting(changed, n) == 0);
        changed[i] ^= 0x10;
    }
    changed[6] = 9;
    CHECK(tc_wire_kind_of(changed, n) == TC_WIRE_FOREIGN);
    CHECK(count_accepting(changed, n) == 0);
}

static void
test_hello(void)
{
    tc_wire_hello in = {.rank = 2,
                        .size = 70000,
                        .pid = 4194303,
                        .generation = UINT64_MAX,
                        .digest = 7};
    tc_wire_hello out;
    tc_error err;
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];
    size_t n;

    for (size_t i = 0; i < sizeof(in.token); i++) {
        in.token[i] = (uint8_t)(255 - i);
    }
    n = tc_wire_hello_pack(&in, bytes);
    CHECK(tc_wire_hello_unpack(bytes, n, &out, &err) == TC_OK);
    CHECK(out.rank == 2 && out.size == 70000 && out.pid == 4194303);
    CHECK(out.generation == UINT64_MAX && out.digest == 7);
    CHECK(memcmp(out.token, in.token, sizeof(in.token)) == 0);
    check_damage(bytes, n, TC_WIRE_HELLO);
    bytes[4] = 1;
    CHECK(tc_wire_hello_unpack(bytes, n, &out, &err) == TC_ERR_MISMATCH);
    CHECK(strstr(err.message, "version 1, this is version 2"));
    in.rank = -1;
    n = tc_wire_hello_pack(&in, bytes);
    CHECK(tc_wire_hello_unpack(bytes, n, &out, &err) == TC_ERR_MISMATCH);
    in.rank = in.size;
    n = tc_wire_hello_pack(&in, bytes);
    CHECK(tc_wire_hello_unpack(bytes, n, &out, &err) == TC_ERR_MISMATCH);
    CHECK(strstr(err.message, "rank 70000 of 70000"));
}

static void
test_welcome_and_pages(void)
{
    tc_wire_welcome welcome = {.size = 64, .bytes = UINT64_C(0x123456789abcdef0)};
    tc_wire_pages pages = {.first = 64, .count = 36};
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];
    any out;
    size_t n = tc_wire_welcome_pack(&welcome, bytes);

    CHECK(tc_wire_welcome_unpack(bytes, n, &out.welcome, NULL) == TC_OK);
    CHECK(out.welcome.size == 64 && out.welcome.bytes == welcome.bytes);
    check_damage(bytes, n, TC_WIRE_WELCOME);
    n = tc_wire_pages_pack(&pages, bytes);
    CHECK(tc_wire_pages_unpack(bytes, n, &out.pages, NULL) == TC_OK);
    CHECK(out.pages.first == 64 && out.pages.count == 36);
    check_damage(bytes, n, TC_WIRE_PAGES);
    pages.first = INT32_MAX;
    n = tc_wire_pages_pack(&pages, bytes);
    CHECK(tc_wire_pages_unpack(bytes, n, &out.pages, NULL) == TC_ERR_MISMATCH);
    pages = (tc_wire_pages){.first = 0, .count = 0};
    n = tc_wire_pages_pack(&pages, bytes);
    CHECK(tc_wire_pages_unpack(bytes, n, &out.pages, NULL) == TC_ERR_MISMATCH);
}

static void
test_verdict(void)
{
    tc_wire_verdict in = {.status = TC_ERR_NO_MEMORY,
                          .rank = 3,
                          .text = "a\nb\x7f"
                                  "c"};
    tc_wire_verdict out;
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];
    size_t n = tc_wire_verdict_pack(&in, bytes);

    CHECK(tc_wire_verdict_unpack(bytes, n, &out, NULL) == TC_OK);
    CHECK(out.status == TC_ERR_NO_MEMORY && out.rank == 3);
    CHECK(strcmp(out.text, "a?b?c") == 0);
    check_damage(bytes, n, TC_WIRE_VERDICT);
    memset(in.text, 'x', sizeof(in.text)); /* not terminated: cut */
    n = tc_wire_verdict_pack(&in, bytes);
    CHECK(tc_wire_verdict_unpack(bytes, n, &out, NULL) == TC_OK);
    CHECK(strlen(out.text) == TC_WIRE_TEXT_BYTES - 1);
    in.status = (tc_status)7;
    in.text[0] = '\0';
    n = tc_wire_verdict_pack(&in, bytes);
    CHECK(tc_wire_verdict_unpack(bytes, n, &out, NULL) == TC_OK);
    CHECK(out.status == TC_ERR_INTERNAL && out.text[0] == '\0');
}

static void
test_address(void)
{
    tc_wire_shm_address in = {.socket = "0123456789abcdef",
                              .boot_id = "c4f2e0a6-1111-4222-8333-444455556666",
                              .net_ns = UINT64_MAX};
    tc_wire_shm_address out;
    char text[TC_WIRE_ADDRESS_BYTES];
    tc_error err;

    memset(in.host_id, 'h', sizeof(in.host_id) - 1); /* everything as long as it gets */
    in.host_id[3] = ' ';
    memset(in.token, 0xa5, sizeof(in.token));
    tc_wire_shm_address_pack(&in, text);
    CHECK(strlen(text) < sizeof(text) - 1);
    CHECK(tc_wire_shm_address_unpack(text, &out, &err) == TC_OK);
    CHECK(strcmp(in.socket, out.socket) == 0 && strcmp(in.boot_id, out.boot_id) == 0);
    CHECK(strcmp(in.host_id, out.host_id) == 0 && in.net_ns == out.net_ns);
    CHECK(memcmp(in.token, out.token, sizeof(in.token)) == 0);
    for (size_t n = strlen(text) - strlen(in.host_id); n-- > 0;) {
        char shorter[TC_WIRE_ADDRESS_BYTES];

        snprintf(shorter, n + 1, "%s", text);
        CHECK(tc_wire_shm_address_unpack(shorter, &out, &err) == TC_ERR_MISMATCH);
    }
    in.boot_id[0] = '\0';
    in.host_id[0] = '\0';
    tc_wire_shm_address_pack(&in, text);
    CHECK(tc_wire_shm_address_unpack(text, &out, &err) == TC_OK);
    CHECK(out.boot_id[0] == '\0' && out.host_id[0] == '\0');
    text[5] = 'G';
    CHECK(tc_wire_shm_address_unpack(text, &out, &err) == TC_ERR_MISMATCH);
    strcpy(in.host_id, "a\tb");
    tc_wire_shm_address_pack(&in, text);
    CHECK(tc_wire_shm_address_unpack(text, &out, &err) == TC_ERR_MISMATCH);
}

/* Random changes of good messages and of a good address: nothing breaks, and what is
 * accepted keeps its promises. */
static void
test_noise(void)
{
    tc_wire_verdict verdict = {.status = TC_ERR_SYSTEM, .rank = 1, .text = "some text"};
    tc_wire_shm_address address = {.socket = "01ab", .net_ns = 77, .host_id = "node"};
    char good[TC_WIRE_ADDRESS_BYTES];

    srand(3);
    tc_wire_shm_address_pack(&address, good);
    for (int round = 0; round < 50000; round++) {
        uint8_t bytes[TC_WIRE_MESSAGE_BYTES];
        char text[TC_WIRE_ADDRESS_BYTES];
        size_t n = tc_wire_verdict_pack(&verdict, bytes);
        tc_wire_verdict out;

        memcpy(text, good, sizeof(text));
        for (int k = rand() % 4; k >= 0; k--) {
            bytes[(size_t)rand() % n] = (uint8_t)rand();
            text[(size_t)rand() % strlen(good)] = (char)rand();
        }
        (void)count_accepting(bytes, n);
        if (tc_wire_verdict_unpack(bytes, n, &out, NULL) == TC_OK) {
            CHECK(memchr(out.text, '\0', sizeof(out.text)) != NULL);
            CHECK(out.status <= TC_OK && out.status >= TC_ERR_INTERNAL);
        }
        if (tc_wire_shm_address_unpack(text, &address, NULL) == TC_OK) {
            CHECK(strlen(address.socket) < sizeof(address.socket));
        }
    }
}

int
main(void)
{
    test_hello();
    test_welcome_and_pages();
    test_verdict();
    test_address();
    test_noise();
    return 0;
}
