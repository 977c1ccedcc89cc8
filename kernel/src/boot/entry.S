# From the loader to the first line of Rust: 32-bit protected mode without paging -> 64-bit long mode.
#
# Two loaders, one way in. Both hand over in 32-bit protected mode with flat segments, paging off, interrupts
# off:
#   PVH         (Xen public/arch-x86/hvm/start_info.h)  EBX = struct hvm_start_info
#   Multiboot2  (specification 2.0, section 3.3)        EAX = 0x36d76289, EBX = boot information
#
# Nothing here trusts that .bss was cleared or that a stack exists.

.set PVH_MAGIC,        {pvh_magic}
.set MULTIBOOT2_MAGIC, 0xe85250d6

.set CR0_VALUE,  {cr0}
.set CR4_VALUE,  {cr4}
.set EFER_VALUE, {efer}
.set MSR_EFER,   0xc0000080

.set CODE64, 0x08
.set DATA,   0x10

# ---- What the loaders look for in the file ----

# ELF note XEN_ELFNOTE_PHYS32_ENTRY (Xen public/elfnote.h).
.section .note.pvh, "a", @note
.balign 4
    .long 4                         # length of the name
    .long 4                         # length of the descriptor
    .long 18                        # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long pvh_entry

# Multiboot2 header (section 3.1).
.section .multiboot2, "a"
.balign 8
multiboot2_header:
    .long MULTIBOOT2_MAGIC
    .long 0                         # architecture: i386 protected mode
    .long multiboot2_header_end - multiboot2_header
    .long -(MULTIBOOT2_MAGIC + 0 + (multiboot2_header_end - multiboot2_header))
    # Information request (3.1.5): without the memory map there is no boot.
    .word 1, 0
    .long 12
    .long 6                         # memory map
    .balign 8
    # The same, marked optional: a machine may have no ACPI.
    .word 1, 1
    .long 16
    .long 14, 15                    # RSDP of ACPI 1.0, of ACPI 2.0
    .balign 8
    # Entry address (3.1.7).
    .word 3, 0
    .long 12
    .long multiboot2_entry
    .balign 8
    # Modules on page boundaries (3.1.9).
    .word 6, 0
    .long 8
    .balign 8
    # End.
    .word 0, 0
    .long 8
multiboot2_header_end:

# ---- 32-bit ----

.section .text.entry, "ax"
.code32

.global pvh_entry
pvh_entry:
    movl $PVH_MAGIC, %eax           # from here on both loaders look alike

.global multiboot2_entry
multiboot2_entry:
    cli
    cld
    movl %eax, %ebp                 # which loader
    movl %ebx, %esi                 # its information block
    rdtsc                           # the clock counts from here
    movl %eax, %ebx
    movl %edx, %esp                 # EBX and ESP keep it until there is a stack

    movl $bss_start, %edi
    movl $bss_end, %ecx
    subl %edi, %ecx
    shrl $2, %ecx
    xorl %eax, %eax
    rep stosl

    # CPUID 0x80000001 EDX: bit 29 long mode, bit 20 no-execute.
    movl %ebx, %edi
    movl $0x80000000, %eax
    cpuid
    cmpl $0x80000001, %eax
    jb no_long_mode
    movl $0x80000001, %eax
    cpuid
    andl $0x20100000, %edx
    cmpl $0x20100000, %edx
    jne no_long_mode
    movl %edi, %ebx

    # The first 4 GiB, one to one, in 2 MiB pages: enough to read what the loader left. The image builds its
    # own tables right after.
    movl $boot_pd, %edi
    movl $0x83, %eax                # present | writable | large
    movl $2048, %ecx
1:  movl %eax, (%edi)
    addl $8, %edi
    addl $0x200000, %eax
    loop 1b
    movl $boot_pdpt, %edi
    movl $boot_pd + 3, %eax         # present | writable
    movl $4, %ecx
2:  movl %eax, (%edi)
    addl $8, %edi
    addl $4096, %eax
    loop 2b
    movl $boot_pdpt + 3, boot_pml4

    movl %esp, %edi                 # EDX:EAX are needed by wrmsr; EDI:EBX is the clock now
    movl $CR4_VALUE, %eax
    movl %eax, %cr4
    movl $boot_pml4, %eax
    movl %eax, %cr3
    movl $MSR_EFER, %ecx
    movl $EFER_VALUE, %eax
    xorl %edx, %edx
    wrmsr
    movl $CR0_VALUE, %eax
    movl %eax, %cr0
    lgdt boot_gdt_pointer
    ljmp $CODE64, $start64

# No way to go on: say so on COM1 and sleep.
no_long_mode:
    movl $no_long_mode_text, %esi
3:  lodsb
    testb %al, %al
    jz 4f
    movw $0x3f8, %dx
    outb %al, %dx
    jmp 3b
4:  hlt
    jmp 4b

# ---- 64-bit ----

.code64
start64:
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movl $DATA, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    fninit                          # whatever the firmware left in the FPU and SSE
    ldmxcsr default_mxcsr(%rip)

    # sluice_start(loader: u32, information: u32, entry_tsc: u64, layout: &Layout)
    movl %edi, %edx
    shlq $32, %rdx
    movl %ebx, %ebx                 # the upper halves are undefined after the switch
    orq %rbx, %rdx
    movl %ebp, %edi
    movl %esi, %esi
    leaq image_layout(%rip), %rcx
    leaq boot_stack_top(%rip), %rsp
    xorl %ebp, %ebp                 # the end of every backtrace
    call sluice_start
    ud2

.section .rodata.entry, "a"
no_long_mode_text:
    .asciz "sluice: this processor has no 64-bit mode with no-execute\r\n"

.balign 4
default_mxcsr:
    .long 0x1f80                    # all exceptions masked (SDM volume 1, 10.2.3)

.balign 8
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff        # 64-bit code, ring 0
    .quad 0x00cf93000000ffff        # data, ring 0
boot_gdt_pointer:
    .word . - boot_gdt - 1
    .long boot_gdt

# kernel::boot::Layout, in this order.
.balign 8
image_layout:
    .quad rodata_start, rodata_end
    .quad text_start, text_end
    .quad data_start, bss_end
    .quad boot_stack_guard, boot_stack_top

.section .bss.entry, "aw", @nobits
.balign 4096
boot_pml4: .skip 4096
boot_pdpt: .skip 4096
boot_pd:   .skip 4 * 4096
