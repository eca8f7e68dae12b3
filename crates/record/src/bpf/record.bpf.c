// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sees which pages of which files processes use, which paths they look up, which metadata they wait for, and who
 * they are. User space decides which programs to load and attach (load.rs), and reads the ring buffer by timer.
 */
#include "kernel.h"

#include "compat.h"
#include "events.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* What the programs need, in this order. */
#include "common.h"
#include "paths.h"
#include "pages.h"

/* The programs. */
#include "asked.h"
#include "functions.h"
#include "added.h"
#include "lookups.h"
#include "processes.h"
#include "waits.h"

/* Run once by the recorder, never attached: what it needs to know of itself. Returns its number as the kernel has it. */
SEC("raw_tp")
int about_self(void *ctx)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();

	self.root_dentry = (u64)BPF_CORE_READ(task, fs, root.dentry);
	self.root_mount = (u64)BPF_CORE_READ(task, fs, root.mnt);
	self.tgid = current_tgid();
	self.level = BPF_CORE_READ(task, thread_pid, level);
	self.pid_namespace = pid_namespace_of(upid_at(BPF_CORE_READ(task, thread_pid), self.level));
	return self.tgid;
}
