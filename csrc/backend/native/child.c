/* SPDX-License-Identifier: BSD-3-Clause */
/* A child's segment: its leader's address travels over the parent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/native/state.h"
#include "base/error.h"

/* What a rank tells all ranks of the parent. Invariant: `members` has one bit for every
 * rank of the parent that this rank put in its list; a parent of more ranks than bits
 * compares the hash of the list alone. */
typedef struct split_blob {
    uint64_t list_hash; /* of the ranks in their order; c10d's names may differ */
    int32_t leader; /* rank in the parent; -1: joins no child */
    int32_t status; /* tc_status of the first half */
    uint64_t members[16];
    char address[TC_SHM_ADDRESS_BYTES];
    char message[168];
} split_blob;

_Static_assert(sizeof(split_blob) <= TC_SPLIT_BLOB_BYTES, "fits a blob");

enum { MEMBER_BITS = 16 * 64 };

/* FNV-1a; a list has to differ visibly, nobody attacks it. */
static uint64_t
hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static uint64_t
hash_list(const tc_split *split)
{
    return hash_bytes(UINT64_C(0xcbf29ce484222325), split->ranks,
                      (size_t)split->rank_count * sizeof(int32_t));
}

void
tc_native_split_begin(void *ctx, const tc_comm_config *config, const tc_split *split,
                      uint8_t bytes[TC_SPLIT_BLOB_BYTES], void **pending_p)
{
    tc_native *comm = ctx;
    split_blob blob = {.leader = -1};
    tc_shm_leader *leader = NULL;
    tc_error err;

    (void)config;
    if (split->rank_count > 0) {
        blob.list_hash = hash_list(split);
        blob.leader = split->ranks[0];
        for (int32_t i = 0; i < split->rank_count; i++) {
            if (split->ranks[i] < MEMBER_BITS) {
                blob.members[split->ranks[i] / 64] |= UINT64_C(1)
                                                      << (split->ranks[i] % 64);
            }
        }
    }
    if (blob.leader == comm->rank) {
        blob.status = tc_shm_leader_open(&leader, blob.address, &err);
        if (blob.status != TC_OK) {
            snprintf(blob.message, sizeof(blob.message), "%s", err.message);
        }
    }
    memcpy(bytes, &blob, sizeof(blob));
    *pending_p = leader;
}

static split_blob
blob_of(const uint8_t *blobs, int32_t rank)
{
    split_blob blob;

    memcpy(&blob, blobs + (size_t)rank * TC_SPLIT_BLOB_BYTES, sizeof(blob));
    blob.address[sizeof(blob.address) - 1] = '\0';
    blob.message[sizeof(blob.message) - 1] = '\0';
    return blob;
}

static bool
lists(const split_blob *blob, int32_t rank)
{
    return rank < MEMBER_BITS && (blob->members[rank / 64] >> (rank % 64) & 1) != 0;
}

/* Every rank checks every pair, so all of the parent come to the same verdict. */
static tc_status
check_lists(const tc_native *comm, const char *name, const uint8_t *blobs,
            tc_error *err)
{
    for (int32_t p = 0; p < comm->size; p++) {
        split_blob a = blob_of(blobs, p);

        for (int32_t q = 0; q < comm->size; q++) {
            split_blob b = blob_of(blobs, q);

            if (q != p && lists(&a, q) && a.list_hash != b.list_hash) {
                return tc_error_set(
                    err, TC_ERR_MISMATCH,
                    "split of communicator '%s' into '%s': rank %d lists rank %d, "
                    "which passed %s",
                    comm->name, name, p, q, b.leader < 0 ? "no ranks" : "another list");
            }
        }
        if (a.status != TC_OK) {
            return tc_error_set(err, (tc_status)a.status,
                                "split of communicator '%s': rank %d: %s", comm->name,
                                p, a.message);
        }
    }
    return TC_OK;
}

tc_status
tc_native_split_end(void *ctx, const tc_comm_config *config, const tc_split *split,
                    void *pending, const uint8_t *blobs, void **child_p, tc_error *err)
{
    tc_native *comm = ctx;
    tc_shm_leader *leader = pending;
    tc_status status = TC_OK;

    if (blobs != NULL) {
        status = check_lists(comm, config->name, blobs, err);
        if (status == TC_OK && split->rank_count > 0) {
            split_blob first = blob_of(blobs, split->ranks[0]);

            status = tc_native_open(config, leader, first.address, NULL, child_p, err);
        }
    }
    if (leader != NULL) {
        tc_shm_leader_close(leader);
    }
    return status;
}
