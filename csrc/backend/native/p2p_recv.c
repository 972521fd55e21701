/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiving side: matching, messages kept for later, answers, and data. */
#include <stdlib.h>

#include "backend/native/p2p.h"
#include "base/copy.h"
#include "base/error.h"

/* Pieces one pass takes, so that the lock is given back. */
#define PASS_PIECES 16

/* A peer that breaks the protocol: its numbers are not to be used. */
static void
report_nonsense(tc_native *comm, tc_p2p_peer *peer, const tc_shm_piece *piece)
{
    tc_native_break(
        comm, TC_ERR_INTERNAL, peer->rank,
        "rank %d got an impossible piece from rank %d: type %u, message %llu, "
        "%u of %llu bytes",
        comm->rank, peer->rank, piece->type, (unsigned long long)piece->message,
        piece->bytes, (unsigned long long)piece->total);
}

/* Answers and deliveries ----------------------------------------------------------- */

static void
answer(tc_p2p_peer *peer, uint64_t message, tc_p2p_verdict verdict,
       const tc_p2p_part *part)
{
    uint64_t number = ++peer->answered;
    tc_shm_grant *line = &tc_shm_lane_grants(&peer->eager_in)[number % TC_SHM_GRANTS];

    line->message = message;
    line->total = part != NULL ? part->total : 0;
    line->dtype = part != NULL ? part->dtype : 0;
    line->verdict = verdict;
    tc_store_seq_cst_u64(&line->number, number);
    tc_shm_ring_one(peer->eager_in.segment, peer->rank);
}

/* Whether the message is not what the recv wants; then the recv's error is set. */
static bool
differs(tc_p2p_part *part, uint64_t total, uint32_t dtype)
{
    char mine[TC_P2P_SIZE_TEXT];
    char theirs[TC_P2P_SIZE_TEXT];

    if (part->total == total && part->dtype == dtype) {
        return false;
    }
    tc_p2p_part_fail(part, TC_ERR_MISMATCH,
                     "recv of %s from rank %d tag %d: rank %d sent %s",
                     tc_p2p_size_describe(part->total, part->dtype, mine), part->peer,
                     part->tag, part->peer, tc_p2p_size_describe(total, dtype, theirs));
    return true;
}

/* The recv has been unlinked and has its peer. */
static void
deliver(tc_native *comm, tc_p2p_part *part, uint64_t total, uint32_t dtype,
        const uint8_t *data)
{
    if (!differs(part, total, dtype)) {
        tc_copy_to_user(part->buf, data, total, false);
    }
    tc_p2p_part_end(comm, part);
}

static void
take_offer(tc_native *comm, tc_p2p_peer *peer, tc_p2p_part *part, uint64_t message,
           uint64_t total, uint32_t dtype)
{
    if (differs(part, total, dtype)) {
        answer(peer, message, TC_P2P_REFUSED, part);
        tc_p2p_part_end(comm, part);
        return;
    }
    *tc_p2p_incoming_at(peer, peer->incoming_count) =
        (tc_p2p_incoming){.message = message, .total = total, .part = part};
    peer->incoming_count++;
    answer(peer, message, TC_P2P_GRANTED, part);
}

static void
fail_withdrawn(tc_native *comm, tc_p2p_part *part)
{
    char text[96];

    tc_p2p_part_fail(part, TC_ERR_PEER_GAVE_UP, "%s: rank %d gave its send up",
                     tc_p2p_part_describe(part, text, sizeof(text)), part->peer);
    tc_p2p_part_end(comm, part);
}

/* Kept messages -------------------------------------------------------------------- */

void
tc_p2p_kept_free(tc_p2p_peer *peer)
{
    while (peer->kept != NULL) {
        tc_p2p_kept *next = peer->kept->next;

        free(peer->kept);
        peer->kept = next;
    }
    peer->kept_end = &peer->kept;
}

/* False when there is no room: the message stays in the lane, and what is behind it. */
static bool
keep(tc_native *comm, tc_p2p_peer *peer, const tc_shm_piece *piece, const uint8_t *data)
{
    tc_p2p_kept *kept;

    if (peer->kept_bytes + piece->bytes > TC_P2P_KEPT_BYTES ||
        peer->kept_count == TC_P2P_KEPT_MESSAGES) {
        return false;
    }
    kept = malloc(sizeof(*kept) + piece->bytes);
    if (kept == NULL) {
        return false;
    }
    *kept = (tc_p2p_kept){
        .arrival = ++comm->p2p->arrivals,
        .message = piece->message,
        .total = piece->total,
        .tag = piece->tag,
        .dtype = piece->dtype,
        .type = piece->type,
    };
    tc_copy_to_user(kept->data, data, piece->bytes, false);
    *peer->kept_end = kept;
    peer->kept_end = &kept->next;
    peer->kept_bytes += piece->bytes;
    peer->kept_count++;
    peer->kept_offers += piece->type == TC_P2P_OFFER ? 1 : 0;
    return true;
}

/* The oldest kept message with a tag, as the pointer that leads to it; or NULL. */
static tc_p2p_kept **
find_kept(tc_p2p_peer *peer, int32_t tag)
{
    for (tc_p2p_kept **at = &peer->kept; *at != NULL; at = &(*at)->next) {
        if ((*at)->tag == tag) {
            return at;
        }
    }
    return NULL;
}

static void
take_kept(tc_native *comm, tc_p2p_peer *peer, tc_p2p_kept **at, tc_p2p_part *part)
{
    tc_p2p_kept *kept = *at;

    *at = kept->next;
    if (kept->next == NULL) {
        peer->kept_end = at;
    }
    peer->kept_count--;
    part->peer = peer->rank;
    if (kept->type == TC_P2P_EAGER) {
        peer->kept_bytes -= kept->total;
        deliver(comm, part, kept->total, kept->dtype, kept->data);
    } else if (kept->type == TC_P2P_OFFER) {
        peer->kept_offers--;
        take_offer(comm, peer, part, kept->message, kept->total, kept->dtype);
    } else {
        fail_withdrawn(comm, part);
    }
    free(kept);
}

/* The peer with the message that has waited longest. */
static tc_p2p_peer *
find_kept_anywhere(tc_native *comm, int32_t tag)
{
    tc_p2p_state *state = comm->p2p;
    tc_p2p_peer *best = NULL;
    uint64_t arrival = UINT64_MAX;

    for (int32_t i = 0; i < state->open_count; i++) {
        tc_p2p_peer *peer = state->peers[state->open[i]];
        tc_p2p_kept **at = find_kept(peer, tag);

        if (at != NULL && (*at)->arrival < arrival) {
            best = peer;
            arrival = (*at)->arrival;
        }
    }
    return best;
}

/* The send of an offer that nobody has matched has ended. It keeps its place: the recv
 * that matches it fails, whenever it is posted. */
static void
withdraw_kept(tc_p2p_peer *peer, uint64_t message)
{
    for (tc_p2p_kept *kept = peer->kept; kept != NULL; kept = kept->next) {
        if (kept->type == TC_P2P_OFFER && kept->message == message) {
            kept->type = TC_P2P_WITHDRAW;
            peer->kept_offers--;
            answer(peer, message, TC_P2P_WITHDRAWN, NULL);
            return;
        }
    }
}

/* Posted recvs --------------------------------------------------------------------- */

static tc_p2p_part *
find_tag(const tc_p2p_queue *queue, int32_t tag)
{
    tc_p2p_part *part = queue->head;

    while (part != NULL && part->tag != tag) {
        part = part->next;
    }
    return part;
}

/* Takes the recv that was posted first of those that a message from this peer matches.
 */
static tc_p2p_part *
match(tc_native *comm, tc_p2p_peer *peer, int32_t tag)
{
    tc_p2p_queue *any = &comm->p2p->any;
    tc_p2p_part *mine = find_tag(&peer->recvs, tag);
    tc_p2p_part *part = find_tag(any, tag);

    if (part == NULL || (mine != NULL && mine->order < part->order)) {
        part = mine;
        any = &peer->recvs;
    }
    if (part != NULL) {
        tc_p2p_queue_unlink(any, part);
        part->peer = peer->rank;
    }
    return part;
}

void
tc_p2p_recv_post(tc_native *comm, tc_p2p_part *part)
{
    tc_p2p_state *state = comm->p2p;
    tc_p2p_peer *peer;
    tc_p2p_kept **at;
    tc_error err;
    char text[96];

    if (comm->size == 1) {
        tc_p2p_part_fail(part, TC_ERR_INVALID_ARGUMENT, "%s: there is no other rank",
                         tc_p2p_part_describe(part, text, sizeof(text)));
        tc_p2p_part_end(comm, part);
        return;
    }
    if (part->peer == TC_ANY_SOURCE) {
        peer = find_kept_anywhere(comm, part->tag);
        if (peer == NULL) {
            tc_p2p_queue_push(&state->any, part);
            return;
        }
    } else if (tc_p2p_peer_get(comm, part->peer, &peer, &err) != TC_OK) {
        tc_p2p_part_fail(part, err.status, "%s: %.300s",
                         tc_p2p_part_describe(part, text, sizeof(text)), err.message);
        tc_p2p_part_end(comm, part);
        return;
    }
    at = find_kept(peer, part->tag);
    if (at != NULL) {
        take_kept(comm, peer, at, part);
    } else {
        tc_p2p_queue_push(&peer->recvs, part);
    }
}

/* What comes through the lanes ----------------------------------------------------- */

static bool
is_possible_envelope(const tc_p2p_peer *peer, const tc_shm_piece *piece)
{
    switch (piece->type) {
    case TC_P2P_EAGER:
        return piece->bytes <= peer->eager_in.slot_bytes &&
               piece->bytes == piece->total;
    case TC_P2P_OFFER:
        return piece->bytes == 0 &&
               peer->kept_offers + peer->incoming_count < TC_P2P_INCOMING;
    default:
        return piece->type == TC_P2P_WITHDRAW;
    }
}

/* The next piece of the eager lane; false when there is none or it has to stay. */
static bool
take_envelope(tc_native *comm, tc_p2p_peer *peer)
{
    const uint8_t *data = NULL;
    const tc_shm_piece *slot = tc_shm_lane_peek(&peer->eager_in, &data);
    tc_shm_piece piece;
    tc_p2p_part *part;

    if (slot == NULL) {
        return false;
    }
    piece = *slot;
    if (!is_possible_envelope(peer, &piece)) {
        report_nonsense(comm, peer, &piece);
        return false;
    }
    if (piece.type == TC_P2P_WITHDRAW) {
        withdraw_kept(peer, piece.message);
    } else {
        part = match(comm, peer, piece.tag);
        if (part == NULL) {
            if (!keep(comm, peer, &piece, data)) {
                return false;
            }
        } else if (piece.type == TC_P2P_EAGER) {
            deliver(comm, part, piece.total, piece.dtype, data);
        } else {
            take_offer(comm, peer, part, piece.message, piece.total, piece.dtype);
        }
    }
    tc_shm_lane_release(&peer->eager_in);
    return true;
}

static void
end_incoming(tc_native *comm, tc_p2p_peer *peer)
{
    tc_p2p_part *part = tc_p2p_incoming_at(peer, 0)->part;

    peer->incoming_first++;
    peer->incoming_count--;
    if (part == NULL) {
        comm->p2p->debts--;
    } else {
        tc_p2p_part_end(comm, part);
    }
}

void
tc_p2p_incoming_abandon(tc_native *comm, tc_p2p_incoming *in)
{
    in->part = NULL;
    comm->p2p->debts++;
    tc_engine_kick(comm->engine, &comm->source);
}

static bool
is_possible_data(const tc_p2p_peer *peer, const tc_p2p_incoming *in,
                 const tc_shm_piece *piece)
{
    if (piece->message != in->message) {
        return false;
    }
    if (piece->type == TC_P2P_GIVE_UP) {
        return true;
    }
    return piece->type == TC_P2P_DATA && piece->bytes > 0 &&
           piece->bytes <= peer->bulk_in.slot_bytes &&
           piece->bytes <= in->total - in->moved;
}

/* The next piece of the oldest granted message; false when there is none. */
static bool
take_data(tc_native *comm, tc_p2p_peer *peer)
{
    tc_p2p_incoming *in = tc_p2p_incoming_at(peer, 0);
    const uint8_t *data = NULL;
    const tc_shm_piece *slot = tc_shm_lane_peek(&peer->bulk_in, &data);
    tc_shm_piece piece;
    char text[96];

    if (slot == NULL) {
        return false;
    }
    piece = *slot;
    if (!is_possible_data(peer, in, &piece)) {
        report_nonsense(comm, peer, &piece);
        return false;
    }
    if (piece.type == TC_P2P_DATA) {
        if (in->part != NULL) {
            tc_copy_to_user(in->part->buf + in->moved, data, piece.bytes,
                            in->total >= comm->cache_bytes);
        }
        in->moved += piece.bytes;
    } else if (in->part != NULL) {
        tc_p2p_part_fail(in->part, TC_ERR_PEER_GAVE_UP,
                         "%s: rank %d gave its send up after %llu of %llu bytes",
                         tc_p2p_part_describe(in->part, text, sizeof(text)), peer->rank,
                         (unsigned long long)in->moved, (unsigned long long)in->total);
    }
    tc_shm_lane_release(&peer->bulk_in);
    if (piece.type == TC_P2P_GIVE_UP || in->moved == in->total) {
        end_incoming(comm, peer);
    }
    return true;
}

bool
tc_p2p_recv_step(tc_native *comm, tc_p2p_peer *peer)
{
    bool moved = false;

    for (int i = 0; i < PASS_PIECES && peer->incoming_count > 0; i++) {
        if (!take_data(comm, peer)) {
            break;
        }
        moved = true;
    }
    for (int i = 0; i < PASS_PIECES && take_envelope(comm, peer); i++) {
        moved = true;
    }
    return moved;
}
