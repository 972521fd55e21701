/* SPDX-License-Identifier: BSD-3-Clause */
/* What torch's debug server asks a worker for. */
#ifndef TC_TORCH_HANDLERS_H
#define TC_TORCH_HANDLERS_H

namespace torchcomms {

/* Registers them with torch's control plane, once in a process. */
void
register_handlers();

} // namespace torchcomms

#endif
