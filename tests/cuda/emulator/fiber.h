// Fibers: stacks that one thread of the machine switches between. A switch saves what the calling convention keeps, and makes no system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" void pipec_switch(void** from, void* to) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
asm(R"(
    .text
    .hidden pipec_switch
    .globl pipec_switch
    .type pipec_switch, @function
pipec_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size pipec_switch, . - pipec_switch
)");

// A stack on which the first switch calls `entry`: six registers, its address, and a return address that nobody uses.
inline void* prepared(char* end, void (*entry)()) {
    void** top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(end) & ~uintptr_t(15));
    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void*>(entry);
    return top - 8;
}
#elif defined(__aarch64__)
asm(R"(
    .text
    .hidden pipec_switch
    .globl pipec_switch
    .type pipec_switch, %function
pipec_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size pipec_switch, . - pipec_switch
)");

inline void* prepared(char* end, void (*entry)()) {
    char* top = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(end) & ~uintptr_t(15)) - 160;
    reinterpret_cast<void**>(top)[11] = reinterpret_cast<void*>(entry);
    return top;
}
#else
#error "fibers are written for x86-64 and aarch64"
#endif
