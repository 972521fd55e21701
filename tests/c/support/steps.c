/* SPDX-License-Identifier: BSD-3-Clause */
/* The trap flag of x86: after each instruction the kernel sends SIGTRAP. */
#include "support/steps.h"

#include "support/check.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100

static tc_test_steps steps;
static uintptr_t last; /* address of the instruction before */
static volatile sig_atomic_t ending;

static bool
is_allocator(uintptr_t at)
{
    return at == (uintptr_t)malloc || at == (uintptr_t)calloc ||
           at == (uintptr_t)realloc || at == (uintptr_t)free;
}

/* `code` without the prefixes that change neither the operation nor the locking. */
static const uint8_t *
skip_prefixes(const uint8_t *code)
{
    while (*code == 0x66 || (*code & 0xf0) == 0x40) {
        code++;
    }
    return code;
}

static bool
is_locked(const uint8_t *code)
{
    if (*code == 0xf0) {
        return true;
    }
    code = skip_prefixes(code);
    /* xchg with memory locks by itself */
    return (code[0] == 0x86 || code[0] == 0x87) && (code[1] & 0xc0) != 0xc0;
}

static void
count(uintptr_t at)
{
    const uint8_t *code = (const uint8_t *)at;

    if (at == last) {
        return; /* another round of a string instruction */
    }
    last = at;
    steps.instructions++;
    steps.locked += is_locked(code);
    steps.pauses += code[0] == 0xf3 && code[1] == 0x90;
    steps.syscalls += code[0] == 0x0f && code[1] == 0x05;
    steps.allocations += is_allocator(at);
}

/* Comes before the instruction at the saved address. */
static void
on_trap(int signal, siginfo_t *info, void *context)
{
    ucontext_t *user = context;

    (void)signal;
    (void)info;
    if (ending) {
        user->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    } else {
        count((uintptr_t)user->uc_mcontext.gregs[REG_RIP]);
    }
}

bool
tc_test_steps_supported(void)
{
    return true;
}

/* What begin and end themselves execute between the flag and the code in question. */
static tc_test_steps
overhead(void)
{
    static tc_test_steps own;
    static bool known;

    if (!known) {
        known = true;
        tc_test_steps_begin();
        own = tc_test_steps_end();
    }
    return own;
}

void
tc_test_steps_begin(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};

    overhead();
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
    steps = (tc_test_steps){0};
    last = 0;
    ending = 0;
    /* Below the red zone. */
    __asm__ volatile("subq $128, %%rsp\n\t"
                     "pushfq\n\t"
                     "orq %0, (%%rsp)\n\t"
                     "popfq\n\t"
                     "addq $128, %%rsp"
                     :
                     : "i"(TRAP_FLAG)
                     : "memory", "cc");
}

tc_test_steps
tc_test_steps_end(void)
{
    tc_test_steps counted;

    ending = 1;
    __asm__ volatile("nop\n\tnop" : : : "memory");
    counted = steps;
    counted.instructions -= overhead().instructions;
    return counted;
}

#else

bool
tc_test_steps_supported(void)
{
    return false;
}

void
tc_test_steps_begin(void)
{
}

tc_test_steps
tc_test_steps_end(void)
{
    return (tc_test_steps){0};
}

#endif
