/* SPDX-License-Identifier: BSD-3-Clause */
/* How communicators of the backend `gloo` come to be: from a store, or from a parent.
 */
#ifndef TC_TORCH_GLOO_SPLIT_H
#define TC_TORCH_GLOO_SPLIT_H

#include "torch/gloo.h"

namespace torchcomms {

/* Connects the ranks of `config` by a store: the one of the start-up, or that of
 * `parent` under `prefix`. *comm_p is a std::shared_ptr<GlooComm> from new. */
tc_status
gloo_open(const tc_comm_config *config, const tc_store *store, const GlooComm *parent,
          const std::string &prefix, void **comm_p, tc_error *err);

void
gloo_split_begin(void *ctx, const tc_comm_config *config, const tc_split *split,
                 uint8_t blob[TC_SPLIT_BLOB_BYTES], void **pending_p);

tc_status
gloo_split_end(void *ctx, const tc_comm_config *config, const tc_split *split,
               void *pending, const uint8_t *blobs, void **child_p, tc_error *err);

} // namespace torchcomms

#endif
