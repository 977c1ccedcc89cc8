# The C functions on memory, under names of their own, so that tests can call them beside those of a C
# library.
#
# Short blocks go through SSE registers with an overlapping tail; long ones through `rep movsq`, which is fast
# both on processors (fast-string operation, Intel optimization manual, section 3.7.6) and under emulation.

.section .text.mem, "ax"

.global sluice_memcpy
.global sluice_memmove
.type sluice_memcpy, @function
.type sluice_memmove, @function
.balign 16
sluice_memmove:
    movq %rdi, %rax
    subq %rsi, %rax
    # Unsigned: to - from < length means that copying forwards would overwrite what is still to be read.
    cmpq %rdx, %rax
    jb move_backwards
sluice_memcpy:
    movq %rdi, %rax
    cmpq $16, %rdx
    jb copy_small
    cmpq $128, %rdx
    ja copy_long
    # 16 to 128 bytes: all of the tail is loaded before anything is stored, so an overlap does no harm.
    movdqu -16(%rsi,%rdx), %xmm0
    movq %rdx, %rcx
    decq %rcx
    shrq $4, %rcx                   # full vectors before the tail: 0 to 7
    jz 2f
1:  movdqu (%rsi), %xmm1
    movdqu %xmm1, (%rdi)
    addq $16, %rsi
    addq $16, %rdi
    decq %rcx
    jnz 1b
2:  movdqu %xmm0, -16(%rax,%rdx)
    ret

copy_long:
    movq %rdx, %rcx
    shrq $3, %rcx
    andl $7, %edx
    rep movsq
    movq %rdx, %rcx
    rep movsb
    ret

# Fewer than 16 bytes: everything is loaded before anything is stored.
copy_small:
    cmpq $8, %rdx
    jae 8f
    cmpq $4, %rdx
    jae 4f
    testq %rdx, %rdx
    jz 9f
    movzbl (%rsi), %ecx             # 1 to 3: first, middle, last
    movzbl -1(%rsi,%rdx), %r8d
    movq %rdx, %r9
    shrq $1, %r9
    movzbl (%rsi,%r9), %r10d
    movb %cl, (%rdi)
    movb %r10b, (%rdi,%r9)
    movb %r8b, -1(%rdi,%rdx)
    ret
4:  movl (%rsi), %ecx
    movl -4(%rsi,%rdx), %r8d
    movl %ecx, (%rdi)
    movl %r8d, -4(%rdi,%rdx)
    ret
8:  movq (%rsi), %rcx
    movq -8(%rsi,%rdx), %r8
    movq %rcx, (%rdi)
    movq %r8, -8(%rdi,%rdx)
9:  ret

# The destination starts inside the source: from the end to the beginning.
move_backwards:
    movq %rdi, %rax
    cmpq $16, %rdx
    jb copy_small
    movdqu (%rsi), %xmm0            # the head, before it is overwritten
    movq %rdx, %rcx
1:  movdqu -16(%rsi,%rcx), %xmm1
    movdqu %xmm1, -16(%rdi,%rcx)
    subq $16, %rcx
    cmpq $16, %rcx
    ja 1b
    movdqu %xmm0, (%rdi)
    ret

.global sluice_memset
.type sluice_memset, @function
.balign 16
sluice_memset:
    movq %rdi, %r8
    movzbl %sil, %eax
    movabsq $0x0101010101010101, %rcx
    imulq %rcx, %rax
    movq %rdx, %rcx
    shrq $3, %rcx
    andl $7, %edx
    rep stosq
    movl %edx, %ecx
    rep stosb
    movq %r8, %rax
    ret

.global sluice_memcmp
.global sluice_bcmp
.type sluice_memcmp, @function
.type sluice_bcmp, @function
.balign 16
sluice_memcmp:
sluice_bcmp:
    cmpq $8, %rdx
    jb 3f
1:  movq (%rdi), %rax
    movq (%rsi), %rcx
    cmpq %rcx, %rax
    jne 2f
    addq $8, %rdi
    addq $8, %rsi
    subq $8, %rdx
    cmpq $8, %rdx
    jae 1b
    jmp 3f
2:  bswapq %rax                     # the first byte that differs decides: make it the most significant
    bswapq %rcx
    cmpq %rcx, %rax
    sbbl %eax, %eax
    orl $1, %eax
    ret
3:  testq %rdx, %rdx
    jz 5f
4:  movzbl (%rdi), %eax
    movzbl (%rsi), %ecx
    subl %ecx, %eax
    jne 6f
    incq %rdi
    incq %rsi
    decq %rdx
    jnz 4b
5:  xorl %eax, %eax
6:  ret

.global sluice_strlen
.type sluice_strlen, @function
.balign 16
sluice_strlen:
    xorl %eax, %eax
1:  cmpb $0, (%rdi,%rax)
    je 2f
    incq %rax
    jmp 1b
2:  ret
