# From the start-up interrupt to Rust, on every core but the first: real mode -> 32-bit protected mode -> long mode.
#
# The first part runs in a copy, in a page below 1 MiB, where a core starts (SDM volume 3, 9.4). It must not contain
# the address of anything in itself; the rest runs where the linker put it. What both need to know stands in the
# parameters, which kernel::smp::trampoline fills in. It may run twice: a core that is reset on its way starts over.

.set CODE32, 0x08
.set DATA,   0x10
.set CODE64, 0x18

.set CR0_PROTECTED, 0x00000011     # ET | PE: caches on, no paging yet
.set MSR_EFER, 0xc0000080

.section .rodata.trampoline, "a"

# ---- 16-bit ----

.code16
.balign 16
.global trampoline_start
trampoline_start:
    cli
    cld
    movw %cs, %bx                   # the page's segment; SIPI sets it (9.4.3)
    movw %bx, %ds
    movzwl %bx, %ebx
    shll $4, %ebx                   # the page's address, kept in EBX
    lgdtl trampoline_gdt_pointer - trampoline_start
    movl $CR0_PROTECTED, %eax
    movl %eax, %cr0
    ljmpl *(trampoline_entry32 - trampoline_start)

.balign 8
gdt:
    .quad 0
    .quad 0x00cf9b000000ffff        # 32-bit code, ring 0
    .quad 0x00cf93000000ffff        # data, ring 0
    .quad 0x00af9b000000ffff        # 64-bit code, ring 0
gdt_end:

# kernel::smp::trampoline::Parameters, in this order.
.balign 8
.global trampoline_parameters
trampoline_parameters:
trampoline_entry32: .skip 8         # far pointer to core_start32
entry64:            .skip 8         # far pointer to core_start64
page_table:         .skip 4
seat_count:         .skip 4
seats:              .skip 8
main:               .skip 8
                    .skip 2
trampoline_gdt_pointer: .skip 6
.global trampoline_end
trampoline_end:

.section .text.trampoline, "ax"

# ---- 32-bit ----

.code32
.global core_start32
core_start32:
    movl $DATA, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl ${cr4}, %eax
    movl %eax, %cr4
    movl page_table - trampoline_start(%ebx), %eax
    movl %eax, %cr3
    movl $MSR_EFER, %ecx
    movl ${efer}, %eax
    xorl %edx, %edx
    wrmsr
    movl ${cr0}, %eax
    movl %eax, %cr0
    ljmpl *(entry64 - trampoline_start)(%ebx)

# ---- 64-bit ----

.code64
.global core_start64
core_start64:
    movl %ebx, %ebx                 # the upper half is undefined after the switch
    movq %rbx, %r8                  # CPUID changes RBX
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs

    # Who am I? CPUID 0x0b tells the id in 32 bits; where it is absent, CPUID 1 tells 8 (SDM volume 2, CPUID).
    cpuid
    cmpl $0x0b, %eax
    jb 1f
    movl $0x0b, %eax
    xorl %ecx, %ecx
    cpuid
    testl %ebx, %ebx                # no such level: the leaf is a blank
    jnz 2f
1:  movl $1, %eax
    cpuid
    movl %ebx, %edx
    shrl $24, %edx

2:  movq seats - trampoline_start(%r8), %rsi
    movl seat_count - trampoline_start(%r8), %ecx
    xorl %edi, %edi
3:  cmpl %ecx, %edi
    jae 4f
    cmpl %edx, (%rsi)               # Seat::apic_id
    je 5f
    addq $16, %rsi
    incl %edi
    jmp 3b

    # Nobody expects this core.
4:  cli
    hlt
    jmp 4b

    # core_main(seat: usize)
5:  movq 8(%rsi), %rsp              # Seat::stack_top
    xorl %ebp, %ebp                 # the end of every backtrace
    call *main - trampoline_start(%r8)
    ud2
