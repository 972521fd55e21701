/* SPDX-License-Identifier: BSD-3-Clause */
/* Packing and unpacking of the address of a leader. */
#include "wire/shm_address.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

void
tc_wire_shm_address_pack(const tc_wire_shm_address *address,
                         char text_p[TC_WIRE_ADDRESS_BYTES])
{
    char token[2 * TC_WIRE_TOKEN_BYTES + 1];

    for (size_t i = 0; i < TC_WIRE_TOKEN_BYTES; i++) {
        snprintf(token + 2 * i, 3, "%02x", address->token[i]);
    }
    snprintf(text_p, TC_WIRE_ADDRESS_BYTES, "shm1/%s/%s/%" PRIx64 "/%s/%s",
             address->socket, address->boot_id[0] != '\0' ? address->boot_id : "-",
             address->net_ns, token, address->host_id);
}

/* The next word of at most `capacity` - 1 bytes, all of them from `alphabet`; a slash
 * follows it. False when there is none. */
static bool
take_word(const char **at, const char *alphabet, size_t capacity, char *word_p)
{
    size_t length = strspn(*at, alphabet);

    if (length == 0 || length >= capacity || (*at)[length] != '/') {
        return false;
    }
    memcpy(word_p, *at, length);
    word_p[length] = '\0';
    *at += length + 1;
    return true;
}

static unsigned
digit(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static bool
take_number(const char **at, uint64_t *number_p)
{
    char word[17];
    uint64_t number = 0;

    if (!take_word(at, "0123456789abcdef", sizeof(word), word)) {
        return false;
    }
    for (const char *c = word; *c != '\0'; c++) {
        number = number << 4 | digit(*c);
    }
    *number_p = number;
    return true;
}

static bool
take_token(const char **at, uint8_t *token_p)
{
    char word[2 * TC_WIRE_TOKEN_BYTES + 1];

    if (!take_word(at, "0123456789abcdef", sizeof(word), word) ||
        strlen(word) != sizeof(word) - 1) {
        return false;
    }
    for (size_t i = 0; i < TC_WIRE_TOKEN_BYTES; i++) {
        token_p[i] = (uint8_t)(digit(word[2 * i]) << 4 | digit(word[2 * i + 1]));
    }
    return true;
}

static bool
take_host_id(const char *at, char *host_id_p)
{
    size_t length = strnlen(at, TC_WIRE_HOST_ID_BYTES);

    if (length == TC_WIRE_HOST_ID_BYTES) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if ((uint8_t)at[i] < 0x20 || at[i] == 0x7f) {
            return false;
        }
    }
    memcpy(host_id_p, at, length + 1);
    return true;
}

tc_status
tc_wire_shm_address_unpack(const char *text, tc_wire_shm_address *address_p,
                           tc_error *err)
{
    static const char prefix[] = "shm1/";
    tc_wire_shm_address address;
    const char *at = text + sizeof(prefix) - 1;

    if (strncmp(text, prefix, sizeof(prefix) - 1) != 0) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "address of rank 0 starts with '%.8s', expected '%s'", text,
                            prefix);
    }
    if (!take_word(&at, "0123456789abcdef", sizeof(address.socket), address.socket) ||
        !take_word(&at, "0123456789abcdef-", sizeof(address.boot_id),
                   address.boot_id) ||
        !take_number(&at, &address.net_ns) || !take_token(&at, address.token) ||
        !take_host_id(at, address.host_id)) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "damaged address of rank 0 (%zu bytes, readable up to %td)",
                            strlen(text), at - text);
    }
    if (strcmp(address.boot_id, "-") == 0) {
        address.boot_id[0] = '\0';
    }
    *address_p = address;
    return TC_OK;
}
