/* SPDX-License-Identifier: BSD-3-Clause */
/* How sends and receives end otherwise: deadlines, ranks that are gone, a break. */
#include <stdio.h>

#include "backend/native/p2p.h"

/* Why a part ends that nothing has moved for. */
typedef struct verdict {
    uint64_t now_ns; /* deadlines before it are over */
    bool left; /* everything ends: the peer has left */
    bool broken; /* everything ends with the communicator's cause */
} verdict;

static bool
must_end(const tc_p2p_part *part, const verdict *why)
{
    return part != NULL && (why->left || why->broken ||
                            why->now_ns >= tc_native_op_of(part->op)->deadline_ns);
}

/* Ends a part that has been unlinked. `detail` says how far a timed-out one came. */
static void
end_part(tc_native *comm, tc_p2p_part *part, const verdict *why, const char *detail)
{
    char text[96];

    tc_p2p_part_describe(part, text, sizeof(text));
    if (why->broken) {
        tc_p2p_part_end_broken(comm, part);
        return;
    }
    if (why->left && part->peer == TC_ANY_SOURCE) {
        tc_p2p_part_fail(part, TC_ERR_PEER_CLOSED,
                         "%s: all other ranks have left communicator '%s'", text,
                         comm->name);
    } else if (why->left) {
        tc_p2p_part_fail(part, TC_ERR_PEER_CLOSED,
                         "%s: rank %d has left communicator '%s'", text, part->peer,
                         comm->name);
    } else {
        tc_p2p_part_fail(part, TC_ERR_TIMEOUT, "%s timed out after %.3f s: %s", text,
                         (double)part->op->timeout_ns / TC_NSEC_PER_SEC, detail);
    }
    tc_p2p_part_end(comm, part);
}

static bool
end_queue(tc_native *comm, tc_p2p_queue *queue, const verdict *why, const char *detail)
{
    bool ended = false;

    for (tc_p2p_part *part = queue->head; part != NULL;) {
        tc_p2p_part *next = part->next;

        if (must_end(part, why)) {
            tc_p2p_queue_unlink(queue, part);
            end_part(comm, part, why, detail);
            ended = true;
        }
        part = next;
    }
    return ended;
}

/* What a recv that times out would want to know. */
static void
describe_kept(const tc_p2p_peer *peer, char *text, size_t capacity)
{
    if (peer->kept_count == 0) {
        snprintf(text, capacity, "nothing has arrived");
    } else {
        snprintf(text, capacity,
                 "no such message has arrived; %u with other tags wait, "
                 "the first has tag %d",
                 peer->kept_count, peer->kept->tag);
    }
}

/* Two large sends against each other are the usual reason. */
static const char *
describe_unreceived(const tc_p2p_peer *peer)
{
    for (const tc_p2p_kept *kept = peer->kept; kept != NULL; kept = kept->next) {
        if (kept->type == TC_P2P_OFFER) {
            return "it was not received; the peer has a send to this rank that was not "
                   "received either";
        }
    }
    return "it was not received";
}

static void
end_offers(tc_native *comm, tc_p2p_peer *peer, const verdict *why)
{
    char text[96];

    for (int i = 0; i < TC_P2P_OFFERS; i++) {
        tc_p2p_offer *offer = &peer->offers[i];
        tc_p2p_part *part = offer->part;
        const char *detail = describe_unreceived(peer);

        if (!must_end(part, why)) {
            continue;
        }
        if (offer == peer->stream) {
            snprintf(text, sizeof(text), "only %llu bytes were received",
                     (unsigned long long)peer->stream_moved);
            detail = text;
        }
        tc_p2p_offer_abandon(comm, peer, offer);
        end_part(comm, part, why, detail);
    }
}

static void
end_incoming(tc_native *comm, tc_p2p_peer *peer, const verdict *why)
{
    char text[96];

    for (uint32_t i = 0; i < peer->incoming_count; i++) {
        tc_p2p_incoming *in = tc_p2p_incoming_at(peer, i);
        tc_p2p_part *part = in->part;

        if (must_end(part, why)) {
            snprintf(text, sizeof(text), "%llu of %llu bytes have arrived",
                     (unsigned long long)in->moved, (unsigned long long)in->total);
            tc_p2p_incoming_abandon(comm, in);
            end_part(comm, part, why, text);
        }
    }
}

/* Whether messages are in the lane for which there was no room: what a posted recv
 * waits for may be behind them. */
static bool
has_unread(const tc_p2p_peer *peer)
{
    const uint8_t *data;

    return peer->heard && tc_shm_lane_peek(&peer->eager_in, &data) != NULL;
}

static void
end_peer(tc_native *comm, tc_p2p_peer *peer, const verdict *why)
{
    char text[96];

    end_queue(comm, &peer->sends, why,
              "it was not sent, what was sent before was not received");
    end_offers(comm, peer, why);
    end_incoming(comm, peer, why);
    describe_kept(peer, text, sizeof(text));
    if (!(why->left && has_unread(peer))) {
        end_queue(comm, &peer->recvs, why, text);
    }
}

/* Nothing is owed to a rank that is gone, nor by it. */
static void
drop_debts(tc_native *comm, tc_p2p_peer *peer)
{
    for (int i = 0; i < TC_P2P_OFFERS; i++) {
        comm->p2p->debts -=
            peer->offers[i].message != 0 && peer->offers[i].part == NULL ? 1 : 0;
        peer->offers[i] = (tc_p2p_offer){0};
    }
    for (uint32_t i = 0; i < peer->incoming_count; i++) {
        comm->p2p->debts -= tc_p2p_incoming_at(peer, i)->part == NULL ? 1 : 0;
    }
    peer->offer_count = 0;
    peer->withdrawals = 0;
    peer->stream = NULL;
    peer->incoming_count = 0;
}

/* Any part that needs this peer; NULL when none does. */
static const tc_p2p_part *
needing(tc_p2p_peer *peer)
{
    if (peer->recvs.head != NULL) {
        return peer->recvs.head;
    }
    for (uint32_t i = 0; i < peer->incoming_count; i++) {
        if (tc_p2p_incoming_at(peer, i)->part != NULL) {
            return tc_p2p_incoming_at(peer, i)->part;
        }
    }
    for (int i = 0; i < TC_P2P_OFFERS; i++) {
        if (peer->offers[i].part != NULL) {
            return peer->offers[i].part;
        }
    }
    return peer->sends.head;
}

void
tc_p2p_report_death(tc_native *comm, const tc_p2p_part *part, int32_t rank)
{
    char text[96];

    tc_native_break(comm, TC_ERR_PEER_DIED, rank, "rank %d (pid %d) died in %s", rank,
                    comm->segment->pages[rank]->pid,
                    tc_p2p_part_describe(part, text, sizeof(text)));
}

/* A peer that is gone, after what it had published has been taken. */
static void
look_at_gone(tc_native *comm, tc_p2p_peer *peer)
{
    const verdict left = {.left = true};
    const tc_p2p_part *part;

    tc_p2p_peers_discover(comm);
    if (tc_p2p_peer_step(comm, peer)) {
        return; /* once more in the next pass */
    }
    part = needing(peer);
    if (tc_p2p_has_left(comm, peer->rank)) {
        end_peer(comm, peer, &left);
        drop_debts(comm, peer);
    } else if (part != NULL) {
        tc_p2p_report_death(comm, part, peer->rank);
    } else {
        drop_debts(comm, peer);
    }
}

/* A recv from any rank ends when nobody is left, and when anybody has died: it may have
 * been the one. What was published before counts. */
static void
look_at_any(tc_native *comm)
{
    const verdict left = {.left = true};
    int32_t dead = -1;
    bool hope = false;

    if (comm->p2p->any.head == NULL) {
        return;
    }
    for (int32_t r = 0; r < comm->size; r++) {
        if (r != comm->rank && !tc_p2p_has_left(comm, r)) {
            dead = tc_page_is_dead(comm->segment->pages[r]) ? r : dead;
            hope = true;
        }
    }
    if ((hope && dead < 0) || tc_native_p2p_step_locked(comm)) {
        return;
    }
    for (int32_t i = 0; i < comm->p2p->open_count; i++) {
        hope = hope || has_unread(comm->p2p->peers[comm->p2p->open[i]]);
    }
    if (dead >= 0) {
        tc_p2p_report_death(comm, comm->p2p->any.head, dead);
    } else if (!hope) {
        end_queue(comm, &comm->p2p->any, &left, "");
    }
}

void
tc_native_p2p_look_locked(tc_native *comm, uint64_t now_ns)
{
    tc_p2p_state *state = comm->p2p;
    const verdict late = {.now_ns = now_ns};

    if (tc_native_p2p_is_idle_locked(comm)) {
        return;
    }
    look_at_any(comm);
    for (int32_t i = 0; i < state->open_count; i++) {
        tc_p2p_peer *peer = state->peers[state->open[i]];

        if (tc_native_peer_is_gone(comm, peer->rank)) {
            look_at_gone(comm, peer);
        }
        end_peer(comm, peer, &late);
    }
    end_queue(comm, &state->any, &late, "nothing has arrived");
}

void
tc_native_p2p_fail_locked(tc_native *comm)
{
    tc_p2p_state *state = comm->p2p;
    const verdict broken = {.broken = true};

    for (int32_t i = 0; i < state->open_count; i++) {
        tc_p2p_peer *peer = state->peers[state->open[i]];

        end_peer(comm, peer, &broken);
        drop_debts(comm, peer);
    }
    end_queue(comm, &state->any, &broken, "");
}
