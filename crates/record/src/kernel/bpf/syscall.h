// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the registers say of a system call: of a 64-bit program, and of a 32-bit one, which numbers its calls
 * otherwise.
 */
#ifndef SYSCALL_H
#define SYSCALL_H

#define NATIVE 0
#define COMPAT 1

#if defined(__TARGET_ARCH_x86)

#define TS_COMPAT 2

static __always_inline u32 syscall_number(const struct pt_regs *regs)
{
	return regs->orig_ax;
}

/* Not the code segment tells it, for a 64-bit program may use `int $0x80`. */
static __always_inline u32 syscall_abi(const struct pt_regs *regs)
{
#ifdef HAVE_BPF_LOOP
	const struct task_struct___x86 *task = (const void *)bpf_get_current_task_btf();

	return task->thread_info.status & TS_COMPAT ? COMPAT : NATIVE;
#else
	const struct task_struct___x86 *task = (const void *)bpf_get_current_task();

	return BPF_CORE_READ(task, thread_info.status) & TS_COMPAT ? COMPAT : NATIVE;
#endif
}

static __always_inline u64 syscall_argument(const struct pt_regs *regs, u32 which, u32 abi)
{
	if (abi == COMPAT)
		return (u32)(which == 0	  ? regs->bx
			     : which == 1 ? regs->cx
			     : which == 2 ? regs->dx
			     : which == 3 ? regs->si
					  : regs->di);
	return which == 0 ? regs->di : which == 1 ? regs->si : which == 2 ? regs->dx : which == 3 ? regs->r10 : regs->r8;
}

/* Where the position of a read stands, in two halves for a 32-bit program. */
#define COMPAT_POSITION 3

/* Where the mode stands in what stat(2) fills. */
#define NATIVE_MODE 24

#elif defined(__TARGET_ARCH_arm64)

/* PSTATE.nRW: the program runs in AArch32. */
#define PSR_MODE32_BIT 0x10

static __always_inline u32 syscall_number(const struct pt_regs *regs)
{
	return regs->syscallno;
}

static __always_inline u32 syscall_abi(const struct pt_regs *regs)
{
	return regs->pstate & PSR_MODE32_BIT ? COMPAT : NATIVE;
}

/* The result has overwritten the first argument; the kernel keeps a copy. */
static __always_inline u64 syscall_argument(const struct pt_regs *regs, u32 which, u32 abi)
{
	u64 value = which == 0 ? regs->orig_x0 : regs->regs[which];

	return abi == COMPAT ? (u32)value : value;
}

/* Numbers of 64 bits begin in an even register. */
#define COMPAT_POSITION 4

#define NATIVE_MODE 16

#endif

/* The same of 32-bit programs (stat64), and of statx(2). */
#define COMPAT_MODE 16
#define STATX_MODE 28

/* How a system call looks a path up or reads a file (syscalls.rs); 0: neither. */
static __always_inline u32 syscall_meaning(u32 number, u32 abi)
{
	u32 at = number;

	if (number >= SYSCALLS)
		return 0;
	/* The verifier wants to see that of the register that is used. */
	asm volatile("" : "+r"(at));
	return config.syscalls[abi & COMPAT][at & (SYSCALLS - 1)];
}

/* The position that pread64(2) is given. */
static __always_inline u64 syscall_position(const struct pt_regs *regs, u32 abi)
{
	if (abi == COMPAT)
		return syscall_argument(regs, COMPAT_POSITION, abi) |
		       syscall_argument(regs, COMPAT_POSITION + 1, abi) << 32;
	return syscall_argument(regs, 3, abi);
}

#endif
