/* SPDX-License-Identifier: BSD-3-Clause */
/* Context switches: a few instructions on x86-64, ucontext elsewhere. */
#include "model/support/switch.h"

#include <string.h>
#include <ucontext.h>

#if defined(__x86_64__) && !defined(MODEL_UCONTEXT)

/* Registers that a call keeps go to the stack, so the stack is all of a thread. */
void
model_switch(uint64_t *save_p, uint64_t load);

__asm__(".text\n"
        ".globl model_switch\n"
        ".type model_switch, @function\n"
        "model_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size model_switch, . - model_switch\n");

static uint64_t scheduler;
static uint64_t thread;

uint64_t
switch_prepare(uint8_t *end, void (*entry)(void))
{
    /* Six registers, the entry, and a return address of 0 that leaves the stack as a
     * call would. */
    uint64_t *at = (uint64_t *)(void *)end - 10;

    memset(at, 0, 10 * sizeof(*at));
    at[6] = (uint64_t)(uintptr_t)entry;
    return (uint64_t)(uintptr_t)at;
}

uint64_t
switch_in(uint64_t stack)
{
    model_switch(&scheduler, stack);
    return thread;
}

void
switch_out(void)
{
    model_switch(&thread, scheduler);
}

#else

static ucontext_t scheduler;
static uint64_t thread;

/* Below the saved context lies what swapcontext itself has pushed. */
enum { BELOW = 512 };

uint64_t
switch_prepare(uint8_t *end, void (*entry)(void))
{
    ucontext_t *context =
        (ucontext_t *)(void *)(end - (sizeof(ucontext_t) + 64) / 64 * 64);

    getcontext(context);
    context->uc_stack.ss_sp = end - 32 * 1024;
    context->uc_stack.ss_size = (size_t)((uint8_t *)context - (end - 32 * 1024)) - 64;
    context->uc_link = NULL;
    makecontext(context, entry, 0);
    thread = (uint64_t)(uintptr_t)context;
    return (uint64_t)(uintptr_t)context - BELOW;
}

uint64_t
switch_in(uint64_t stack)
{
    swapcontext(&scheduler, (ucontext_t *)(uintptr_t)(stack + BELOW));
    return thread - BELOW;
}

void
switch_out(void)
{
    ucontext_t context;

    memset(&context, 0, sizeof(context));
    thread = (uint64_t)(uintptr_t)&context;
    swapcontext(&context, &scheduler);
}

#endif
