// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Which processes there are, and what they run. */
#ifndef SCHED_PROCESS_H
#define SCHED_PROCESS_H

#include "watch.h"

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 tgid = child->tgid, pid;
	struct record_fork *r;
	u64 of = 1;

	/* Threads share the number of their group. */
	if (child->pid != tgid || stopped)
		return 0;
	if (watching && !inherited(parent->tgid, tgid, &of))
		return 0;
	pid = number_of(parent);
	if (config.scope != SCOPE_SYSTEM) {
		if (!wanted(parent->tgid))
			return 0;
		if (bpf_map_update_elem(&listed, &tgid, &of, BPF_ANY))
			count(&lost);
	} else if (self.level && !pid) {
		return 0;
	}
	r = is_kept_free(ring) ? NULL : bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		count(&lost);
		return 0;
	}
	head(&r->head, RECORD_FORK, 0, pid);
	r->child = number_of(child);
	r->unused = 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Sends what the current process runs from now on. By numbers: see send_file. */
__noinline int send_exec(u64 address)
{
	const struct file *file = (const void *)address;
	struct scratch *s = take_scratch();
	u32 at = sizeof(struct record_exec);
	struct record_exec *r;

	if (!s) {
		count(&lost);
		return -1;
	}
	r = (void *)s->bytes;
	head(&r->head, RECORD_EXEC, 0, current_number());
	at += place(&r->executable, s, at, (u64)BPF_CORE_READ(file, f_path.dentry), (u64)BPF_CORE_READ(file, f_path.mnt));
	return send(&ring, is_kept_free(ring), &lost, s, at);
}

/* The names that an execution has looked up: sys_exit sees one that succeeded too late, its memory is gone. */
static __always_inline int looked_up_by_exec(const struct linux_binprm *bprm)
{
	u64 filename = (u64)BPF_CORE_READ(bprm, filename), interp = (u64)BPF_CORE_READ(bprm, interp);
	u32 how = LOOKUP_KERNEL_TEXT | 1 /* open */;

	send_lookup(filename, AT_FDCWD, how);
	if (interp != filename)
		send_lookup(interp, AT_FDCWD, how);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	if (!current_is_wanted())
		return 0;
	send_exec((u64)BPF_CORE_READ(bprm, file));
	return looked_up_by_exec(bprm);
}

/*
 * Scope watch. A program of its own: up to Linux 6.7 the verifier looks at each function of a program, also
 * at those that are never called and whose maps are not made.
 */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(notice_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	int done = watch_exec((u64)BPF_CORE_READ(bprm, file));

	if (done == LEAVE)
		return 0;
	if (done == JOINED)
		send_exec((u64)BPF_CORE_READ(bprm, file));
	return looked_up_by_exec(bprm);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	u32 tgid = task->tgid;
	struct record_exit *r;

	/* Others of its threads still live. */
	if (BPF_CORE_READ(task, signal, live.counter) > 0)
		return 0;
	if (watching)
		revisit(task, tgid);
	if (wanted(tgid) && (config.scope != SCOPE_SYSTEM || !self.level || number_of(task))) {
		r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
		if (r) {
			head(&r->head, RECORD_EXIT, 0, number_of(task));
			r->status = task->exit_code;
			r->unused = 0;
			bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
		} else {
			count(&lost);
		}
	}
	/* Its number will be another's. */
	bpf_map_delete_elem(&listed, &tgid);
	return 0;
}

#endif
